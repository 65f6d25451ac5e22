// attention on CPU. A step first writes all its keys and values to the cache, then works on items:
// neighbouring rows of a sequence, some heads of one kv head, one partition of 16 pages. An item's queries
// walk its pages together. The tree of a row and head is fixed by its positions alone: slots of a page, pages
// merged in order into a partition, partitions (cut at absolute positions) merged in order into the result.
#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "base/round_up.h"
#include "ops/attention/kernels.h"
#include "ops/attention/op.h"
#include "ops/scratch.h"

namespace firstlight {
namespace {

// 1024 positions: long enough that merging partitions is noise, short enough to share a long context among
// threads. Part of the arithmetic: changing it changes bits.
constexpr std::int64_t kPartitionPages = 16;
constexpr std::int64_t kPartition = kPartitionPages * kPageTokens;
// Queries (row, head) that meet a page while it is in the second-level cache: with 128 channels a bf16 page
// takes 32 KiB, the queries and their values 64.
constexpr std::int64_t kItemQueries = kAttentionMaxQueries;
// Partials a thread may leave to a merge, in full items: enough that a meeting of the threads is rare.
constexpr std::int64_t kItemsAThread = 8;

constexpr std::int64_t divide_up(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }

/// Neighbouring rows of one sequence that walk the cache together.
struct RowGroup {
  const std::int64_t* pages;
  std::int64_t row, rows;              // of the step
  std::int64_t position;               // of the first row
  std::int64_t begin;                  // first position that a row sees
  std::int64_t partition, partitions;  // that the rows see
  std::int64_t first_item;
};

/// How a step is cut.
struct Cut {
  std::int64_t rows;   // of a group, at most
  std::int64_t heads;  // of an item, at most; all of one kv head
};

struct Item {
  const RowGroup* group;
  std::int64_t unit;  // group and heads: the items of a unit are neighbours, by partition
  std::int64_t kv_head, head, heads;
  std::int64_t partition;
  std::int64_t begin, end;  // positions that its rows see
  [[nodiscard]] std::int64_t queries() const { return group->rows * heads; }
  [[nodiscard]] std::int64_t pairs() const { return queries() * (end - begin); }
  [[nodiscard]] bool last() const { return partition == group->partition + group->partitions - 1; }
  [[nodiscard]] bool alone() const { return group->partitions == 1; }
};

class AttentionCpu final : public Kernel {
 public:
  AttentionCpu(const KernelContext& context, std::vector<float> sinks)
      : kernels_(FL_PICK(context.isa, kAttentionKernels)),
        operands_(context.f32 ? kernels_.f32 : kernels_.bf16),
        heads_(context.node.integer("heads")),
        kv_heads_(context.node.integer("kv_heads")),
        key_(context.node.integer("key_dim")),
        value_(context.node.integer("value_dim")),
        key_steps_(divide_up(key_, operands_.cell_elements)),
        columns_(round_up(value_, 16)),
        window_(context.node.integer("window")),
        scale_(static_cast<float>(context.node.real("scale"))),
        softcap_(static_cast<float>(context.node.real("softcap"))),
        sinks_(std::move(sinks)),
        keys_(context.caches[0]),
        values_(context.caches[1]),
        threads_(context.threads),
        tokens_(context.limits.tokens),
        item_queries_(std::min(kItemQueries, tokens_ * (heads_ / kv_heads_))) {}

  [[nodiscard]] std::int64_t weight_bytes() const override {
    return static_cast<std::int64_t>(sinks_.size() * sizeof(float));
  }
  [[nodiscard]] std::int64_t scratch_bytes() const override { return Scratch(*this, nullptr).bytes; }

  void run(const Step& step, const NodeIo& io, ThreadPool& pool) override {
    check(pool.threads() <= threads_, "attention runs on more threads than its scratch was made for");
    const Scratch scratch(*this, io.scratch);
    write_cache(step, io, pool);
    const Cut cut = choose_cut(step, pool.threads());
    std::int64_t groups = 0;
    const std::int64_t items =
        each_group(step, cut, [&](const RowGroup& group) { scratch.groups[groups++] = group; });
    const std::int64_t slots = scratch.slots(*this, cut);
    for (std::int64_t i = 0; i * slots < items; ++i) {
      const Wave wave{{scratch.groups, static_cast<std::size_t>(groups)},
                      cut,
                      i,
                      i * slots,
                      std::min(items, (i + 1) * slots)};
      run_wave(step, io, scratch, wave, pool);
    }
  }

