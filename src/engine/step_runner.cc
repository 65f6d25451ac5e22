#include "engine/step_runner.h"

namespace firstlight {

StepRunner::StepRunner(Model& model) : model_(&model) {
  const auto rows = static_cast<std::size_t>(model.options().step_tokens);
  tokens_.reserve(rows);
  sampled_.reserve(rows);
  sequences_.reserve(static_cast<std::size_t>(model.options().sequences));
}

void StepRunner::run(std::span<const Piece> pieces, Sampled sampled,
                     std::span<const std::int32_t* const> forced) {
  tokens_.clear();
  sequences_.clear();
  sampled_.clear();
  const CachePool& cache = model_->cache();
  for (const Piece& piece : pieces) {
    const auto first = static_cast<std::int64_t>(tokens_.size());
    const auto rows = static_cast<std::int64_t>(piece.tokens.size());
    check(rows > 0, "a piece of a step is empty");
    sequences_.push_back({.first_row = first,
                          .rows = rows,
                          .position = piece.position,
                          .pages = piece.cache->pages.data(),
                          .state = cache.state(*piece.cache),
                          .generated = piece.origin == Origin::kGenerated});
    tokens_.insert(tokens_.end(), piece.tokens.begin(), piece.tokens.end());
    for (std::int64_t r = sampled == Sampled::kAll ? 0 : rows - 1; sampled != Sampled::kNone && r < rows;
         ++r) {
      sampled_.push_back(static_cast<std::int32_t>(first + r));
    }
  }
  model_->program().run({.tokens = tokens_,
                         .sequences = sequences_,
                         .sampled_rows = sampled_,
                         .page_base = cache.page_base(),
                         .page_bytes = cache.layout().page_bytes,
                         .forced = forced},
                        model_->pool(), seconds_);
}

std::span<const float> StepRunner::logits(std::int64_t r) const {
  const Program& program = model_->program();
  const auto* all = static_cast<const float*>(program.value(program.graph().logits()));
  const auto vocab = static_cast<std::size_t>(model_->vocab());
  return {all + static_cast<std::size_t>(r) * vocab, vocab};
}

}  // namespace firstlight
