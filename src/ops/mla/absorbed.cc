#include "ops/mla/absorbed.h"

#include <array>

#include "ops/scratch.h"

namespace firstlight {
namespace {

/// Fewer heads at a time would waste too much of a vector.
constexpr std::int64_t kFewHeads = 8;

}  // namespace

MlaAbsorbed::MlaAbsorbed(const MlaSetup& setup, std::int64_t block_rows)
    : setup_(setup),
      block_rows_(block_rows),
      stride_(round_up(setup.latent, kMlaColumnBlock)),
      slots_(std::min<std::int64_t>(8 * setup.threads, std::max(64, 2 * setup.threads))),
      slot_floats_(partial_floats(std::min(kMlaMaxQueries, block_rows * setup.heads), stride_)) {}

std::int64_t MlaAbsorbed::most_walks() const {
  return block_rows_ * ((setup_.heads + kFewHeads - 1) / kFewHeads);
}

MlaAbsorbed::Scratch::Scratch(const MlaAbsorbed& op, std::uint8_t* base) {
  ScratchCarver carve(base);
  const std::int64_t threads = op.setup_.threads;
  walks = carve.take<Walk>(op.most_walks());
  items = carve.take<Item>(op.slots_);
  query_bytes = kMlaMaxQueries * op.setup_.padded * op.setup_.operands.element_bytes;
  queries = carve.take<std::byte>(query_bytes * threads);
  tile_bytes =
      op.setup_.operands.stored ? 0 : kMlaTileRows * op.setup_.padded * op.setup_.operands.element_bytes;
  tile = carve.take<std::byte>(tile_bytes * threads);
  partials = carve.take<float>(2 * op.slot_floats_ * threads);
  slots = carve.take<float>(2 * op.slot_floats_ * op.slots_);
  bytes = carve.used();
}

void MlaAbsorbed::run(const Step& step, const MlaRow* rows, std::int64_t count, float* u,
                      std::uint8_t* scratch, ThreadPool& pool) const {
  Block block{step, rows, u, Scratch(*this, scratch), 0};
  plan(block, count, pool.threads());
  for (std::int64_t r = 0; r < count; ++r) {
    if (rows[r].length > 0) continue;
    for (std::int64_t h = 0; h < setup_.heads; ++h) {
      std::fill_n(u + (r * setup_.heads + h) * setup_.padded, setup_.latent, 0.0F);
    }
  }
  if (whole_walks_fit(block, pool.threads())) {
    run_whole(block, pool);
  } else {
    run_shared(block, pool);
  }
}

/// Walks of up to `group` neighbours and `heads` heads; rows that attend nothing have none. Returns their
/// partitions.
std::int64_t MlaAbsorbed::make_walks(Block& block, std::int64_t count, std::int64_t heads,
                                     std::int64_t group) const {
  const MlaRow* rows = block.rows;
  block.walks = 0;
  std::int64_t items = 0;
  for (std::int64_t r = 0; r < count;) {
    std::int64_t together = 1;
    while (together < group && r + together < count && rows[r].chosen == nullptr &&
           rows[r + together].pages == rows[r].pages &&
           rows[r + together].position == rows[r].position + together) {
      ++together;
    }
    for (std::int64_t h = 0; h < setup_.heads && rows[r].length > 0; h += heads) {
      const Walk walk{r, together, h, std::min(heads, setup_.heads - h), rows[r + together - 1].length};
      items += walk.partitions();
      block.scratch.walks[block.walks++] = walk;
    }
    r += together;
  }
  return items;
}

void MlaAbsorbed::plan(Block& block, std::int64_t count, int threads) const {
  const std::int64_t parts = (setup_.heads + kMlaMaxQueries - 1) / kMlaMaxQueries;
  std::int64_t heads = (setup_.heads + parts - 1) / parts;
  const std::int64_t items = make_walks(block, count, heads, kMlaMaxQueries / heads);
  if (items == 0 || items >= threads || heads <= kFewHeads) return;
  const std::int64_t shares = (threads + items - 1) / items;
  heads = std::max(kFewHeads, (heads + shares - 1) / shares);
  make_walks(block, count, heads, kMlaMaxQueries / heads);
}

/// Whether threads that take whole walks in turn are about equally busy.
bool MlaAbsorbed::whole_walks_fit(const Block& block, int threads) const {
  std::int64_t total = 0;
  std::int64_t busiest = 0;
  for (std::int64_t t = 0; t < threads; ++t) {
    std::int64_t cost = 0;
    for (std::int64_t i = t; i < block.walks; i += threads) cost += block.scratch.walks[i].cost();
    total += cost;
    busiest = std::max(busiest, cost);
  }
  return busiest * threads <= total + total / 8;
}

MlaAbsorbed::Hand MlaAbsorbed::hand(const Block& block, int thread) const {
  const Scratch& s = block.scratch;
  return {s.queries + thread * s.query_bytes, s.tile + thread * s.tile_bytes, nullptr};
}

void MlaAbsorbed::run_whole(const Block& block, ThreadPool& pool) const {
  std::int64_t cost = 0;
  for (std::int64_t i = 0; i < block.walks; ++i) cost += block.scratch.walks[i].cost();
  pool.run(cost * 2 * setup_.latent, [&](int thread) {
    Hand at_hand = hand(block, thread);
    float* memory = block.scratch.partials + thread * 2 * slot_floats_;
    for (std::int64_t i = thread; i < block.walks; i += pool.threads()) {
      const Walk& walk = block.scratch.walks[i];
      const MlaPartial total = partial_at(memory, walk.lanes());
      const MlaPartial part = partial_at(memory + slot_floats_, walk.lanes());
      for (std::int64_t p = 0; p < walk.partitions(); ++p) {
        const bool last = p + 1 == walk.partitions();
        const Item after{last ? i + pool.threads() : i, last ? 0 : p + 1};
        const MlaPartial& out = p == 0 ? total : part;
        attend(block, {i, p}, after.walk < block.walks ? &after : nullptr, out, at_hand);
        if (p > 0) setup_.kernels.merge(part, total, 0, walk.lanes(), stride_, false);
      }
      finish(block, walk, total, {0, walk.lanes()});
    }
  });
}

/// Threads share partitions, some of which are computed before they are merged in order.
void MlaAbsorbed::run_shared(const Block& block, ThreadPool& pool) const {
  const Scratch& s = block.scratch;
  const auto slot = [&](std::int64_t i) {
    return partial_at(s.slots + i * slot_floats_, s.walks[s.items[i].walk].lanes());
  };
  // A walk that is not complete is the next round's first, so no two of a round have the same total.
  const auto total = [&](std::int64_t walk) {
    return partial_at(s.slots + (slots_ + walk % slots_) * slot_floats_, s.walks[walk].lanes());
  };
  Item next{0, 0};
  while (next.walk < block.walks) {
    std::int64_t count = 0;
    std::int64_t cost = 0;
    while (count < slots_ && next.walk < block.walks) {
      s.items[count++] = next;
      cost += s.walks[next.walk].lanes() * kMlaPartitionRows;
      if (++next.partition == s.walks[next.walk].partitions()) next = {next.walk + 1, 0};
    }
    pool.run(cost * 2 * setup_.latent, [&](int thread) {
      Hand at_hand = hand(block, thread);
      const Range share = static_range(count, thread, pool.threads());
      for (std::int64_t i = share.begin; i < share.end; ++i) {
        attend(block, s.items[i], i + 1 < share.end ? &s.items[i + 1] : nullptr, slot(i), at_hand);
      }
    });
    pool.run(cost, [&](int thread) {
      for (std::int64_t i = 0; i < count; ++i) {
        const auto [w, partition] = s.items[i];
        const Range lanes = static_range(s.walks[w].lanes(), thread, pool.threads());
        setup_.kernels.merge(slot(i), total(w), lanes.begin, lanes.end, stride_, partition == 0);
        if (partition + 1 == s.walks[w].partitions()) finish(block, s.walks[w], total(w), lanes);
      }
    });
  }
}

/// The cached rows of a row's entries [first, first + count), in a table that holds them.
void MlaAbsorbed::locate(const Step& step, const MlaRow& row, std::int64_t first, std::int64_t count,
                         std::span<const std::byte*> table) const {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t entry = first + i;
    table[static_cast<std::size_t>(i)] =
        setup_.cached_row(step, row.pages, row.chosen != nullptr ? row.chosen[entry] : entry);
  }
  repeat_last(table, count);
}

