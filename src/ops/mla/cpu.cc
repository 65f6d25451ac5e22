// mla on CPU. A step runs in blocks of rows; a block in three phases with a barrier after each:
//   1. write the rows' [c | k_pe] to the cache; u_h = W_UK[h]^T q_h; append the query's k_pe channels
//   2. attention over the cache, m_h into the place of u_h
//   3. o_h = W_UV[h] m_h
// The tree of a row and head is fixed by its list of positions alone: tiles of 64 entries, merged in order
// into partitions of 16 tiles, merged in order into the result.
#include <algorithm>
#include <array>
#include <cstring>

#include "device/cpu/gemm.h"
#include "ops/mla/kernels.h"
#include "ops/mla/op.h"
#include "ops/scratch.h"

namespace firstlight {
namespace {

constexpr std::int64_t kTileRows = kPageTokens;
// 1024 positions: long enough that a partition's merge is noise, short enough to share a long context
// among threads. Part of the arithmetic: changing it changes bits.
constexpr std::int64_t kPartitionTiles = 16;
// Four tiles of the GEMM; bounds the scratch whatever the step's size.
constexpr std::int64_t kBlockRows = 48;
// Queries (row, head) that meet a tile while it is in the second-level cache: with 512 columns their
// values take 128 KiB, the widened tile takes 144 KiB.
constexpr std::int64_t kItemQueries = 32;
constexpr std::int64_t kItemHeads = 16;
constexpr std::int64_t kItemRows = 4;

constexpr std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

/// Where a row of the block stands.
struct RowPlace {
  const std::int64_t* pages;
  std::int64_t position;
  std::int64_t length;         // entries it attends
  const std::int32_t* chosen;  // [length] or null: 0 .. length - 1
};
/// Rows of the block that walk the cache together: neighbours in one sequence, or one row.
struct RowGroup {
  std::int64_t first, rows;
};

class MlaCpu final : public Kernel {
 public:
  explicit MlaCpu(const KernelContext& context)
      : kernels_(FL_PICK(context.isa, kMlaKernels)),
        gemm_(kernels(context.isa)),
        arithmetic_(context.f32 ? Arithmetic::kF32 : Arithmetic::kBF16),
        heads_(context.node.integer("heads")),
        nope_(context.node.integer("nope_dim")),
        rope_(context.node.integer("rope_dim")),
        v_(context.node.integer("v_dim")),
        latent_(context.node.input("c").width()),
        padded_(round_up(latent_ + rope_, 16)),
        columns_(round_up(latent_, 16)),
        chosen_width_(context.node.has("chosen") ? context.node.input("chosen").width() : 0),
        scale_(static_cast<float>(context.node.real("scale"))),
        place_(context.caches[0]),
        threads_(context.threads),
        block_rows_(std::min(kBlockRows, context.limits.tokens)) {}

  Status pack_weights(const WeightSource& kv_b) {
    FL_ASSIGN(const std::vector<float> w, read_all(kv_b));  // [heads, nope + v, latent]
    const Packing dtype = packed_as(kv_b.exact_in_bf16() ? DType::kBF16 : DType::kF32, arithmetic_);
    std::vector<RowSource> up_k;  // a head: [latent, nope], the transpose of W_UK
    std::vector<RowSource> up_v;  // a head: [v, latent]
    for (std::int64_t h = 0; h < heads_; ++h) {
      const float* head = w.data() + h * (nope_ + v_) * latent_;
      up_k.push_back({latent_, [this, head](std::int64_t row, float* out) {
                        for (std::int64_t i = 0; i < nope_; ++i) out[i] = head[i * latent_ + row];
                      }});
      up_v.push_back({v_, [this, head](std::int64_t row, float* out) {
                        std::copy_n(head + (nope_ + row) * latent_, latent_, out);
                      }});
    }
    FL_ASSIGN(up_k_, pack(up_k, nope_, dtype));
    FL_ASSIGN(up_v_, pack(up_v, latent_, dtype));
    return {};
  }

  [[nodiscard]] std::int64_t weight_bytes() const override { return up_k_.bytes() + up_v_.bytes(); }
  [[nodiscard]] std::int64_t scratch_bytes() const override { return Scratch(*this, nullptr).bytes; }

