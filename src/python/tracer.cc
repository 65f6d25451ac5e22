#include "python/tracer.h"

#include <pybind11/embed.h>
#include <pybind11/stl.h>

#include <string>

#include "checkpoint/config.h"
#include "graph/passes.h"
#include "python/interpreter.h"
#include "python/vocabulary.h"

namespace py = pybind11;

PYBIND11_EMBEDDED_MODULE(firstlight, m) { firstlight::bind_vocabulary(m); }

namespace firstlight {

namespace {

/// str(object), or nothing where even that fails.
std::string text_of(const py::handle& object) {
  try {
    return py::str(object).attr("encode")("utf-8", "backslashreplace").cast<py::bytes>();
  } catch (const std::exception&) {
    return "an exception that cannot be shown";
  }
}

/// error.what() shows the traceback, but throws for an exception whose text cannot be made.
std::string traceback_of(const py::error_already_set& error) {
  try {
    return error.what();
  } catch (const std::exception&) {
    return text_of(error.type().attr("__name__"));
  }
}

/// Weights that a checkpoint of so many bytes can have: real ones have far more than 256 bytes each. Small
/// checkpoints may be described wrongly and still get a list of what is missing.
std::int64_t most_weights(std::int64_t stored_bytes) { return 16384 + stored_bytes / 256; }

}  // namespace

Result<TracedModel> trace_model(const std::filesystem::path& folder, const std::filesystem::path& models,
                                std::optional<std::int64_t> stored_bytes) {
  const std::string path = (folder / "config.json").string();
  FL_ASSIGN(const auto config, read_config(path));
  std::error_code none;
  if (!std::filesystem::exists(models / "tracing.py", none)) {
    return Error{models.string() +
                 ": is not a folder of model files: it has no tracing.py (FIRSTLIGHT_MODELS names another "
                 "one, a copy of all of models/)"};
  }
  FL_TRY(start_interpreter());
  const py::gil_scoped_acquire gil;
  try {
    py::list search = py::module_::import("sys").attr("path");
    const py::str place(models.string());
    if (!search.contains(place)) search.insert(0, place);
    const py::tuple traced = py::module_::import("tracing").attr("trace")(
        config.dump(), stored_bytes ? py::cast(most_weights(*stored_bytes)) : py::none());
    const auto& graph = traced[0].cast<const Graph&>();
    const py::dict facts = traced[1];
    TracedModel model{.graph = graph,
                      .max_context = facts["max_context"].cast<std::int64_t>(),
                      .vocab_size = facts["vocab_size"].cast<std::int64_t>(),
                      .eos_token_ids = facts["eos_token_ids"].cast<std::vector<std::int32_t>>()};
    if (facts.contains("image_token_id")) model.image_token_id = facts["image_token_id"].cast<std::int32_t>();
    if (const Status status = verify_graph(model.graph); !status.ok()) {
      return Error{path + ": " + status.error().message};
    }
    return model;
  } catch (const py::error_already_set& error) {
    // A ConfigError speaks for itself, and so does an operator that cannot take what it is given; anything
    // else is a fault of the model file, and its place helps.
    const std::string kind = text_of(error.type().attr("__name__"));
    const std::string text = text_of(error.value());
    if (kind == "ConfigError") return Error{path + ": " + text};
    if (kind == "ValueError") return Error{path + ": cannot be computed: " + text};
    return Error{path + ": the model file failed: " + traceback_of(error)};
  } catch (const std::exception& error) {
    return Error{path + ": the model file failed: " + error.what()};
  }
}

}  // namespace firstlight