 private:
  /// Items [begin, end), which have a slot of the scratch each.
  struct Wave {
    std::span<const RowGroup> groups;  // of the step
    Cut cut;
    std::int64_t number;
    std::int64_t begin, end;
  };

  struct Scratch {
    Scratch(const AttentionCpu& op, std::uint8_t* base) {
      ScratchCarver carve(base);
      groups = carve.take<RowGroup>(op.tokens_);
      partial_floats = kItemsAThread * op.threads_ * op.partial_floats(op.item_queries_);
      partials = carve.take<float>(partial_floats);
      carry = carve.take<float>(2 * op.partial_floats(op.item_queries_));
      query_bytes = op.item_queries_ * op.packed_bytes();
      queries = carve.take<std::byte>(query_bytes * op.threads_);
      bytes = carve.used();
    }
    /// Items of a wave.
    [[nodiscard]] std::int64_t slots(const AttentionCpu& op, Cut cut) const {
      return partial_floats / op.partial_floats(std::max<std::int64_t>(1, cut.rows * cut.heads));
    }
    RowGroup* groups;    // [tokens]
    float* partials;     // a wave's items
    float* carry;        // two: the total of a unit that a wave leaves unfinished, in turn
    std::byte* queries;  // a thread: an item's, packed
    std::int64_t partial_floats, query_bytes, bytes;
  };

  [[nodiscard]] std::int64_t packed_bytes() const { return round_up(key_steps_ * operands_.query_bytes, 64); }
  /// Values and sums start on a cache line.
  [[nodiscard]] std::int64_t partial_floats(std::int64_t queries) const {
    return queries * (columns_ + kAttentionSumLanes) + round_up(queries, 16);
  }
  [[nodiscard]] AttentionPartial partial_at(float* base, std::int64_t queries) const {
    float* sums = base + queries * columns_;
    return {base, sums, sums + queries * kAttentionSumLanes};
  }
  [[nodiscard]] std::int64_t units_of_a_group(Cut cut) const {
    return kv_heads_ * divide_up(heads_ / kv_heads_, cut.heads);
  }
  /// First position that a row at `position` sees.
  [[nodiscard]] std::int64_t first_seen(std::int64_t position) const {
    return window_ > 0 ? std::max<std::int64_t>(0, position - window_ + 1) : 0;
  }

  // ---- writing ----
  void write_cache(const Step& step, const NodeIo& io, ThreadPool& pool) const {
    pool.run(step.rows() * kv_heads_ * (key_ + value_), [&](int thread) {
      // The slots of a cell share its cache line: threads own cells of keys and columns of values.
      const Range keys = static_range(kv_heads_ * key_steps_, thread, pool.threads());
      const Range vectors = static_range(kv_heads_ * columns_ / 16, thread, pool.threads());
      for (const SequenceRows& s : step.sequences) {
        for (std::int64_t r = 0; r < s.rows;) {
          const std::int64_t slot = (s.position + r) % kPageTokens;
          const std::int64_t count = std::min(s.rows - r, kPageTokens - slot);
          std::uint8_t* page = step.page(s.pages[(s.position + r) / kPageTokens]);
          for (std::int64_t head = 0; head < kv_heads_; ++head) {
            const std::int64_t i = (s.first_row + r) * kv_heads_ + head;
            write_keys(io.in(1) + i * key_, count, keys, keys_of(page, head, slot), head);
            write_values(io.in(2) + i * value_, count, vectors, values_of(page, head), head, slot);
          }
          r += count;
        }
      }
    });
  }

  /// What `all`, a range over the parts of all heads, leaves of those of one.
  static Range of_head(Range all, std::int64_t head, std::int64_t parts) {
    return {std::clamp<std::int64_t>(all.begin - head * parts, 0, parts),
            std::clamp<std::int64_t>(all.end - head * parts, 0, parts)};
  }

