#include "engine/session.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

namespace firstlight {

Result<std::unique_ptr<Session>> Session::create(Model& model) {
  std::unique_ptr<Session> session(new Session(model));
  FL_TRY(model.cache().open(session->cache_));
  return session;
}

Session::~Session() { model_->cache().close(cache_); }

std::int64_t Session::capacity() const { return model_->context(); }

Status Session::append(std::span<const std::int32_t> tokens, const Progress& progress, Origin origin) {
  if (tokens.empty()) return {};
  const auto total = static_cast<std::int64_t>(tokens.size());
  const auto before = static_cast<std::int64_t>(tokens_.size());
  if (before + total > capacity()) {
    return Error{"the context is full: " + std::to_string(before) + " tokens are in it, " +
                 std::to_string(total) + " more do not fit into " + std::to_string(capacity())};
  }
  FL_TRY(model_->check_tokens(tokens));
  FL_TRY(model_->cache().grow(cache_, before + total));
  logits_.clear();
  for (std::int64_t done = 0; done < total;) {
    if (progress && !progress(done, total)) break;
    const std::int64_t rows = std::min(model_->options().step_tokens, total - done);
    const bool last = done + rows == total;
    const Piece piece{
        .cache = &cache_,
        .position = before + done,
        .tokens = tokens.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(rows)),
        .origin = origin};
    runner_.run({&piece, 1}, last ? Sampled::kLast : Sampled::kNone);
    tokens_.insert(tokens_.end(), piece.tokens.begin(), piece.tokens.end());
    done += rows;
    if (last) {
      const std::span<const float> row = runner_.logits(0);
      logits_.assign(row.begin(), row.end());
      // An image's placeholder can't be run, so it must not be chosen.
      const std::int32_t image = model_->options().image_token_id;
      if (image >= 0 && image < model_->vocab()) {
        logits_[static_cast<std::size_t>(image)] = -std::numeric_limits<float>::infinity();
      }
      if (progress) progress(done, total);
    }
  }
  return {};
}

std::int64_t Session::keep_common_prefix(std::span<const std::int32_t> wanted) {
  const std::size_t limit = std::min(tokens_.size(), wanted.size());
  std::size_t common = 0;
  while (common < limit && tokens_[common] == wanted[common]) ++common;
  // Everything in the cache is wanted, and something is left to append: nothing to take back.
  if (common == tokens_.size() && common < wanted.size()) return static_cast<std::int64_t>(common);
  if (model_->cache().layout().state_bytes == 0) {  // no recurrent state: any position will do
    const Mark here{
        .position = static_cast<std::int64_t>(std::min(common, wanted.empty() ? 0 : wanted.size() - 1)),
        .state = {}};
    std::erase_if(marks_, [&](const Mark& m) { return m.position > here.position; });
    rewind(&here);
    return here.position;
  }
  while (!marks_.empty() && (marks_.back().position > static_cast<std::int64_t>(common) ||
                             marks_.back().position >= static_cast<std::int64_t>(wanted.size()))) {
    marks_.pop_back();
  }
  rewind(marks_.empty() ? nullptr : &marks_.back());
  return static_cast<std::int64_t>(tokens_.size());
}

void Session::mark() {
  if (!marks_.empty() && marks_.back().position == static_cast<std::int64_t>(tokens_.size())) return;
  const std::uint8_t* state = model_->cache().state(cache_);
  marks_.push_back({.position = static_cast<std::int64_t>(tokens_.size()),
                    .state = {state, state + model_->cache().layout().state_bytes}});
  // Recurrent state is large (hundreds of MB for the big models): a few turns back is what a chat needs.
  constexpr std::size_t kMarks = 4;
  if (marks_.size() > kMarks) marks_.erase(marks_.begin());
}

void Session::clear() {
  marks_.clear();
  rewind(nullptr);
}

void Session::rewind(const Mark* mark) {
  const std::int64_t position = mark == nullptr ? 0 : mark->position;
  std::uint8_t* state = model_->cache().state(cache_);
  const auto bytes = static_cast<std::size_t>(model_->cache().layout().state_bytes);
  if (mark != nullptr) {
    std::memcpy(state, mark->state.data(), bytes);
  } else if (bytes > 0) {
    std::memset(state, 0, bytes);
  }
  model_->cache().truncate(cache_, position);
  tokens_.resize(static_cast<std::size_t>(position));
  logits_.clear();
}

}  // namespace firstlight
