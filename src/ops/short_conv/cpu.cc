#include <algorithm>
#include <cstring>
#include <utility>

#include "ops/shares.h"
#include "ops/short_conv/kernels.h"
#include "ops/short_conv/op.h"

namespace firstlight {
namespace {

class ShortConv final : public Kernel {
 public:
  ShortConv(const ShortConvKernels& kernels, CachePlace place, std::int64_t channels,
            std::vector<float> weight)
      : kernels_(kernels),
        place_(place),
        channels_(channels),
        taps_(static_cast<std::int64_t>(weight.size()) / channels),
        weight_(std::move(weight)) {}

  void run(const Step& step, const NodeIo& io, ThreadPool& pool) override {
    const auto conv = place_.dtype == DType::kF32 ? kernels_.f32 : kernels_.bf16;
    // Threads own channels, in blocks of a cache line.
    constexpr std::int64_t kBlock = 16;
    const std::int64_t blocks = (channels_ + kBlock - 1) / kBlock;
    each_share(pool, blocks, kBlock * step.rows(), [&](std::int64_t begin, std::int64_t end) {
      for (const SequenceRows& s : step.sequences) {
        if (s.rows == 0) continue;
        conv({.x = io.in(0) + s.first_row * channels_,
              .y = io.out() + s.first_row * channels_,
              .rows = s.rows,
              .channels = channels_,
              .begin = begin * kBlock,
              .end = std::min(end * kBlock, channels_),
              .weight = weight_.data(),
              .taps = taps_,
              .history = s.state + place_.offset,
              .fresh = s.position == 0});
      }
    });
  }
  [[nodiscard]] std::int64_t weight_bytes() const override {
    return static_cast<std::int64_t>(weight_.size() * sizeof(float));
  }

  [[nodiscard]] std::vector<StateValue> state_values() const override {
    return {{"conv", {taps_ - 1, channels_}}};
  }
  void export_state(std::size_t /*i*/, const std::uint8_t* state, std::int64_t position,
                    float* out) const override {
    const std::int64_t count = (taps_ - 1) * channels_;
    for (std::int64_t e = 0; e < count; ++e) {
      const std::uint8_t* at =
          state + place_.offset + e * static_cast<std::int64_t>(dtype_size(place_.dtype));
      if (position == 0) {
        out[e] = 0;
      } else if (place_.dtype == DType::kF32) {
        std::memcpy(out + e, at, sizeof(float));
      } else {
        std::uint16_t half;
        std::memcpy(&half, at, sizeof half);
        out[e] = bf16_to_f32(half);
      }
    }
  }

 private:
  const ShortConvKernels& kernels_;
  CachePlace place_;
  std::int64_t channels_;
  std::int64_t taps_;
  std::vector<float> weight_;  // [taps, channels]
};

}  // namespace

Result<std::unique_ptr<Kernel>> make_short_conv_cpu(const KernelContext& context) {
  FL_ASSIGN(const std::vector<float> rows, read_all(context.weight("weight")));  // [channels, taps]
  const auto channels = static_cast<std::size_t>(context.node.input("x").width());
  const std::size_t taps = rows.size() / channels;
  std::vector<float> columns(rows.size());
  for (std::size_t c = 0; c < channels; ++c) {
    for (std::size_t j = 0; j < taps; ++j) columns[j * channels + c] = rows[c * taps + j];
  }
  return std::unique_ptr<Kernel>(
      std::make_unique<ShortConv>(FL_PICK(context.isa, kShortConvKernels), context.caches.front(),
                                  static_cast<std::int64_t>(channels), std::move(columns)));
}

}  // namespace firstlight
