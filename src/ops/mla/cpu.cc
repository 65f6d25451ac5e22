// mla on CPU: writes the step's rows to the cache, then computes rows of prompts in the expanded form where
// that is asked for (expanded.h), all others in the absorbed one. Absorbed rows run in blocks of three phases
// with a barrier after each:
//   1. u_h = W_UK[h]^T q_h, followed by the query's k_pe channels
//   2. attention over the cache (absorbed.h), m_h into the place of u_h
//   3. o_h = W_UV[h] m_h
#include <algorithm>
#include <optional>
#include <utility>

#include "device/cpu/gemm.h"
#include "ops/mla/absorbed.h"
#include "ops/mla/expanded.h"
#include "ops/mla/op.h"
#include "ops/mla/setup.h"
#include "ops/scratch.h"

namespace firstlight {

MlaSetup::MlaSetup(const KernelContext& context)
    : kernels(FL_PICK(context.isa, kMlaKernels)),
      operands(context.f32 ? kernels.f32 : kernels.bf16),
      gemm(firstlight::kernels(context.isa)),
      arithmetic(context.f32 ? Arithmetic::kF32 : Arithmetic::kBF16),
      heads(context.node.integer("heads")),
      nope(context.node.integer("nope_dim")),
      rope(context.node.integer("rope_dim")),
      v(context.node.integer("v_dim")),
      latent(context.node.input("c").width()),
      padded(round_up(latent + rope, 16)),
      scale(static_cast<float>(context.node.real("scale"))),
      place(context.caches[0]),
      threads(context.threads),
      step_rows(context.limits.tokens) {}

namespace {

/// Rows of a block: enough for the two products to run near their peak, few enough that the absorbed queries
/// of many heads stay within some megabytes.
std::int64_t block_rows(const MlaSetup& setup) {
  constexpr std::int64_t kQueries = 3072;
  return std::min(setup.step_rows, std::clamp<std::int64_t>(kQueries / setup.heads, 48, 192));
}

/// A head of kv_b [heads, nope + v, latent] at a time.
class HeadReader {
 public:
  HeadReader(const WeightSource& kv_b, const MlaSetup& setup) : kv_b_(kv_b), setup_(setup) {}

  /// Rows of W_UK of a head [nope, latent]; zeros after a failure, which `status` keeps.
  const float* up_k(std::int64_t head) {
    if (head != head_) {
      rows_.assign(static_cast<std::size_t>(setup_.nope * setup_.latent), 0.0F);
      read(head * (setup_.nope + setup_.v), setup_.nope, rows_.data());
      head_ = head;
    }
    return rows_.data();
  }
  void read(std::int64_t row, std::int64_t count, float* out) {
    Status read = kv_b_.read_rows(row, count, out);
    if (read.ok()) return;
    std::fill_n(out, count * setup_.latent, 0.0F);
    if (status_.ok()) status_ = std::move(read);
  }
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  const WeightSource& kv_b_;
  const MlaSetup& setup_;
  std::vector<float> rows_;
  std::int64_t head_ = -1;
  Status status_;
};

class MlaCpu final : public Kernel {
 public:
  explicit MlaCpu(const KernelContext& context)
      : setup_(context),
        chosen_width_(context.node.has("chosen") ? context.node.input("chosen").width() : 0),
        block_rows_(block_rows(setup_)),
        absorbed_(setup_, block_rows_) {
    // A choice of few positions would not pay for the expansion of all.
    if (context.settings.expanded_prefill && chosen_width_ == 0) expanded_.emplace(setup_);
  }

  Status pack_weights(const WeightSource& kv_b, PackedStore* store) {
    const MlaSetup& s = setup_;
    HeadReader reader(kv_b, s);
    const Packing packing = packed_as(kv_b.exact_in_bf16() ? DType::kBF16 : DType::kF32, s.arithmetic);
    const auto rows_of = [&](std::int64_t skipped, std::int64_t count) {
      std::vector<RowSource> heads;
      for (std::int64_t h = 0; h < s.heads; ++h) {
        const std::int64_t first = h * (s.nope + s.v) + skipped;
        heads.push_back(
            {count, [&reader, first](std::int64_t row, float* out) { reader.read(first + row, 1, out); }});
      }
      return heads;
    };
    std::vector<RowSource> transposed;
    for (std::int64_t h = 0; h < s.heads; ++h) {
      transposed.push_back({s.latent, [&reader, &s, h](std::int64_t row, float* out) {
                              const float* head = reader.up_k(h);
                              for (std::int64_t i = 0; i < s.nope; ++i) out[i] = head[i * s.latent + row];
                            }});
    }
    // Heads, and the widths of both kinds of rows in one: with the sizes they say which rows these are.
    const auto as = [&](const char* what) {
      return StoredAs{
          .store = store,
          .rows = kv_b.name() + " " + what + " of " + std::to_string(s.nope) + " + " + std::to_string(s.v)};
    };
    FL_ASSIGN(absorb_k_, pack(transposed, s.nope, packing, nullptr, as("transposed keys")));
    FL_ASSIGN(up_v_, pack(rows_of(s.nope, s.v), s.latent, packing, nullptr, as("values")));
    if (expanded_) {
      FL_ASSIGN(up_k_, pack(rows_of(0, s.nope), s.latent, packing, nullptr, as("keys")));
    }
    kv_b.release();
    return reader.status();
  }