  void write_keys(const float* k, std::int64_t rows, Range all, std::byte* cells, std::int64_t head) const {
    const Range steps = of_head(all, head, key_steps_);
    if (steps.begin >= steps.end) return;
    const std::int64_t channel = steps.begin * operands_.cell_elements;
    const std::int64_t end = std::min(key_, steps.end * operands_.cell_elements);
    operands_.store_keys(k + channel, kv_heads_ * key_, rows, end - channel,
                         cells + steps.begin * kPageTokens * kAttentionCellBytes);
  }

  void write_values(const float* v, std::int64_t rows, Range all, std::byte* panels, std::int64_t head,
                    std::int64_t slot) const {
    const Range vectors = of_head(all, head, columns_ / 16);
    for (std::int64_t r = 0; r < rows; ++r) {
      operands_.store_value(v + r * kv_heads_ * value_, value_, 16 * vectors.begin, 16 * vectors.end,
                            slot + r, panels);
    }
  }

  static std::byte* cells_of(std::uint8_t* page, const CachePlace& place, std::int64_t cells) {
    return reinterpret_cast<std::byte*>(page) + place.offset + cells * kAttentionCellBytes;
  }
  [[nodiscard]] std::byte* keys_of(std::uint8_t* page, std::int64_t head, std::int64_t slot = 0) const {
    return cells_of(page, keys_, head * key_steps_ * kPageTokens + slot);
  }
  [[nodiscard]] std::byte* values_of(std::uint8_t* page, std::int64_t head) const {
    return cells_of(page, values_, head * kPageTokens / operands_.cell_elements * columns_);
  }

  // ---- cutting ----
  /// Calls body(group) for the groups of the step in order; returns the number of items.
  template <class Body>
  std::int64_t each_group(const Step& step, Cut cut, const Body& body) const {
    std::int64_t items = 0;
    for (const SequenceRows& s : step.sequences) {
      for (std::int64_t r = 0; r < s.rows; r += cut.rows) {
        const std::int64_t rows = std::min(cut.rows, s.rows - r);
        const std::int64_t position = s.position + r;
        const std::int64_t begin = first_seen(position);
        const std::int64_t partition = begin / kPartition;
        const std::int64_t partitions = (position + rows - 1) / kPartition - partition + 1;
        body(RowGroup{s.pages, s.first_row + r, rows, position, begin, partition, partitions, items});
        items += units_of_a_group(cut) * partitions;
      }
    }
    return items;
  }

  /// Large items use a page best; smaller ones where there would be too few for the threads.
  [[nodiscard]] Cut choose_cut(const Step& step, int threads) const {
    std::int64_t longest = 1;
    for (const SequenceRows& s : step.sequences) longest = std::max(longest, s.rows);
    Cut cut{1, std::min(kItemQueries, heads_ / kv_heads_)};
    cut.rows = std::min(longest, kItemQueries / cut.heads);
    const auto items = [&] { return each_group(step, cut, [](const RowGroup&) {}); };
    while (cut.rows > 1 && items() < 4 * threads) cut.rows = divide_up(cut.rows, 2);
    while (cut.heads > 4 && items() < threads) cut.heads = divide_up(divide_up(cut.heads, 2), 4) * 4;
    return cut;
  }

  /// Calls body(index, item) for the items of a wave in order.
  template <class Body>
  void each_item(const Wave& wave, const Body& body) const {
    const auto starts_behind = [](std::int64_t index, const RowGroup& g) { return index < g.first_item; };
    auto group = std::upper_bound(wave.groups.begin(), wave.groups.end(), wave.begin, starts_behind) - 1;
    for (std::int64_t index = wave.begin; index < wave.end; ++group) {
      const std::int64_t units = units_of_a_group(wave.cut);
      const std::int64_t end = std::min(wave.end, group->first_item + units * group->partitions);
      std::int64_t unit = (index - group->first_item) / group->partitions;
      std::int64_t partition = group->partition + (index - group->first_item) % group->partitions;
      for (; index < end; ++index) {
        Item item = item_of(*group, wave.cut, unit, partition);
        item.unit += (group - wave.groups.begin()) * units;
        body(index, item);
        if (item.last()) ++unit;
        partition = item.last() ? group->partition : partition + 1;
      }
    }
  }

