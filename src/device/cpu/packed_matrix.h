// Weights W[N, K] packed once for the GEMM: panels of 32 outputs, so that a kernel reads memory in order.
//
//   f32  panel: [K][32]        element (n, k) of the panel at k * 32 + n
//   bf16 panel: [K/2][32][2]   pairs of k adjacent, as vdpbf16ps wants them; an odd K is padded with zero
//   int8 panel: f32 scales [32], then [K/4][32][4] codes + 128, as vpdpbusd wants them
//   int4 panel: bf16 scales [K/32][32], then [K/4][16][4] bytes, outputs 0..15 in the low nibbles (codes + 8)
//   mxfp4 panel: E8M0 scales [K/32][32], then [K/4][16][4] bytes of E2M1 codes in the same way
//
// Scales fill whole lines of 64 bytes; K is padded to 4 in int8, to 32 in 4 bits.
// N is padded with zeros to a whole panel. Several matrices with the same K can be packed one after the
// other; each starts at a panel of its own, and their outputs lie side by side without gaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "base/tensor.h"
#include "base/thread_pool.h"
#include "device/cpu/gemm_call.h"
#include "device/cpu/packed_store.h"

namespace firstlight {

/// How products and sums are computed; see gemm.h.
enum class Arithmetic : std::uint8_t { kF32, kBF16 };

/// Of the bytes of packed matrices: layouts and roundings. To be raised when either changes, or what an
/// earlier program left on the disk would be taken for this one's.
inline constexpr int kPackingVersion = 2;

/// What the weights of a PackedMatrix are held as.
enum class Packing : std::uint8_t { kF32, kBF16, kInt8, kInt4, kMxfp4 };
std::string_view packing_name(Packing packing);

/// One of the matrices of a PackedMatrix.
struct PackedPart {
  Range panels;
  Range columns;  // of Y
};

class PackedMatrix {
 public:
  /// Outputs a panel holds: two zmm registers of f32, so that a 12-row tile fills the register file.
  static constexpr std::int64_t kPanel = 32;

  PackedMatrix() = default;

  [[nodiscard]] std::int64_t n() const { return n_; }  // outputs of all parts together
  [[nodiscard]] std::int64_t k() const { return k_; }
  [[nodiscard]] Packing packing() const { return packing_; }
  [[nodiscard]] std::int64_t panels() const { return static_cast<std::int64_t>(spans_.size()); }
  [[nodiscard]] std::int64_t panel_bytes() const { return panel_bytes_; }
  [[nodiscard]] const std::byte* panel(std::int64_t p) const { return data_.get() + p * panel_bytes_; }
  [[nodiscard]] std::span<const PanelSpan> spans() const { return spans_; }
  [[nodiscard]] std::span<const PackedPart> parts() const { return parts_; }
  /// Memory held by the weights, padding included.
  [[nodiscard]] std::int64_t bytes() const { return panels() * panel_bytes_; }
  /// W(n, k), n counted over all parts; slow, for tests and inspection.
  [[nodiscard]] float at(std::int64_t n, std::int64_t k) const;

 private:
  friend class Packer;
  [[nodiscard]] float quantised_at(const std::byte* panel, std::int64_t n, std::int64_t k) const;
  std::shared_ptr<std::byte> data_;  // [panels][panel_bytes], 64-byte aligned
  std::vector<PanelSpan> spans_;     // [panels]
  std::vector<PackedPart> parts_;
  std::int64_t n_ = 0;
  std::int64_t k_ = 0;
  std::int64_t panel_bytes_ = 0;
  Packing packing_ = Packing::kF32;
};

/// The type weights are packed in. bf16 stays bf16 in both arithmetics (widening is exact); f32 and f16
/// become f32, or bf16 (rounded to nearest even) under kBF16 unless the caller keeps them.
Packing packed_as(DType source, Arithmetic arithmetic, bool keep_f32 = false);

/// Bytes that a PackedMatrix of these parts (outputs each) will hold, without building it.
std::int64_t packed_bytes(std::span<const std::int64_t> part_rows, std::int64_t k, Packing target);

/// Rows that are made on the fly, e.g. dequantised: `read(row, out)` writes K floats. Where rows already lie
/// somewhere in the type they are packed in, `stored(row)` may say where, and nothing is converted; where
/// they are stored as codes and scales of the packing (quantise.h), `codes` may give these, and nothing is
/// rounded. Called from several threads at once when a pool is given.
struct RowSource {
  std::int64_t rows = 0;
  std::function<void(std::int64_t row, float* out)> read;
  std::function<const std::uint8_t*(std::int64_t row)> stored = {};
  std::function<bool(std::int64_t row, std::int8_t* codes, std::uint8_t* scales)> codes = {};
};

/// Packs W[N, K] of BF16, F32 or F16. Values are rounded to nearest even where `target` is narrower. The
/// views need to live only for the call.
Result<PackedMatrix> pack(const TensorView& w, Packing target, ThreadPool* pool = nullptr);
/// Packs [N_i, K] one after the other.
Result<PackedMatrix> pack(std::span<const TensorView> parts, Packing target, ThreadPool* pool = nullptr);
/// The same; or nothing is read from the parts, when the store has what `as` names.
Result<PackedMatrix> pack(std::span<const RowSource> parts, std::int64_t k, Packing target,
                          ThreadPool* pool = nullptr, const StoredAs& as = {});

}  // namespace firstlight
