// The Python interpreter inside this process: Debian's, whatever Python the user's shell prefers. It runs at
// load (tracing of model files) and for chat templates, never per token.
#pragma once

#include "base/result.h"

namespace firstlight {

/// Starts the interpreter at the first call; later calls only repeat the outcome. It is isolated: PATH,
/// PYTHONHOME, PYTHONPATH, virtual environments and the user's site-packages have no influence, and no signal
/// handler is installed. It lives until the process ends. In a module of a running interpreter, nothing
/// happens.
///
/// An interpreter started here leaves no thread with the GIL: whoever calls Python takes it for as long
/// (`pybind11::gil_scoped_acquire`), on any thread.
Status start_interpreter();

}  // namespace firstlight
