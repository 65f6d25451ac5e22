#include "python/render_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/mapped_file.h"
#include "python/models_folder.h"

namespace firstlight {
namespace {

constexpr const char* kPython = FL_PYTHON;
/// Importing takes a fraction of a second; a machine may be busy.
constexpr std::chrono::seconds kStartTime{60};

std::string seconds_text(std::chrono::milliseconds time) {
  const auto ms = time.count();
  return ms % 1000 == 0 ? std::to_string(ms / 1000) + " s" : std::to_string(ms) + " ms";
}

/// Descriptors that close themselves.
struct Pair {
  std::array<int, 2> ends{-1, -1};
  ~Pair() {
    for (const int end : ends) {
      if (end >= 0) close(end);
    }
  }
  int release(std::size_t i) { return std::exchange(ends[i], -1); }
};

/// Starts worker.py with `socket` as its standard input and output and `lifeline` in place of standard error.
Result<pid_t> spawn(const std::string& worker, int socket, int lifeline) {
  const std::string memory = std::to_string(kRenderMemoryBytes);
  const std::string seconds =
      std::to_string(std::chrono::duration_cast<std::chrono::seconds>(kRenderTime).count());
  const std::string output = std::to_string(kRenderOutputBytes);
  // Isolated: no variable of the environment, no current folder, no user's packages; nothing is written.
  const std::array arguments{kPython,        "-I",
                             "-B",           "-W",
                             "ignore",       "-X",
                             "utf8",         worker.c_str(),
                             memory.c_str(), seconds.c_str(),
                             output.c_str(), static_cast<const char*>(nullptr)};
  const char* zone = std::getenv("TZ");  // what the clock shows to strftime_now()
  const std::string zone_setting = zone != nullptr ? std::string("TZ=") + zone : std::string();
  const std::array environment{zone != nullptr ? zone_setting.c_str() : nullptr,
                               static_cast<const char*>(nullptr)};

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, lifeline, 2);
  posix_spawn_file_actions_adddup2(&files, socket, 0);
  posix_spawn_file_actions_adddup2(&files, socket, 1);
  posix_spawn_file_actions_addclosefrom_np(&files, 3);

  // A group of its own, so that Ctrl-C at the terminal is not for it; signals as at the start of a program.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t all;
  sigset_t none;
  sigfillset(&all);
  sigemptyset(&none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);

  pid_t pid = -1;
  const int failed =
      posix_spawn(&pid, kPython, &files, &attributes, const_cast<char* const*>(arguments.data()),
                  const_cast<char* const*>(environment.data()));
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (failed != 0) {
    return Error{std::string("the process that renders chat templates cannot be started: ") + kPython + ": " +
                 system_error_text(failed)};
  }
  return pid;
}

}  // namespace

Result<std::unique_ptr<RenderProcess>> RenderProcess::start() {
  const std::filesystem::path worker = models_folder() / "chat" / "rendering" / "worker.py";
  std::error_code ignored;
  if (!std::filesystem::exists(worker, ignored)) {
    return Error{worker.string() + ": does not exist (FIRSTLIGHT_MODELS names another folder of models)"};
  }
  Pair sockets;
  Pair lifeline;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.ends.data()) != 0 ||
      pipe2(lifeline.ends.data(), O_CLOEXEC) != 0) {
    return Error{"the process that renders chat templates cannot be started: " + system_error_text(errno)};
  }
  // Descriptors 0 to 2 may be closed in this program, and then be among these: out of the way of the child's.
  for (int* end : {&sockets.ends[1], &lifeline.ends[0]}) {
    const int moved = fcntl(*end, F_DUPFD_CLOEXEC, 3);
    if (moved < 0) return Error{"no descriptor is left: " + system_error_text(errno)};
    close(std::exchange(*end, moved));
  }
  auto process = std::unique_ptr<RenderProcess>(new RenderProcess);
  FL_ASSIGN(process->pid_, spawn(worker.string(), sockets.ends[1], lifeline.ends[0]));
  process->socket_ = sockets.release(0);
  process->lifeline_ = lifeline.release(1);
  close(sockets.release(1));  // or its end would never be seen
  const auto ready = process->receive_reply(Clock::now() + kStartTime);
  if (!ready)
    return Error{"the process that renders chat templates does not start: " + ready.error().message};
  if (*ready != "0") {
    return Error{"chat templates need jinja2 for " + std::string(kPython) +
                 " (Debian package python3-jinja2) and " + worker.parent_path().string() + ": " +
                 ready->substr(1)};
  }
  return process;
}