  void run(const Step& step, const NodeIo& io, ThreadPool& pool) override {
    check(pool.threads() <= threads_, "mla runs on more threads than its scratch was made for");
    const Scratch scratch(*this, io.scratch);
    std::int64_t sequence = 0;
    for (std::int64_t first = 0; first < step.rows(); first += block_rows_) {
      const std::int64_t rows = std::min(block_rows_, step.rows() - first);
      sequence = place_rows(step, io, first, rows, sequence, scratch.places);
      const bool few = rows * heads_ < 4 * kItemQueries * pool.threads();
      const std::int64_t groups = group_rows(scratch.places, rows, few, scratch.groups);
      const std::int64_t projection = rows * heads_ * (nope_ + v_) * latent_;
      pool.run(projection, [&](int thread) {
        write_rows(step, io, scratch, first, static_range(rows, thread, pool.threads()));
        absorb(io, scratch, first, rows, thread, pool.threads());
      });
      const std::int64_t heads = item_heads(groups, groups < rows, pool.threads());
      const std::int64_t head_groups = (heads_ + heads - 1) / heads;
      std::int64_t seen = 0;
      for (std::int64_t r = 0; r < rows; ++r) seen += scratch.places[r].length;
      pool.run(seen * heads_ * 2 * latent_, [&](int thread) {
        // Dealt in turn: later rows of a prompt see more and cost more.
        for (std::int64_t i = thread; i < groups * head_groups; i += pool.threads()) {
          const std::int64_t head = i % head_groups * heads;
          attend(step, scratch, scratch.groups[i / head_groups], head, std::min(heads, heads_ - head),
                 thread);
        }
      });
      pool.run(projection, [&](int thread) { project(io, scratch, first, rows, thread, pool.threads()); });
    }
  }

 private:
  struct Scratch {
    Scratch(const MlaCpu& op, std::uint8_t* base) {
      ScratchCarver carve(base);
      places = carve.take<RowPlace>(op.block_rows_);
      groups = carve.take<RowGroup>(op.block_rows_);
      u = carve.take<float>(op.block_rows_ * op.heads_ * op.padded_);
      gemm_bytes = round_up(
          static_cast<std::int64_t>(gemm_scratch_bytes(op.block_rows_, std::max(op.nope_, op.latent_))), 64);
      gemm = carve.take<std::uint8_t>(gemm_bytes * op.threads_);
      tile_floats = kTileRows * op.padded_;
      tile = carve.take<float>(op.arithmetic_ == Arithmetic::kBF16 ? tile_floats * op.threads_ : 0);
      partial_floats = 2 * kItemQueries * (op.columns_ + 2);
      partials = carve.take<float>(partial_floats * op.threads_);
      bytes = carve.used();
    }
    RowPlace* places;    // [block_rows]
    RowGroup* groups;    // [block_rows]
    float* u;            // [block_rows, heads, padded]
    std::uint8_t* gemm;  // a thread: prepared X
    float* tile;         // a thread: [64, padded], bf16 caches only
    float* partials;     // a thread: partition and total of kItemQueries queries
    std::int64_t gemm_bytes, tile_floats, partial_floats, bytes;
  };

  [[nodiscard]] std::uint8_t* row_of(const Step& step, const std::int64_t* pages,
                                     std::int64_t position) const {
    const auto bytes = static_cast<std::int64_t>(dtype_size(place_.dtype));
    return step.page(pages[position / kPageTokens]) + place_.offset +
           position % kPageTokens * padded_ * bytes;
  }

  /// Fills places[0, rows) for the rows from `first`; returns the sequence to go on with.
  std::int64_t place_rows(const Step& step, const NodeIo& io, std::int64_t first, std::int64_t rows,
                          std::int64_t sequence, RowPlace* places) const {
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto at = [&](std::int64_t i) -> const SequenceRows& {
        return step.sequences[static_cast<std::size_t>(i)];
      };
      while (first + r >= at(sequence).first_row + at(sequence).rows) ++sequence;
      const SequenceRows& s = at(sequence);
      const std::int64_t position = s.position + first + r - s.first_row;
      places[r] = {s.pages, position, position + 1, nullptr};
      if (chosen_width_ > 0) {
        places[r].chosen = io.in_i32(rope_ > 0 ? 3 : 2) + (first + r) * chosen_width_;
        // The list ends at its padding; nothing that is not a visible position is ever followed.
        std::int64_t n = 0;
        while (n < chosen_width_ && places[r].chosen[n] >= 0 && places[r].chosen[n] <= position) ++n;
        places[r].length = n;
      }
    }
    return sequence;
  }

