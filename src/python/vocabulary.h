// The Python module `firstlight`: graphs, values, and one function an operator, made from its contract. The
// same code serves the embedded interpreter and the importable extension.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "graph/graph.h"

namespace firstlight {

/// A value as model files hold it.
struct PyValue {
  std::shared_ptr<Graph> graph;
  ValueId id;
};

void bind_vocabulary(pybind11::module_& m);

}  // namespace firstlight
