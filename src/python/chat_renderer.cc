#include "python/chat_renderer.h"

#include <unistd.h>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

namespace firstlight {
namespace {

/// Idle processes, for the next renderings. They cost 25 MB each and start in a tenth of a second, so they
/// are kept, and there are few.
class Pool {
 public:
  /// Waits while all are busy.
  Result<std::unique_ptr<RenderProcess>> take() {
    {
      std::unique_lock lock(mutex_);
      if (owner_ != getpid()) {  // this is a fork: the processes are the parent's
        for (auto& process : idle_) static_cast<void>(process.release());
        idle_.clear();
        busy_ = 0;
        owner_ = getpid();
      }
      changed_.wait(lock, [this] { return busy_ < kMost; });
      ++busy_;
      if (!idle_.empty()) {
        auto process = std::move(idle_.back());
        idle_.pop_back();
        return process;
      }
    }
    auto started = RenderProcess::start();
    if (!started) give_back(nullptr);
    return started;
  }

  void give_back(std::unique_ptr<RenderProcess> process) {
    {
      const std::lock_guard lock(mutex_);
      --busy_;
      if (process != nullptr && process->usable()) idle_.push_back(std::move(process));
    }
    changed_.notify_one();
  }

 private:
  static constexpr int kMost = 4;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<RenderProcess>> idle_;
  int busy_ = 0;
  pid_t owner_ = getpid();
};

/// Kept until the program ends; the processes notice that.
Pool& pool() {
  static auto* kept = new Pool;
  return *kept;
}

/// The reply, or what it says of a failure.
Result<std::string> exchange(std::span<const std::string_view> fields, std::chrono::milliseconds time_limit,
                             RenderFailure& failure) {
  FL_ASSIGN(auto process, pool().take());
  auto reply = process->exchange(fields, time_limit);
  pool().give_back(std::move(process));
  using Kind = RenderFailure::Kind;
  if (!reply) {
    failure = {Kind::kLimit, reply.error().message};
    return reply;
  }
  const char kind = reply->front();
  if (kind == '0' || kind == '1') return reply;
  failure = {kind == '?' ? Kind::kRefused : kind == '~' ? Kind::kLimit : Kind::kFailed, reply->substr(1)};
  return Error{(kind == '?' ? "the chat template refuses these messages: " : "") + failure.message};
}

/// The parts of a reply, as worker.py packs them.
Result<Prompt> unpack(std::string_view reply) {
  Prompt prompt;
  prompt.separate = reply.front() == '1';
  reply.remove_prefix(1);
  while (!reply.empty()) {
    std::uint64_t size = 0;
    constexpr std::size_t kHead = 1 + sizeof size;
    if (reply.size() < kHead) return Error{"the process that renders chat templates answers nonsense"};
    const bool literal = reply.front() != 0;
    std::memcpy(&size, reply.data() + 1, sizeof size);
    reply.remove_prefix(kHead);
    if (reply.size() < size) return Error{"the process that renders chat templates answers nonsense"};
    prompt.parts.push_back({std::string(reply.substr(0, size)), literal});
    reply.remove_prefix(size);
  }
  return prompt;
}

}  // namespace

Result<Prompt> render_chat(const ChatRequest& request, std::chrono::milliseconds time_limit,
                           RenderFailure* failure) {
  const std::array fields{std::string_view("render"), request.template_text,  request.format,
                          request.row_json,           request.variables_json, request.controls_json};
  RenderFailure unasked;
  FL_ASSIGN(const std::string reply, exchange(fields, time_limit, failure != nullptr ? *failure : unasked));
  return unpack(reply);
}

Result<std::string> find_chat_format(std::string_view config_json, bool has_template) {
  const std::array fields{std::string_view("find"), std::string_view(has_template ? "jinja" : ""),
                          std::string_view(),       config_json,
                          std::string_view(),       std::string_view()};
  RenderFailure unasked;
  FL_ASSIGN(const std::string reply, exchange(fields, kRenderTime, unasked));
  FL_ASSIGN(const Prompt found, unpack(reply));
  return found.text();
}

}  // namespace firstlight