void MlaAbsorbed::attend(const Block& block, const Item& item, const Item* after, const MlaPartial& out,
                         Hand& at_hand) const {
  const MlaOperands& operands = setup_.operands;
  const Walk& walk = block.scratch.walks[item.walk];
  const std::int64_t lanes = walk.lanes();
  if (at_hand.packed != &walk) {
    std::array<const float*, kMlaMaxQueries> queries;
    for (std::int64_t i = 0; i < lanes; ++i) {
      queries[static_cast<std::size_t>(i)] =
          block.u + ((walk.row + i / walk.heads) * setup_.heads + walk.head + i % walk.heads) * setup_.padded;
    }
    operands.pack(queries.data(), lanes, setup_.padded, setup_.padded, at_hand.queries);
    at_hand.packed = &walk;
  }
  const MlaRow& longest = block.rows[walk.row + walk.rows - 1];
  const std::int64_t begin = item.partition * kMlaPartitionRows;
  const std::int64_t rows = std::min(kMlaPartitionRows, longest.length - begin);
  MlaRowTable<kMlaPartitionRows> stored;
  locate(block.step, longest, begin, rows, stored);
  MlaRowTable<kMlaTileRows> next;
  if (after != nullptr) {
    const Walk& walk_after = block.scratch.walks[after->walk];
    const MlaRow& row_after = block.rows[walk_after.row + walk_after.rows - 1];
    const std::int64_t first = after->partition * kMlaPartitionRows;
    locate(block.step, row_after, first, std::min(kMlaTileRows, row_after.length - first), next);
  } else {
    std::copy_n(stored.begin(), next.size(), next.begin());  // nothing, but rows that may be fetched
  }
  // Operands that must be made are made for a tile at a time, which then is near.
  MlaRowTable<kMlaTileRows> converted;
  for (std::int64_t i = 0; i < kMlaTileRows && !operands.stored; ++i) {
    converted[static_cast<std::size_t>(i)] = at_hand.tile + i * setup_.padded * operands.element_bytes;
  }
  const std::int64_t together = operands.stored ? kMlaPartitionRows : kMlaTileRows;
  for (std::int64_t first = 0; first < rows; first += together) {
    const std::int64_t count = std::min(together, rows - first);
    alignas(64) std::array<float, kMlaMaxQueries> visible;
    for (std::int64_t i = 0; i < round_up(lanes, 16); ++i) {
      const std::int64_t row = walk.row + std::min(i, lanes - 1) / walk.heads;
      visible[static_cast<std::size_t>(i)] =
          static_cast<float>(std::clamp<std::int64_t>(block.rows[row].length - begin - first, 0, count));
    }
    const std::byte* const* keys = stored.data() + first;
    if (!operands.stored) {
      operands.convert(keys, count, setup_.padded, at_hand.tile);
      repeat_last(converted, count);
      keys = converted.data();
    }
    const bool more = first + count < rows;
    operands.attend({.keys = keys,
                     .values = keys,
                     .count = count,
                     .key_width = setup_.padded,
                     .value_width = setup_.padded,
                     .columns = setup_.latent,
                     .queries = at_hand.queries,
                     .lanes = lanes,
                     .visible = visible.data(),
                     .scale = setup_.scale,
                     .first = first == 0,
                     .running = out,
                     .value_stride = stride_,
                     .next = more ? stored.data() + first + count : next.data(),
                     .next_bytes = setup_.cached_bytes()});
  }
}

void MlaAbsorbed::finish(const Block& block, const Walk& walk, const MlaPartial& total, Range lanes) const {
  std::array<float*, kMlaMaxQueries> out;
  for (std::int64_t i = lanes.begin; i < lanes.end; ++i) {
    out[static_cast<std::size_t>(i - lanes.begin)] =
        block.u + ((walk.row + i / walk.heads) * setup_.heads + walk.head + i % walk.heads) * setup_.padded;
  }
  setup_.operands.finish(partial_from(total, lanes.begin, stride_), lanes.end - lanes.begin, setup_.latent,
                         stride_, out.data());
}

}  // namespace firstlight