  [[nodiscard]] std::int64_t weight_bytes() const override {
    return absorb_k_.bytes() + up_v_.bytes() + (expanded_ ? up_k_.bytes() : 0);
  }
  [[nodiscard]] std::int64_t scratch_bytes() const override {
    const std::int64_t absorbed = Scratch(*this, nullptr).bytes;
    return expanded_ ? std::max(absorbed, expanded_->scratch_bytes() * setup_.threads) : absorbed;
  }

  void run(const Step& step, const NodeIo& io, ThreadPool& pool) override {
    check(pool.threads() <= setup_.threads, "mla runs on more threads than its scratch was made for");
    pool.run(step.rows() * setup_.padded, [&](int thread) { write_rows(step, io, thread, pool.threads()); });
    std::size_t begin = 0;
    while (begin < step.sequences.size()) {
      const SequenceRows& first = step.sequences[begin];
      std::size_t end = begin + 1;
      if (expanded_ && !first.generated) {
        const std::int64_t width = setup_.heads * (setup_.nope + setup_.rope);
        expanded_->run(step, first, up_k_, up_v_, io.in(0) + first.first_row * width,
                       io.out() + first.first_row * setup_.heads * setup_.v, io.scratch, pool);
      } else {
        while (end < step.sequences.size() && (!expanded_ || step.sequences[end].generated)) ++end;
        run_absorbed(step, step.sequences.subspan(begin, end - begin), io, pool);
      }
      begin = end;
    }
  }

 private:
  struct Scratch {
    Scratch(const MlaCpu& op, std::uint8_t* base) {
      const MlaSetup& s = op.setup_;
      ScratchCarver carve(base);
      rows = carve.take<MlaRow>(op.block_rows_);
      u = carve.take<float>(op.block_rows_ * s.heads * s.padded);
      gemm_bytes = round_up(
          static_cast<std::int64_t>(gemm_scratch_bytes(op.block_rows_, std::max(s.nope, s.latent))), 64);
      gemm = carve.take<std::uint8_t>(gemm_bytes * s.threads);
      attention = carve.take<std::uint8_t>(op.absorbed_.scratch_bytes());
      bytes = carve.used();
    }
    MlaRow* rows;             // [block_rows]
    float* u;                 // [block_rows, heads, padded]
    std::uint8_t* gemm;       // a thread: prepared X
    std::uint8_t* attention;  // of absorbed_
    std::int64_t gemm_bytes, bytes;
  };

  /// The thread's share of the step's [c | k_pe], to the cache.
  void write_rows(const Step& step, const NodeIo& io, int thread, int threads) const {
    const MlaSetup& s = setup_;
    const Range share = static_range(step.rows(), thread, threads);
    for (const SequenceRows& sequence : step.sequences) {
      const std::int64_t begin = std::max(share.begin, sequence.first_row);
      const std::int64_t end = std::min(share.end, sequence.first_row + sequence.rows);
      for (std::int64_t r = begin; r < end; ++r) {
        const float* c = io.in(1) + r * s.latent;
        const float* k_pe = s.rope > 0 ? io.in(2) + r * s.rope : nullptr;
        std::byte* row = s.cached_row(step, sequence.pages, sequence.position + r - sequence.first_row);
        const std::int64_t padding = s.padded - s.latent - s.rope;
        if (s.place.dtype == DType::kF32) {
          auto* to = reinterpret_cast<float*>(row);
          std::copy_n(c, s.latent, to);
          std::copy_n(k_pe, s.rope, to + s.latent);
          std::fill_n(to + s.latent + s.rope, padding, 0.0F);
        } else {
          auto* to = reinterpret_cast<std::uint16_t*>(row);
          s.kernels.store_bf16_row(c, s.latent, to);
          s.kernels.store_bf16_row(k_pe, s.rope, to + s.latent);
          std::fill_n(to + s.latent + s.rope, padding, std::uint16_t{0});
        }
      }
    }
  }

