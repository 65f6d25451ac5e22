// mla on CPU: writes the step's rows to the cache, then computes rows of prompts in the expanded form where
// that is asked for (expanded.h), all others in the absorbed one. Absorbed rows run in blocks of three phases
// with a barrier after each:
//   1. u_h = W_UK[h]^T q_h, followed by the query's k_pe channels
//   2. attention over the cache (absorbed.h), m_h into the place of u_h
//   3. o_h = W_UV[h] m_h
#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "device/cpu/gemm.h"
#include "ops/linear/pack_weight.h"
#include "ops/mla/absorbed.h"
#include "ops/mla/expanded.h"
#include "ops/mla/op.h"
#include "ops/mla/setup.h"
#include "ops/mla/weights.h"
#include "ops/scratch.h"

namespace firstlight {

MlaSetup::MlaSetup(const KernelContext& context)
    : kernels(FL_PICK(context.isa, kMlaKernels)),
      operands(context.f32 ? kernels.f32 : kernels.bf16),
      gemm(firstlight::kernels(context.isa)),
      arithmetic(context.f32 ? Arithmetic::kF32 : Arithmetic::kBF16),
      wide(context.settings.wide_activations),
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

  Status pack_weights(const KernelContext& context) {
    const WeightSource& kv_b = context.weight("kv_b");
    const bool bytes =
        !context.f32 && held_in_bytes(context.settings.weights, kv_b.stored_form()) == HeldAs::kInt8;
    FL_ASSIGN(weights_, pack_kv_b(kv_b, setup_, bytes, expanded_.has_value(), context.store));
    return {};
  }

  [[nodiscard]] std::int64_t weight_bytes() const override { return weights_.bytes(); }
  [[nodiscard]] std::int64_t read_bytes(bool generated) const override {
    return expanded_ && !generated ? weights_.expanded_bytes() : weights_.absorbed_bytes();
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
        expanded_->run(step, first, weights_.up_k, weights_.up_v, io.in(0) + first.first_row * width,
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
      scaled_floats = op.weights_.key_scales.empty() ? 0 : op.block_rows_ * s.nope;
      scaled = carve.take<float>(scaled_floats * s.threads);
      attention = carve.take<std::uint8_t>(op.absorbed_.scratch_bytes());
      bytes = carve.used();
    }
    MlaRow* rows;             // [block_rows]
    float* u;                 // [block_rows, heads, padded]
    std::uint8_t* gemm;       // a thread: prepared X
    float* scaled;            // a thread: a head's queries [block_rows, nope] times its scales of keys
    std::uint8_t* attention;  // of absorbed_
    std::int64_t gemm_bytes, scaled_floats, bytes;
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

  /// The thread's share of a product with a part a head: head h reads x_of_head(h) and writes y + h y_head.
  void multiply(const PackedMatrix& w, GemmArgs args, const auto& x_of_head, std::int64_t y_head, int thread,
                int threads) const {
    const Range share = static_range(w.panels(), thread, threads);
    float* y = args.y;
    args.w = &w;
    args.arithmetic = setup_.arithmetic;
    args.wide_x = setup_.wide;
    for (std::int64_t h = 0; h < setup_.heads; ++h) {
      const PackedPart& part = w.parts()[static_cast<std::size_t>(h)];
      const std::int64_t begin = std::max(part.panels.begin, share.begin);
      const std::int64_t end = std::min(part.panels.end, share.end);
      if (begin >= end) continue;
      args.x = x_of_head(h);
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
    const float* const q = io.in(0) + first * s.heads * width;
    const std::vector<float>& scales = weights_.key_scales;
    GemmArgs args;
    args.ldx = scales.empty() ? s.heads * width : s.nope;
    args.m = rows;
    args.y = scratch.u;
    args.ldy = s.heads * s.padded;
    args.scratch = scratch.gemm + thread * scratch.gemm_bytes;
    const auto x_of_head = [&](std::int64_t h) -> const float* {
      if (scales.empty()) return q + h * width;
      float* const scaled = scratch.scaled + thread * scratch.scaled_floats;
      const float* const of_head = scales.data() + h * s.nope;
      for (std::int64_t r = 0; r < rows; ++r) {
        std::transform(of_head, of_head + s.nope, q + (r * s.heads + h) * width, scaled + r * s.nope,
                       std::multiplies<>());
      }
      return scaled;
    };
    multiply(weights_.absorb_k, args, x_of_head, s.padded, thread, threads);
    const Range share = static_range(rows * s.heads, thread, threads);
    for (std::int64_t i = share.begin; i < share.end; ++i) {
      float* rotated = scratch.u + i * s.padded + s.latent;
      std::copy_n(q + i * width + s.nope, s.rope, rotated);
      std::fill_n(rotated + s.rope, s.padded - s.latent - s.rope, 0.0F);
    }
  }

  /// o_h = W_UV[h] m_h
  void project(const NodeIo& io, const Scratch& scratch, std::int64_t first, std::int64_t rows, int thread,
               int threads) const {
    const MlaSetup& s = setup_;
    GemmArgs args;
    args.ldx = s.heads * s.padded;
    args.m = rows;
    args.y = io.out() + first * s.heads * s.v;
    args.ldy = s.heads * s.v;
    args.scratch = scratch.gemm + thread * scratch.gemm_bytes;
    multiply(
        weights_.up_v, args, [&](std::int64_t h) { return scratch.u + h * s.padded; }, s.v, thread, threads);
  }

  MlaSetup setup_;
  std::int64_t chosen_width_;
  std::int64_t block_rows_;
  MlaAbsorbed absorbed_;
  std::optional<MlaExpanded> expanded_;
  MlaWeights weights_;
};

}  // namespace

Result<std::unique_ptr<Kernel>> make_mla_cpu(const KernelContext& context) {
  auto kernel = std::make_unique<MlaCpu>(context);
  FL_TRY(kernel->pack_weights(context));
  return std::unique_ptr<Kernel>(std::move(kernel));
}

}  // namespace firstlight