  /// Dense neighbours share a walk over the cache unless there are too `few` rows to keep threads busy.
  std::int64_t group_rows(const RowPlace* places, std::int64_t rows, bool few, RowGroup* groups) const {
    std::int64_t count = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      const bool joins = !few && chosen_width_ == 0 && count > 0 && groups[count - 1].rows < kItemRows &&
                         places[r].pages == places[r - 1].pages &&
                         places[r].position == places[r - 1].position + 1;
      if (joins) {
        ++groups[count - 1].rows;
      } else {
        groups[count++] = {r, 1};
      }
    }
    return count;
  }

  /// Heads of an item, a multiple of the kernels' block: the largest among those that leave the busiest
  /// thread the least work.
  [[nodiscard]] std::int64_t item_heads(std::int64_t groups, bool shared, int threads) const {
    std::int64_t best = 0;
    std::int64_t best_work = INT64_MAX;
    for (std::int64_t heads = shared ? kItemQueries / kItemRows : kItemHeads; heads >= 4; heads -= 4) {
      const std::int64_t items = groups * ((heads_ + heads - 1) / heads);
      const std::int64_t work = (items + threads - 1) / threads * heads;
      if (work < best_work) {
        best = heads;
        best_work = work;
      }
    }
    return best;
  }

  void write_rows(const Step& step, const NodeIo& io, const Scratch& scratch, std::int64_t first,
                  Range rows) const {
    for (std::int64_t r = rows.begin; r < rows.end; ++r) {
      const RowPlace& place = scratch.places[r];
      const float* c = io.in(1) + (first + r) * latent_;
      const float* k_pe = rope_ > 0 ? io.in(2) + (first + r) * rope_ : nullptr;
      std::uint8_t* row = row_of(step, place.pages, place.position);
      const std::int64_t padding = padded_ - latent_ - rope_;
      if (place_.dtype == DType::kF32) {
        auto* to = reinterpret_cast<float*>(row);
        std::copy_n(c, latent_, to);
        std::copy_n(k_pe, rope_, to + latent_);
        std::fill_n(to + latent_ + rope_, padding, 0.0F);
      } else {
        auto* to = reinterpret_cast<std::uint16_t*>(row);
        kernels_.round_row(c, latent_, to);
        kernels_.round_row(k_pe, rope_, to + latent_);
        std::fill_n(to + latent_ + rope_, padding, std::uint16_t{0});
      }
      for (std::int64_t h = 0; h < heads_; ++h) {
        const float* q_pe = io.in(0) + ((first + r) * heads_ + h) * (nope_ + rope_) + nope_;
        float* to = scratch.u + (r * heads_ + h) * padded_ + latent_;
        std::copy_n(q_pe, rope_, to);
        std::fill_n(to + rope_, padding, 0.0F);
      }
    }
  }

  /// The thread's share of a product with a part a head: head h reads x + h x_head and writes y + h y_head.
  void multiply(const PackedMatrix& w, GemmArgs args, std::int64_t x_head, std::int64_t y_head, int thread,
                int threads) const {
    const Range share = static_range(w.panels(), thread, threads);
    const float* x = args.x;
    float* y = args.y;
    args.w = &w;
    args.arithmetic = arithmetic_;
    for (std::int64_t h = 0; h < heads_; ++h) {
      const PackedPart& part = w.parts()[static_cast<std::size_t>(h)];
      const std::int64_t begin = std::max(part.panels.begin, share.begin);
      const std::int64_t end = std::min(part.panels.end, share.end);
      if (begin >= end) continue;
      args.x = x + h * x_head;
      args.y = y + h * y_head;
      args.first_column = part.columns.begin;
      prepare_x(gemm_, args, 0, gemm_tiles(args.m));
      gemm_panels(gemm_, args, begin, end);
    }
  }

  /// u_h = W_UK[h]^T q_nope
  void absorb(const NodeIo& io, const Scratch& scratch, std::int64_t first, std::int64_t rows, int thread,
              int threads) const {
    const std::int64_t width = nope_ + rope_;
    GemmArgs args;
    args.x = io.in(0) + first * heads_ * width;
    args.ldx = heads_ * width;
    args.m = rows;
    args.y = scratch.u;
    args.ldy = heads_ * padded_;
    args.scratch = scratch.gemm + thread * scratch.gemm_bytes;
    multiply(up_k_, args, width, padded_, thread, threads);
  }

  /// o_h = W_UV[h] m_h
  void project(const NodeIo& io, const Scratch& scratch, std::int64_t first, std::int64_t rows, int thread,
               int threads) const {
    GemmArgs args;
    args.x = scratch.u;
    args.ldx = heads_ * padded_;
    args.m = rows;
    args.y = io.out() + first * heads_ * v_;
    args.ldy = heads_ * v_;
    args.scratch = scratch.gemm + thread * scratch.gemm_bytes;
    multiply(up_v_, args, padded_, v_, thread, threads);
  }

