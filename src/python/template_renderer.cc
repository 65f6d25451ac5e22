#include "python/template_renderer.h"

#include <pybind11/embed.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "python/interpreter.h"
#include "python/template_module.h"

namespace firstlight {
namespace {

namespace py = pybind11;

/// Raises TimeoutError in the Python code of the thread that made it, unless destroyed in time. Made and
/// destroyed with the GIL held.
class TimeLimit {
 public:
  explicit TimeLimit(std::chrono::milliseconds limit)
      : watcher_([this, limit, thread = PyThread_get_thread_ident()] { watch(limit, thread); }) {}
  ~TimeLimit() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    wake_.notify_one();
    {
      const py::gil_scoped_release release;  // the watcher may be waiting for it
      watcher_.join();
    }
    PyThreadState_SetAsyncExc(PyThread_get_thread_ident(),
                              nullptr);  // raised too late to be seen: take it back
  }
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

 private:
  void watch(std::chrono::milliseconds limit, unsigned long thread) {
    {
      std::unique_lock lock(mutex_);
      if (wake_.wait_for(lock, limit, [this] { return done_; })) return;
    }
    const py::gil_scoped_acquire gil;
    PyThreadState_SetAsyncExc(thread, PyExc_TimeoutError);
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  std::thread watcher_;  // last: it starts when all else is there
};

/// The renderer's Python function; kept until the process ends, like the interpreter.
const py::object& render_function() {
  static const py::object* function = [] {
    py::dict module;
    module["__builtins__"] = py::module_::import("builtins");
    module["__name__"] = "firstlight_templates";
    py::exec(kTemplateModule, module);
    return new py::object(module["render"]);
  }();
  return *function;
}

py::str text(std::string_view utf8) { return {utf8.data(), utf8.size()}; }

}  // namespace

Result<std::string> render_chat(std::string_view template_text, std::string_view messages_json,
                                const RenderOptions& options) {
  FL_TRY(start_interpreter());
  // Taken before the GIL. Importing jinja2 lets go of the GIL in the middle of render_function()'s static: a
  // thread that then waited for that static while holding the GIL would wait for ever.
  static std::mutex turn;
  const std::lock_guard mine(turn);
  const py::gil_scoped_acquire gil;
  try {
    const py::object& render = render_function();
    const TimeLimit limit(options.time_limit);
    const py::tuple outcome =
        render(text(template_text), text(messages_json), text(options.tools_json),
               text(options.variables_json), options.add_generation_prompt, options.now);
    if (!outcome[1].is_none()) return Error{outcome[1].cast<std::string>()};
    return outcome[0].cast<std::string>();
  } catch (const py::error_already_set& error) {
    if (error.matches(PyExc_ImportError)) {
      return Error{std::string("chat templates need jinja2 (Debian package python3-jinja2): ") +
                   error.what()};
    }
    return Error{std::string("the chat template could not be rendered: ") + error.what()};
  }
}

}  // namespace firstlight