  [[nodiscard]] Item item_of(const RowGroup& group, Cut cut, std::int64_t unit,
                             std::int64_t partition) const {
    const std::int64_t heads_of_kv = heads_ / kv_heads_;
    const std::int64_t chunks = divide_up(heads_of_kv, cut.heads);
    const std::int64_t skipped = unit % chunks * cut.heads;
    return {.group = &group,
            .unit = unit,
            .kv_head = unit / chunks,
            .head = unit / chunks * heads_of_kv + skipped,
            .heads = std::min(cut.heads, heads_of_kv - skipped),
            .partition = partition,
            .begin = std::max(group.begin, partition * kPartition),
            .end = std::min(group.position + group.rows, (partition + 1) * kPartition)};
  }

  // ---- attention ----
  void run_wave(const Step& step, const NodeIo& io, const Scratch& scratch, const Wave& wave,
                ThreadPool& pool) const {
    std::int64_t pairs = 0;
    Range units{INT64_MAX, 0};
    bool merges = false;
    each_item(wave, [&](std::int64_t, const Item& item) {
      pairs += item.pairs();
      units = {std::min(units.begin, item.unit), item.unit + 1};
      merges = merges || !item.alone();
    });
    pool.run(pairs * (key_ + value_), [&](int thread) {
      // Each thread takes neighbours, whose pairs are its share: the middle of an item decides.
      const Range share = static_range(pairs, thread, pool.threads());
      std::int64_t before = 0;
      each_item(wave, [&](std::int64_t index, const Item& item) {
        const std::int64_t middle = before + item.pairs() / 2;
        before += item.pairs();
        if (middle < share.begin || middle >= share.end) return;
        const AttentionPartial partial = partial_of(scratch, wave, index, item);
        attend(step, io, item, partial, scratch.queries + thread * scratch.query_bytes);
        if (item.alone()) finish(io, item, partial);
      });
    });
    if (!merges) return;
    pool.run((wave.end - wave.begin) * partial_floats(wave.cut.rows * wave.cut.heads), [&](int thread) {
      const Range share = static_range(units.end - units.begin, thread, pool.threads());
      merge_units(io, scratch, wave, {units.begin + share.begin, units.begin + share.end});
    });
  }

  [[nodiscard]] AttentionPartial partial_of(const Scratch& scratch, const Wave& wave, std::int64_t index,
                                            const Item& item) const {
    const std::int64_t stride = partial_floats(wave.cut.rows * wave.cut.heads);
    return partial_at(scratch.partials + (index - wave.begin) * stride, item.queries());
  }

  void attend(const Step& step, const NodeIo& io, const Item& item, const AttentionPartial& partial,
              std::byte* packed) const {
    const RowGroup& group = *item.group;
    std::array<AttentionQuery, kItemQueries> queries;
    for (std::int64_t r = 0; r < group.rows; ++r) {
      const float* q = io.in(0) + ((group.row + r) * heads_ + item.head) * key_;
      for (std::int64_t h = 0; h < item.heads; ++h, packed += packed_bytes()) {
        operands_.pack(q + h * key_, key_, packed);
        query(queries, item, r, h).q = packed;
      }
    }
    for (std::int64_t page = item.begin / kPageTokens; page * kPageTokens < item.end; ++page) {
      // The rows that see something of the page are neighbours.
      std::int64_t first = group.rows;
      std::int64_t count = 0;
      for (std::int64_t r = 0; r < group.rows; ++r) {
        const std::int64_t start = std::max(first_seen(group.position + r), item.partition * kPartition);
        const std::int64_t begin = std::max<std::int64_t>(0, start - page * kPageTokens);
        const std::int64_t end = std::min(kPageTokens, group.position + r + 1 - page * kPageTokens);
        if (begin >= end) continue;
        first = std::min(first, r);
        ++count;
        for (std::int64_t h = 0; h < item.heads; ++h) {
          AttentionQuery& to = query(queries, item, r, h);
          to.begin = static_cast<int>(begin);
          to.end = static_cast<int>(end);
          to.first = page == start / kPageTokens;
        }
      }
      const std::int64_t skipped = first * item.heads;
      const std::int64_t next = (page + 1) * kPageTokens < item.end ? page + 1 : page;
      std::uint8_t* at = step.page(group.pages[page]);
      operands_.attend({.keys = keys_of(at, item.kv_head),
                        .values = values_of(at, item.kv_head),
                        .next_keys = keys_of(step.page(group.pages[next]), item.kv_head),
                        .key_steps = key_steps_,
                        .columns = columns_,
                        .queries = queries.data() + skipped,
                        .count = count * item.heads,
                        .scale = scale_,
                        .softcap = softcap_,
                        .running = {partial.values + skipped * columns_,
                                    partial.sum + skipped * kAttentionSumLanes, partial.max + skipped}});
    }
  }

