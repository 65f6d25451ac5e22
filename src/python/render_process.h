// The process in which chat templates and chat formats run: models/chat/rendering/worker.py under limits.
// What a template does there costs at most that process.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace firstlight {

/// The address space of a rendering process; about 40 MiB of it are the interpreter's.
inline constexpr std::size_t kRenderMemoryBytes = std::size_t{512} << 20;
/// Of one rendered prompt; a million tokens have about 5 MB.
inline constexpr std::size_t kRenderOutputBytes = std::size_t{64} << 20;
/// An honest template renders the longest conversation in well under a second.
inline constexpr std::chrono::milliseconds kRenderTime{10000};

/// One process; one request at a time. It inherits nothing but its end of a socket, ignores Ctrl-C, and ends
/// when this object or the whole program does.
class RenderProcess {
 public:
  /// Starts it and waits until it is ready.
  static Result<std::unique_ptr<RenderProcess>> start();
  ~RenderProcess();
  RenderProcess(const RenderProcess&) = delete;
  RenderProcess& operator=(const RenderProcess&) = delete;

  /// Sends the fields of a request and returns the reply, its kind first (worker.py). An Error is a limit
  /// that was passed, or the end of the process; after either the process is not usable().
  Result<std::string> exchange(std::span<const std::string_view> fields,
                               std::chrono::milliseconds time_limit);

  [[nodiscard]] bool usable() const { return socket_ >= 0; }

 private:
  using Clock = std::chrono::steady_clock;

  RenderProcess() = default;
  Status send(std::string_view bytes, Clock::time_point deadline);
  Status receive(char* bytes, std::size_t count, Clock::time_point deadline);
  Result<std::string> receive_reply(Clock::time_point deadline);
  /// Waits until the socket can be read or written.
  Status wait(short events, Clock::time_point deadline);
  /// Ends the process. The Error says how it came to that: `why`, or if empty how the process had ended
  /// itself.
  Error give_up(const std::string& why);
  void end(bool at_once);

  pid_t pid_ = -1;
  int socket_ = -1;    // -1: ended
  int lifeline_ = -1;  // nothing is written to it; its closing tells the process that we are gone
  int wait_status_ = 0;
};

}  // namespace firstlight
