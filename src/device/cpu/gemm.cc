#include "device/cpu/gemm.h"

#include <algorithm>

#include "base/result.h"

namespace firstlight {

namespace {

GemmKind kind_of(Packing packing, Arithmetic arithmetic, bool wide) {
  switch (packing) {
    case Packing::kF32:
      return GemmKind::kF32F32;
    case Packing::kInt8:
      return wide ? GemmKind::kInt8Wide : GemmKind::kInt8;
    case Packing::kInt4:
      return GemmKind::kInt4;
    case Packing::kMxfp4:
      return GemmKind::kMxfp4;
    case Packing::kBF16:
      break;
  }
  return arithmetic == Arithmetic::kF32 ? GemmKind::kF32Bf16 : GemmKind::kBf16;
}

GemmCall call_of(const GemmArgs& a) {
  return {.kind = kind_of(a.w->packing(), a.arithmetic, a.wide_x),
          .m = a.m,
          .k = a.w->k(),
          .x = a.x,
          .ldx = a.ldx,
          .x_rows = a.x_rows,
          .coded_x = a.coded_x,
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
  return static_cast<std::size_t>(m * std::max(floats, coded_row_stride(k)));
}

bool is_quantised(Packing packing) { return packing != Packing::kF32 && packing != Packing::kBF16; }

std::int64_t coded_row_bytes(std::int64_t k) { return coded_row_stride(k); }

void code_rows(const CpuKernels& kernels, Packing packing, const float* x, std::int64_t ldx,
               std::int64_t rows, std::int64_t k, std::byte* coded) {
  check(is_quantised(packing), "rows are coded for quantised weights");
  kernels.gemm.code_rows(kind_of(packing, Arithmetic::kBF16, false), x, ldx, rows, k, coded);
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