  /// Neighbours in the step, in blocks of rows.
  void run_absorbed(const Step& step, std::span<const SequenceRows> sequences, const NodeIo& io,
                    ThreadPool& pool) const {
    const Scratch scratch(*this, io.scratch);
    const std::int64_t end = sequences.back().first_row + sequences.back().rows;
    std::size_t sequence = 0;
    for (std::int64_t first = sequences.front().first_row; first < end; first += block_rows_) {
      const std::int64_t rows = std::min(block_rows_, end - first);
      for (std::int64_t r = 0; r < rows; ++r) {
        while (first + r >= sequences[sequence].first_row + sequences[sequence].rows) ++sequence;
        scratch.rows[r] = place(sequences[sequence], io, first + r);
      }
      const std::int64_t work = rows * setup_.heads * (setup_.nope + setup_.v) * setup_.latent;
      pool.run(work, [&](int thread) { absorb(io, scratch, first, rows, thread, pool.threads()); });
      absorbed_.run(step, scratch.rows, rows, scratch.u, scratch.attention, pool);
      pool.run(work, [&](int thread) { project(io, scratch, first, rows, thread, pool.threads()); });
    }
  }

  [[nodiscard]] MlaRow place(const SequenceRows& sequence, const NodeIo& io, std::int64_t row) const {
    const std::int64_t position = sequence.position + row - sequence.first_row;
    if (chosen_width_ == 0) return {sequence.pages, position, position + 1, nullptr};
    const std::int32_t* chosen = io.in_i32(setup_.rope > 0 ? 3 : 2) + row * chosen_width_;
    // The list ends at its padding; nothing that is not a visible position is ever followed.
    std::int64_t n = 0;
    while (n < chosen_width_ && chosen[n] >= 0 && chosen[n] <= position) ++n;
    return {sequence.pages, position, n, chosen};
  }

  /// The thread's share of a product with a part a head: head h reads x + h x_head and writes y + h y_head.
  void multiply(const PackedMatrix& w, GemmArgs args, std::int64_t x_head, std::int64_t y_head, int thread,
                int threads) const {
    const Range share = static_range(w.panels(), thread, threads);
    const float* x = args.x;
    float* y = args.y;
    args.w = &w;
    args.arithmetic = setup_.arithmetic;
    for (std::int64_t h = 0; h < setup_.heads; ++h) {
      const PackedPart& part = w.parts()[static_cast<std::size_t>(h)];
      const std::int64_t begin = std::max(part.panels.begin, share.begin);
      const std::int64_t end = std::min(part.panels.end, share.end);
      if (begin >= end) continue;
      args.x = x + h * x_head;
      args.y = y + h * y_head;
      args.first_column = part.columns.begin;
      prepare_x(setup_.gemm, args, 0, gemm_tiles(args.m));
      gemm_panels(setup_.gemm, args, begin, end);
    }
  }

  /// u_h = W_UK[h]^T q_nope, then q_pe and zeros.
  void absorb(const NodeIo& io, const Scratch& scratch, std::int64_t first, std::int64_t rows, int thread,
              int threads) const {
    const MlaSetup& s = setup_;
    const std::int64_t width = s.nope + s.rope;
    GemmArgs args;
    args.x = io.in(0) + first * s.heads * width;
    args.ldx = s.heads * width;
    args.m = rows;
    args.y = scratch.u;
    args.ldy = s.heads * s.padded;
    args.scratch = scratch.gemm + thread * scratch.gemm_bytes;
    multiply(absorb_k_, args, width, s.padded, thread, threads);
    const Range share = static_range(rows * s.heads, thread, threads);
    for (std::int64_t i = share.begin; i < share.end; ++i) {
      float* rotated = scratch.u + i * s.padded + s.latent;
      std::copy_n(args.x + i * width + s.nope, s.rope, rotated);
      std::fill_n(rotated + s.rope, s.padded - s.latent - s.rope, 0.0F);
    }
  }

  /// o_h = W_UV[h] m_h
  void project(const NodeIo& io, const Scratch& scratch, std::int64_t first, std::int64_t rows, int thread,
               int threads) const {
    const MlaSetup& s = setup_;
    GemmArgs args;
    args.x = scratch.u;
    args.ldx = s.heads * s.padded;
    args.m = rows;
    args.y = io.out() + first * s.heads * s.v;
    args.ldy = s.heads * s.v;
    args.scratch = scratch.gemm + thread * scratch.gemm_bytes;
    multiply(up_v_, args, s.padded, s.v, thread, threads);
  }

  MlaSetup setup_;
  std::int64_t chosen_width_;
  std::int64_t block_rows_;
  MlaAbsorbed absorbed_;
  std::optional<MlaExpanded> expanded_;
  PackedMatrix absorb_k_;  // heads parts [latent, nope], the transpose of W_UK
  PackedMatrix up_k_;      // heads parts [nope, latent]; expanded form only
  PackedMatrix up_v_;      // heads parts [v, latent]
};

}  // namespace

Result<std::unique_ptr<Kernel>> make_mla_cpu(const KernelContext& context) {
  auto kernel = std::make_unique<MlaCpu>(context);
  FL_TRY(kernel->pack_weights(context.weight("kv_b"), context.store));
  return std::unique_ptr<Kernel>(std::move(kernel));
}

}  // namespace firstlight
