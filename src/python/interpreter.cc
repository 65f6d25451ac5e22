#include "python/interpreter.h"

#include <Python.h>
#include <pybind11/pybind11.h>

#include <string>

namespace firstlight {
namespace {

/// The distribution's interpreter. Never run: from this path sys.prefix, the standard library and
/// dist-packages are found.
constexpr const char* kExecutable = FL_PYTHON;

Error failure(const PyStatus& status) {
  const char* why = status.err_msg != nullptr ? status.err_msg : "unknown reason";
  return Error{std::string("the Python interpreter of ") + kExecutable + " did not start: " + why};
}

Status start() {
  if (Py_IsInitialized() != 0) return {};  // we are a module of a running interpreter
  PyPreConfig before;
  PyPreConfig_InitIsolatedConfig(&before);
  before.utf8_mode = 1;  // the locale is left alone, so Python must not ask it for the encoding of paths
  if (const PyStatus status = Py_PreInitialize(&before); PyStatus_Exception(status) != 0) {
    return failure(status);
  }

  PyConfig config;
  PyConfig_InitIsolatedConfig(&config);
  config.install_signal_handlers = 0;
  config.write_bytecode = 0;  // never write beside the system's modules or the user's model files
  PyStatus status = PyConfig_SetBytesString(&config, &config.program_name, kExecutable);
  if (PyStatus_Exception(status) == 0) {
    status = PyConfig_SetBytesString(&config, &config.executable, kExecutable);
  }
  if (PyStatus_Exception(status) == 0) status = Py_InitializeFromConfig(&config);
  PyConfig_Clear(&config);
  if (PyStatus_Exception(status) != 0) return failure(status);

  // Made here, where this thread's state stays for good: a thread that made them with a borrowed state would
  // leave the others a dangling one.
  pybind11::detail::get_internals();
  PyEval_SaveThread();
  return {};
}

}  // namespace

Status start_interpreter() {
  static const Status outcome = start();
  return outcome;
}

}  // namespace firstlight
