// What crosses into the per-instruction-set files of the GEMM: plain pointers and sizes, no containers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace firstlight {

/// The outputs one panel of weights computes: columns [column, column + count) of Y.
struct PanelSpan {
  std::int32_t column = 0;
  std::int32_t count = 0;
};

/// Values of a row of X that are quantised together.
inline constexpr std::int64_t kInt8Group = 256;    // beside weights of 8 bits; they share a scale
inline constexpr std::int64_t kNibbleGroup = 128;  // beside weights of 4 bits; 32 of them share a scale
/// Such a group prepared for a kernel. Codes and starts are as the kernel of an instruction set likes them.
template <class Code, int Terms, std::int64_t Values>
struct QuantGroup {
  static constexpr std::int64_t kValues = Values;
  Code codes[Terms][Values];
  std::int32_t start[4];  // what sums of products begin with, to take the bias of unsigned weights out
  float scale[4];         // of all values, or of every 32
};
/// Room for any of them.
inline constexpr std::int64_t kQuantGroupBytes = sizeof(QuantGroup<std::int16_t, 1, kInt8Group>);
static_assert(kQuantGroupBytes == sizeof(QuantGroup<std::int8_t, 2, kInt8Group>));
static_assert(kQuantGroupBytes >=
              kInt8Group / kNibbleGroup * sizeof(QuantGroup<std::int8_t, 1, kNibbleGroup>));
/// Bytes from one row of quantised values to the next, as `code_rows` writes them and `prepare` reads them.
constexpr std::int64_t coded_row_stride(std::int64_t k) {
  return (k + kInt8Group - 1) / kInt8Group * kQuantGroupBytes;
}
/// Twice the values of E2M1 by code, plus 12. Not inline: one instruction set's object would lend it to
/// others.
constexpr std::uint8_t kMxfp4Integers[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

/// The inner loops, by what X and W hold.
enum class GemmKind : std::uint8_t {
  kF32F32,    // X f32, W f32
  kF32Bf16,   // X f32, W bf16 widened
  kBf16,      // X bf16, W bf16, in the model of vdpbf16ps
  kInt8,      // X 8 bits, W 8 bits
  kInt8Wide,  // X 16 bits, W 8 bits
  kInt4,      // X 8 bits, W 4-bit integers
  kMxfp4,     // X 8 bits, W 4-bit floats
};

/// Rows of X that are prepared together. 12 rows x 32 columns are 24 accumulators, which with 2 weights and
/// room for X fill 32 zmm registers; weights are read once for up to 12 rows.
inline constexpr std::int64_t kGemmTileRows = 12;
/// Rows are split evenly: 32 rows are 11 + 11 + 10, not 12 + 12 + 8.
constexpr std::int64_t gemm_tile_count(std::int64_t m) { return (m + kGemmTileRows - 1) / kGemmTileRows; }

struct GemmCall {
  GemmKind kind;
  std::int64_t m, k;
  const float* x;  // [m, k] through x_rows (or null), rows ldx apart
  std::int64_t ldx;
  const std::int32_t* x_rows;
  const std::byte* coded_x;  // of quantised kinds: rows as `code_rows` made them, instead of x
  const std::byte* panels;   // [panels][panel_bytes]
  std::int64_t panel_bytes;
  const PanelSpan* spans;  // [panels]
  float* y;                // [m, columns] through y_rows (or null), rows ldy apart
  std::int64_t ldy;
  const std::int32_t* y_rows;
  std::int64_t first_column;  // the output column that y[0] stands for
  std::byte* scratch;         // X as the kernel reads it: [tiles][blocks of k][rows of the tile][64 bytes]
};

/// The functions of one translation unit.
struct GemmFunctions {
  const char* (*compiled_as)();  // "generic", "avx2", "avx512"
  std::uint64_t (*calls)();      // of `panels` so far: proof that this code ran
  void (*prepare)(const GemmCall&, std::int64_t tile_begin, std::int64_t tile_end);
  /// Quantises `rows` rows of x for a quantised kind: [rows][coded_row_stride(k)].
  void (*code_rows)(GemmKind kind, const float* x, std::int64_t ldx, std::int64_t rows, std::int64_t k,
                    std::byte* coded);
  void (*panels)(const GemmCall&, std::int64_t panel_begin, std::int64_t panel_end);
};

namespace generic {
extern const GemmFunctions kGemmFunctions;
}
namespace avx2 {
extern const GemmFunctions kGemmFunctions;
}
namespace avx512 {
extern const GemmFunctions kGemmFunctions;
}

}  // namespace firstlight