  static AttentionQuery& query(std::array<AttentionQuery, kItemQueries>& queries, const Item& item,
                               std::int64_t row, std::int64_t head) {
    return queries[static_cast<std::size_t>(row * item.heads + head)];
  }

  // ---- merging ----
  /// The items of these units: each unit's partials are merged in order into its first one, or into what the
  /// last wave carried over; then it is finished, or carried over in turn.
  void merge_units(const NodeIo& io, const Scratch& scratch, const Wave& wave, Range units) const {
    AttentionPartial total{};
    each_item(wave, [&](std::int64_t index, const Item& item) {
      if (item.alone() || item.unit < units.begin || item.unit >= units.end) return;
      const AttentionPartial part = partial_of(scratch, wave, index, item);
      if (item.partition == item.group->partition) {
        total = part;
      } else {
        if (index == wave.begin) total = carried(scratch, wave.number, item);
        merge(item, part, total);
      }
      if (item.last()) {
        finish(io, item, total);
      } else if (index == wave.end - 1) {
        std::copy_n(total.values, partial_floats(item.queries()),
                    carried(scratch, wave.number + 1, item).values);
      }
    });
  }

  /// The total of the unit that wave `number` begins amid. Two places in turn: a thread leaves the next one
  /// while another may still read the last.
  [[nodiscard]] AttentionPartial carried(const Scratch& scratch, std::int64_t number,
                                         const Item& item) const {
    return partial_at(scratch.carry + number % 2 * partial_floats(item_queries_), item.queries());
  }

  void merge(const Item& item, const AttentionPartial& part, const AttentionPartial& total) const {
    for (std::int64_t r = 0; r < item.group->rows; ++r) {
      const std::int64_t position = item.group->position + r;
      const std::int64_t first = first_seen(position) / kPartition;
      if (item.partition < first || item.partition > position / kPartition) continue;
      for (std::int64_t i = r * item.heads; i < (r + 1) * item.heads; ++i) {
        kernels_.merge(part, total, i, columns_, item.partition == first);
      }
    }
  }

  void finish(const NodeIo& io, const Item& item, const AttentionPartial& total) const {
    for (std::int64_t r = 0; r < item.group->rows; ++r) {
      for (std::int64_t h = item.head; h < item.head + item.heads; ++h) {
        kernels_.finish(total, r * item.heads + h - item.head, columns_,
                        sinks_.empty() ? nullptr : sinks_.data() + h, value_,
                        io.out() + ((item.group->row + r) * heads_ + h) * value_);
      }
    }
  }

  const AttentionKernels& kernels_;
  const AttentionOperands& operands_;
  std::int64_t heads_, kv_heads_, key_, value_;
  std::int64_t key_steps_;  // cells of a key
  std::int64_t columns_;    // value_ padded to whole vectors
  std::int64_t window_;
  float scale_, softcap_;
  std::vector<float> sinks_;  // [heads] or empty
  CachePlace keys_, values_;
  int threads_;
  std::int64_t tokens_;
  std::int64_t item_queries_;  // of the largest item
};

}  // namespace

Result<std::unique_ptr<Kernel>> make_attention_cpu(const KernelContext& context) {
  std::vector<float> sinks;
  if (context.node.has("sinks")) {
    FL_ASSIGN(sinks, read_all(context.weight("sinks")));
  }
  return std::unique_ptr<Kernel>(std::make_unique<AttentionCpu>(context, std::move(sinks)));
}

}  // namespace firstlight