RenderProcess::~RenderProcess() { end(/*at_once=*/true); }

Result<std::string> RenderProcess::exchange(std::span<const std::string_view> fields,
                                            std::chrono::milliseconds time_limit) {
  const Clock::time_point deadline = Clock::now() + time_limit;
  const auto sent_number = [&](auto number) {
    char bytes[sizeof number];
    std::memcpy(bytes, &number, sizeof number);
    return send({bytes, sizeof bytes}, deadline);
  };
  Status sent = sent_number(static_cast<std::uint32_t>(fields.size()));
  for (const std::string_view field : fields) {
    if (sent) sent = sent_number(static_cast<std::uint64_t>(field.size()));
    if (sent) sent = send(field, deadline);
  }
  Result<std::string> reply = sent ? receive_reply(deadline) : Result<std::string>(sent.error());
  if (!reply) {
    return give_up(Clock::now() >= deadline
                       ? "the chat template takes longer than " + seconds_text(time_limit)
                       : reply.error().message);
  }
  if (reply->starts_with('~')) end(/*at_once=*/true);  // it is ending itself
  return reply;
}

Result<std::string> RenderProcess::receive_reply(Clock::time_point deadline) {
  std::uint64_t size = 0;
  char bytes[sizeof size];
  FL_TRY(receive(bytes, sizeof bytes, deadline));
  std::memcpy(&size, bytes, sizeof size);
  if (size == 0 || size > kRenderMemoryBytes)
    return Error{"the process that renders chat templates answers nonsense"};
  std::string reply;
  while (reply.size() < size) {  // memory follows what comes, not what is announced
    const std::size_t step = std::min<std::size_t>(size - reply.size(), std::size_t{1} << 20);
    reply.resize(reply.size() + step);
    FL_TRY(receive(reply.data() + reply.size() - step, step, deadline));
  }
  return reply;
}

Status RenderProcess::send(std::string_view bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {
      FL_TRY(wait(POLLOUT, deadline));
    } else if (errno != EINTR) {
      return Error{""};
    }
  }
  return {};
}

Status RenderProcess::receive(char* bytes, std::size_t count, Clock::time_point deadline) {
  while (count > 0) {
    const ssize_t n = ::recv(socket_, bytes, count, MSG_DONTWAIT);
    if (n > 0) {
      bytes += n;
      count -= static_cast<std::size_t>(n);
    } else if (n < 0 && errno == EAGAIN) {
      FL_TRY(wait(POLLIN, deadline));
    } else if (n == 0 || errno != EINTR) {
      return Error{""};
    }
  }
  return {};
}

Status RenderProcess::wait(short events, Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  if (left <= 0) return Error{"no answer in time"};
  pollfd waiting{.fd = socket_, .events = events, .revents = 0};
  if (poll(&waiting, 1, static_cast<int>(std::min<std::int64_t>(left, 1 << 30))) < 0 && errno != EINTR) {
    return Error{system_error_text(errno)};
  }
  return {};
}

Error RenderProcess::give_up(const std::string& why) {
  end(/*at_once=*/!why.empty());
  if (!why.empty()) return Error{why};
  if (WIFSIGNALED(wait_status_) && WTERMSIG(wait_status_) == SIGXCPU) {
    return Error{"the chat template takes too much processor time"};
  }
  std::string how = WIFSIGNALED(wait_status_) ? "signal " + std::to_string(WTERMSIG(wait_status_))
                                              : "exit code " + std::to_string(WEXITSTATUS(wait_status_));
  return Error{"the process that renders chat templates ended (" + how +
               "): the template breaks it, or needs more memory than the " +
               std::to_string(kRenderMemoryBytes >> 20) + " MiB that it has"};
}

void RenderProcess::end(bool at_once) {
  if (socket_ < 0) return;
  close(std::exchange(socket_, -1));
  // One that is ending by itself is given the moment it needs, so that its own status is seen.
  pid_t done = 0;
  for (int i = 0; i < 1000 && !at_once && done == 0; ++i) {
    done = waitpid(pid_, &wait_status_, WNOHANG);
    if (done == 0) usleep(1000);
  }
  if (done == 0) {
    kill(pid_, SIGKILL);
    while (waitpid(pid_, &wait_status_, 0) < 0 && errno == EINTR) {
    }
  }
  close(std::exchange(lifeline_, -1));
}

}  // namespace firstlight
