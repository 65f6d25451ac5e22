#include "text/bpe.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <utility>

namespace firstlight {
namespace {

constexpr std::uint32_t kNone = MergeTable::kNone;
constexpr std::int32_t kGone = -1;

// Up to here a quadratic scan over a small array is faster than the heap, and from there on the queue, whose
// making costs as much as the heap's work for so many symbols.
constexpr std::size_t kScanLimit = 48;
constexpr std::size_t kQueueFrom = 4096;

}  // namespace

void BpeMerger::merge(std::vector<std::int32_t>& symbols) {
  if (symbols.size() <= kScanLimit) return merge_few(symbols);
  make_nodes(symbols);
  if (symbols.size() >= kQueueFrom) merge_by_queue();
  merge_by_heap();
  symbols.clear();
  for (std::uint32_t i = 0; i != nodes_.size(); i = nodes_[i].next) symbols.push_back(nodes_[i].id);
}

void BpeMerger::merge_few(std::vector<std::int32_t>& symbols) {
  if (symbols.size() < 2) return;
  std::size_t pairs = symbols.size() - 1;
  ranks_.resize(pairs);
  for (std::size_t i = 0; i < pairs; ++i) ranks_[i] = table_->find(symbols[i], symbols[i + 1]);
  while (pairs != 0) {
    const auto best = std::min_element(ranks_.begin(), ranks_.begin() + static_cast<std::ptrdiff_t>(pairs));
    if (*best == kNone) break;
    const auto i = static_cast<std::size_t>(best - ranks_.begin());
    symbols[i] = table_->result(*best);
    std::copy(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 2,
              symbols.begin() + static_cast<std::ptrdiff_t>(pairs) + 1,
              symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    std::copy(best + 1, ranks_.begin() + static_cast<std::ptrdiff_t>(pairs), best);
    --pairs;
    if (i != 0) ranks_[i - 1] = table_->find(symbols[i - 1], symbols[i]);
    if (i != pairs) ranks_[i] = table_->find(symbols[i], symbols[i + 1]);
  }
  symbols.resize(pairs + 1);
}

std::uint32_t BpeMerger::rank_at(std::uint32_t position) const {
  const std::uint32_t next = nodes_[position].next;
  return next == nodes_.size() ? kNone : table_->find(nodes_[position].id, nodes_[next].id);
}

void BpeMerger::make_nodes(const std::vector<std::int32_t>& symbols) {
  nodes_.clear();
  nodes_.reserve(symbols.size());
  for (const std::int32_t id : symbols) {
    const auto i = static_cast<std::uint32_t>(nodes_.size());
    nodes_.push_back({id, kNone, i - 1, i + 1});
  }
  for (std::uint32_t i = 0; i + 1 < nodes_.size(); ++i) {
    nodes_[i].rank = table_->find(nodes_[i].id, nodes_[i + 1].id);
  }
}

/// Joins the node with the next one, and gives `push` the new ranks to its left and right.
template <class Push>
void BpeMerger::join(std::uint32_t position, const Push& push) {
  Node& node = nodes_[position];
  Node& gone = nodes_[node.next];
  node.id = table_->result(node.rank);
  node.next = gone.next;
  gone.id = kGone;
  if (node.next != nodes_.size()) nodes_[node.next].previous = position;
  node.rank = rank_at(position);
  if (node.rank != kNone) push(node.rank, position);
  if (position == 0) return;
  Node& before = nodes_[node.previous];
  before.rank = rank_at(node.previous);
  if (before.rank != kNone) push(before.rank, node.previous);
}

// In both: an entry is out of date when its node is gone or has another rank now. A pair never comes back, as
// tokens only grow.

/// Brings the queue's positions of a batch's own rank into what the batch still has to do.
void BpeMerger::refill(Batch& batch) {
  std::vector<std::uint32_t> more;
  queue_->take(batch.rank, more);
  const auto begin = batch.positions.begin() + static_cast<std::ptrdiff_t>(batch.done);
  std::vector<std::uint32_t> all;
  all.reserve(more.size() + batch.positions.size() - batch.done);
  std::merge(begin, batch.positions.end(), more.begin(), more.end(), std::back_inserter(all));
  batch.positions = std::move(all);
  batch.done = 0;
}

/// Takes positions rank by rank. A join can enable one of lower rank, which then comes first: the rest of the
/// batch waits below it on a stack.
void BpeMerger::merge_by_queue() {
  if (!queue_) queue_.emplace(table_->rank_limit());
  RankQueue& queue = *queue_;
  for (std::uint32_t i = 0; i + 1 < nodes_.size(); ++i) {
    if (nodes_[i].rank != kNone) queue.push(nodes_[i].rank, i);
  }
  std::size_t moved = 0;
  std::vector<Batch> batches;
  for (;;) {
    const std::uint32_t lowest = queue.lowest();
    if (batches.empty() && lowest == kNone) break;
    if (batches.empty() || lowest < batches.back().rank) {
      batches.push_back({lowest, 0, {}});
      queue.take(lowest, batches.back().positions);
    } else if (lowest == batches.back().rank) {
      moved += batches.back().positions.size() - batches.back().done;
      // A vocabulary that makes this happen all the time would take quadratic time; the heap never does.
      if (moved > nodes_.size()) break;
      refill(batches.back());
    }
    Batch& batch = batches.back();
    bool lower = false;
    const auto push = [&](std::uint32_t rank, std::uint32_t position) {
      queue.push(rank, position);
      lower |= rank < batch.rank;
    };
    while (batch.done < batch.positions.size() && !lower) {
      const std::uint32_t position = batch.positions[batch.done++];
      const Node& node = nodes_[position];
      if (node.id != kGone && node.rank == batch.rank) join(position, push);
    }
    if (batch.done == batch.positions.size()) batches.pop_back();
  }
  for (std::uint32_t rank = queue.lowest(); rank != kNone; rank = queue.lowest())
    queue.take(rank, positions_);
  queue.rewind();
}

void BpeMerger::merge_by_heap() {
  const auto later = std::greater<>();
  heap_.clear();
  for (std::uint32_t i = 0; i != nodes_.size(); i = nodes_[i].next) {
    if (nodes_[i].rank != kNone) heap_.push_back((std::uint64_t{nodes_[i].rank} << 32) | i);
  }
  std::make_heap(heap_.begin(), heap_.end(), later);
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const auto rank = static_cast<std::uint32_t>(heap_.back() >> 32);
    const auto position = static_cast<std::uint32_t>(heap_.back());
    heap_.pop_back();
    if (nodes_[position].id == kGone || nodes_[position].rank != rank) continue;
    join(position, [&](std::uint32_t r, std::uint32_t p) {
      heap_.push_back((std::uint64_t{r} << 32) | p);
      std::push_heap(heap_.begin(), heap_.end(), later);
    });
  }
}

}  // namespace firstlight