  /// Entries [64 tile, 64 tile + count) of a row's list as f32 rows; the last ones repeat up to a multiple
  /// of 4.
  void gather(const Step& step, const RowPlace& place, std::int64_t tile, std::int64_t count, float* widened,
              std::array<const float*, kTileRows>& rows) const {
    std::array<const std::uint8_t*, kTileRows> stored;
    for (std::int64_t e = 0; e < count; ++e) {
      const std::int64_t entry = tile * kTileRows + e;
      stored[static_cast<std::size_t>(e)] =
          row_of(step, place.pages, place.chosen != nullptr ? place.chosen[entry] : entry);
    }
    if (place_.dtype == DType::kBF16) {
      std::array<const std::uint16_t*, kTileRows> narrow;
      for (std::size_t e = 0; e < static_cast<std::size_t>(count); ++e) {
        narrow[e] = reinterpret_cast<const std::uint16_t*>(stored[e]);
        rows[e] = widened + static_cast<std::int64_t>(e) * padded_;
      }
      kernels_.widen_rows(narrow.data(), count, padded_, widened);
    } else {
      for (std::size_t e = 0; e < static_cast<std::size_t>(count); ++e) {
        rows[e] = reinterpret_cast<const float*>(stored[e]);
      }
    }
    for (std::int64_t e = count; e < round_up(count, 4); ++e) rows[static_cast<std::size_t>(e)] = rows[0];
  }

  /// Heads [head, head + heads) of a group's rows over all their tiles.
  void attend(const Step& step, const Scratch& scratch, RowGroup group, std::int64_t head, std::int64_t heads,
              int thread) const {
    float* memory = scratch.partials + thread * scratch.partial_floats;
    const auto partial = [&](std::int64_t which, std::int64_t row) {
      float* base = memory + which * kItemQueries * (columns_ + 2) + row * heads * (columns_ + 2);
      return MlaPartial{base + heads * columns_, base + heads * (columns_ + 1), base};
    };
    const RowPlace* places = scratch.places + group.first;
    const RowPlace& longest = places[group.rows - 1];
    float* widened = scratch.tile + thread * scratch.tile_floats;
    std::array<const float*, kTileRows> rows;
    for (std::int64_t tile = 0; tile * kTileRows < longest.length; ++tile) {
      gather(step, longest, tile, std::min(kTileRows, longest.length - tile * kTileRows), widened, rows);
      for (std::int64_t r = 0; r < group.rows; ++r) {
        const std::int64_t left = places[r].length - tile * kTileRows;
        if (left <= 0) continue;
        const std::int64_t in_partition = tile % kPartitionTiles;
        kernels_.attend_tile({.rows = rows.data(),
                              .count = std::min(kTileRows, left),
                              .query = scratch.u + ((group.first + r) * heads_ + head) * padded_,
                              .heads = heads,
                              .padded = padded_,
                              .columns = columns_,
                              .scale = scale_,
                              .first = in_partition == 0,
                              .running = partial(0, r)});
        if (in_partition == kPartitionTiles - 1 || left <= kTileRows) {
          kernels_.merge(partial(0, r), partial(1, r), heads, columns_, tile < kPartitionTiles);
        }
      }
    }
    for (std::int64_t r = 0; r < group.rows; ++r) {
      float* out = scratch.u + ((group.first + r) * heads_ + head) * padded_;
      if (places[r].length == 0) {
        std::fill_n(out, heads * padded_, 0.0F);
      } else {
        kernels_.finish(partial(1, r), heads, columns_, out, padded_);
      }
    }
  }

  const MlaKernels& kernels_;
  const CpuKernels& gemm_;
  Arithmetic arithmetic_;
  std::int64_t heads_, nope_, rope_, v_, latent_;
  std::int64_t padded_;   // elements of a cached row
  std::int64_t columns_;  // elements of a row that the values are computed for
  std::int64_t chosen_width_;
  float scale_;
  CachePlace place_;
  int threads_;
  std::int64_t block_rows_;
  PackedMatrix up_k_;  // heads parts [latent, nope]
  PackedMatrix up_v_;  // heads parts [v, latent]
};

}  // namespace

Result<std::unique_ptr<Kernel>> make_mla_cpu(const KernelContext& context) {
  auto kernel = std::make_unique<MlaCpu>(context);
  FL_TRY(kernel->pack_weights(context.weight("kv_b")));
  return std::unique_ptr<Kernel>(std::move(kernel));
}

}  // namespace firstlight
