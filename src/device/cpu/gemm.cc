#include "device/cpu/gemm.h"

#include <algorithm>

#include "base/result.h"

namespace firstlight {

namespace {

GemmKind kind_of(const GemmArgs& args) {
  switch (args.w->packing()) {
    case Packing::kF32:
      return GemmKind::kF32F32;
    case Packing::kInt8:
      return GemmKind::kInt8;
    case Packing::kInt4:
      return GemmKind::kInt4;
    case Packing::kMxfp4:
      return GemmKind::kMxfp4;
    case Packing::kBF16:
      break;
  }
  return args.arithmetic == Arithmetic::kF32 ? GemmKind::kF32Bf16 : GemmKind::kBf16;
}

GemmCall call_of(const GemmArgs& a) {
  return {.kind = kind_of(a),
          .m = a.m,
          .k = a.w->k(),
          .x = a.x,
          .ldx = a.ldx,
          .x_rows = a.x_rows,
          .panels = a.w->panel(0),
          .panel_bytes = a.w->panel_bytes(),
          .spans = a.w->spans().data(),
          .y = a.y,
          .ldy = a.ldy,
          .y_rows = a.y_rows,
          .first_column = a.first_column,
          .scratch = static_cast<std::byte*>(a.scratch)};
}

}  // namespace

std::size_t gemm_scratch_bytes(std::int64_t m, std::int64_t k) {
  // Every form of X pads k to whole blocks of 64 bytes: 16 floats, or 32 halves which need less.
  constexpr std::int64_t kBlock = 16;
  const std::int64_t floats = (k + kBlock - 1) / kBlock * kBlock * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t codes = (k + kActivationGroup - 1) / kActivationGroup * kQuantisedGroupBytes;
  return static_cast<std::size_t>(m * std::max(floats, codes));
}

void prepare_x(const CpuKernels& kernels, const GemmArgs& args, std::int64_t tile_begin,
               std::int64_t tile_end) {
  kernels.gemm.prepare(call_of(args), tile_begin, tile_end);
}

void gemm_panels(const CpuKernels& kernels, const GemmArgs& args, std::int64_t panel_begin,
                 std::int64_t panel_end) {
  check(0 <= panel_begin && panel_begin <= panel_end && panel_end <= args.w->panels(),
        "gemm_panels: a range outside the matrix");
  if (args.m == 0 || panel_begin == panel_end) return;
  kernels.gemm.panels(call_of(args), panel_begin, panel_end);
}

void gemm(ThreadPool& pool, const CpuKernels& kernels, const GemmArgs& args) {
  const std::int64_t tiles = gemm_tiles(args.m);
  if (tiles <= 1 || pool.threads() == 1) {
    prepare_x(kernels, args, 0, tiles);  // a few rows: copying them costs less than a barrier
  } else {
    pool.run([&](int thread) {
      const Range share = static_range(tiles, thread, pool.threads());
      prepare_x(kernels, args, share.begin, share.end);
    });
  }
  pool.run([&](int thread) {
    const Range share = static_range(args.w->panels(), thread, pool.threads());
    gemm_panels(kernels, args, share.begin, share.end);
  });
}

}  // namespace firstlight
