#include "device/cpu/packed_matrix.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <string>

#include "base/round_up.h"
#include "base/zeroed_memory.h"
#include "device/cpu/quantise.h"

namespace firstlight {

namespace {

constexpr std::int64_t kPanel = PackedMatrix::kPanel;
constexpr std::int64_t kCacheLine = 64;

std::int64_t panels_for(std::int64_t rows) { return (rows + kPanel - 1) / kPanel; }

std::int64_t scale_bytes_of_panel(std::int64_t k, Packing target) {
  const std::int64_t groups = (k + kWeightGroup - 1) / kWeightGroup;
  switch (target) {
    case Packing::kInt8:
      return kPanel * 4;
    case Packing::kInt4:
      return groups * kPanel * 2;
    case Packing::kMxfp4:
      return round_up(groups * kPanel, kCacheLine);
    default:
      return 0;
  }
}

std::int64_t bytes_of_panel(std::int64_t k, Packing target) {
  switch (target) {
    case Packing::kF32:
      return k * kPanel * 4;
    case Packing::kBF16:
      return round_up(k, 2) * kPanel * 2;
    case Packing::kInt8:
      return scale_bytes_of_panel(k, target) + round_up(k, 4) * kPanel;
    case Packing::kInt4:
    case Packing::kMxfp4:
      return scale_bytes_of_panel(k, target) + round_up(k, kWeightGroup) * kPanel / 2;
  }
  return 0;
}

/// Where packed weights lie: large pieces that many matrices share, because an expert alone may be smaller
/// than a huge page. A piece lives as long as one of its matrices.
class WeightPiece {
 public:
  explicit WeightPiece(std::int64_t bytes) : data_(map_zeroed(bytes)), bytes_(bytes) {}
  ~WeightPiece() {
    if (data_ != nullptr) unmap(data_, bytes_);
  }
  WeightPiece(const WeightPiece&) = delete;
  WeightPiece& operator=(const WeightPiece&) = delete;

  /// Null when it does not fit.
  std::byte* take(std::int64_t bytes) {
    if (data_ == nullptr || bytes > bytes_ - used_) return nullptr;
    std::byte* const p = data_ + used_;
    used_ += bytes;
    return p;
  }

 private:
  std::byte* data_;
  std::int64_t bytes_;
  std::int64_t used_ = 0;
};

/// `bytes` of zeroed memory, aligned to lines; null when there is none.
std::shared_ptr<std::byte> allocate(std::int64_t bytes) {
  constexpr std::int64_t kPiece = 16 * kHugePage;
  static std::mutex mutex;
  static std::weak_ptr<WeightPiece> shared;
  const std::int64_t rounded = round_up(bytes, kCacheLine);
  const std::lock_guard lock(mutex);
  std::shared_ptr<WeightPiece> piece = shared.lock();
  std::byte* p = piece == nullptr ? nullptr : piece->take(rounded);
  if (p == nullptr) {
    piece = std::make_shared<WeightPiece>(std::max(rounded, kPiece));
    p = piece->take(rounded);
    if (rounded < kPiece) shared = piece;
  }
  return p == nullptr ? nullptr : std::shared_ptr<std::byte>(std::move(piece), p);
}

using Words = std::uint32_t __attribute__((vector_size(16)));  // 4 elements of 4 bytes: f32s or bf16 pairs

Words load_words(const std::byte* p, std::int64_t count) {
  Words w{};
  if (p == nullptr) return w;
  if (count >= 4) {
    std::memcpy(&w, p, 16);
  } else {
    std::memcpy(&w, p, static_cast<std::size_t>(count) * 4);
  }
  return w;
}

/// Rows of `count` elements of 4 bytes into [count][rows]; a row may be null, which stands for zeros. `width`
/// rows, a multiple of 4.
void interleave(const std::byte* const* rows, std::int64_t width, std::int64_t count, std::byte* panel) {
  for (std::int64_t from = 0; from < count; from += 4) {
    const std::int64_t n = std::min<std::int64_t>(4, count - from);
    for (std::int64_t r = 0; r < width; r += 4) {  // 4 x 4 elements are transposed in registers
      Words in[4];
      for (std::int64_t i = 0; i < 4; ++i) {
        const std::byte* row = rows[r + i];
        in[i] = load_words(row == nullptr ? nullptr : row + from * 4, n);
      }
      const Words low01 = __builtin_shufflevector(in[0], in[1], 0, 4, 1, 5);
      const Words low23 = __builtin_shufflevector(in[2], in[3], 0, 4, 1, 5);
      const Words high01 = __builtin_shufflevector(in[0], in[1], 2, 6, 3, 7);
      const Words high23 = __builtin_shufflevector(in[2], in[3], 2, 6, 3, 7);
      const Words out[4] = {__builtin_shufflevector(low01, low23, 0, 1, 4, 5),
                            __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
                            __builtin_shufflevector(high01, high23, 0, 1, 4, 5),
                            __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
      for (std::int64_t i = 0; i < n; ++i) std::memcpy(panel + ((from + i) * width + r) * 4, &out[i], 16);
    }
  }
}

/// Where the rows of one part come from: in place when they already have the packed type, else converted.
class Rows {
 public:
  Rows(const TensorView& w, Packing target) : view_(&w), target_(target), k_(w.shape[1]) {}
  Rows(const RowSource& source, std::int64_t k, Packing target) : source_(&source), target_(target), k_(k) {}

  [[nodiscard]] std::int64_t count() const { return view_ != nullptr ? view_->shape[0] : source_->rows; }

  /// Row `row` in the target type, padded to 4-byte elements; valid until `buffer` changes.
  const std::byte* row(std::int64_t row, std::vector<float>& values, std::byte* buffer) const {
    const bool pairs = target_ == Packing::kBF16;
    const std::int64_t bytes = k_ * (pairs ? 2 : 4);
    if (const std::byte* in = in_place(row, bytes); in != nullptr) {
      if (!pairs || k_ % 2 == 0) return in;
      std::memcpy(buffer, in, static_cast<std::size_t>(bytes));
      std::memset(buffer + bytes, 0, 2);
      return buffer;
    }
    read(row, values.data());
    if (!pairs) {
      std::memcpy(buffer, values.data(), static_cast<std::size_t>(k_) * 4);
      return buffer;
    }
    for (std::int64_t k = 0; k < k_; ++k) {
      const std::uint16_t h = f32_to_bf16(values[static_cast<std::size_t>(k)]);
      std::memcpy(buffer + 2 * k, &h, 2);
    }
    if (k_ % 2 != 0) std::memset(buffer + 2 * k_, 0, 2);
    return buffer;
  }

  /// The row as codes and scales of the packed type.
  void quantised_row(std::int64_t row, std::vector<float>& values, std::int8_t* codes,
                     std::uint8_t* scales) const {
    if (source_ != nullptr && source_->codes && source_->codes(row, codes, scales)) return;
    read(row, values.data());
    switch (target_) {
      case Packing::kInt8: {
        const float scale = quantise_int8(values.data(), k_, codes);
        std::memcpy(scales, &scale, sizeof(scale));
        return;
      }
      case Packing::kInt4:
        return quantise_int4(values.data(), k_, codes, reinterpret_cast<std::uint16_t*>(scales));
      case Packing::kMxfp4:
        return quantise_mxfp4(values.data(), k_, codes, scales);
      default:
        check(false, "a quantised packing");
    }
  }

 private:
  /// The row where it lies in the packed type, or null.
  [[nodiscard]] const std::byte* in_place(std::int64_t row, std::int64_t bytes) const {
    if (source_ == nullptr) {
      const bool same = view_->dtype == (target_ == Packing::kBF16 ? DType::kBF16 : DType::kF32);
      return same ? reinterpret_cast<const std::byte*>(view_->data) + row * bytes : nullptr;
    }
    return source_->stored ? reinterpret_cast<const std::byte*>(source_->stored(row)) : nullptr;
  }
  void read(std::int64_t row, float* out) const {
    if (source_ != nullptr) return source_->read(row, out);
    check(view_->data != nullptr, "a weight without data");
    const std::size_t size = dtype_size(view_->dtype);
    const std::uint8_t* in = view_->data + static_cast<std::size_t>(row * k_) * size;
    for (std::int64_t k = 0; k < k_; ++k, in += size) {
      if (view_->dtype == DType::kF32) {
        std::memcpy(&out[k], in, 4);
        continue;
      }
      std::uint16_t h = 0;
      std::memcpy(&h, in, 2);
      out[k] = view_->dtype == DType::kF16 ? f16_to_f32(h) : bf16_to_f32(h);
    }
  }

  const TensorView* view_ = nullptr;
  const RowSource* source_ = nullptr;
  Packing target_;
  std::int64_t k_;
};

std::string two_dimensions(const TensorView& w) {
  return "pack: a weight must be BF16, F32 or F16 with shape [N, K], N and K positive; got " +
         std::string(dtype_name(w.dtype)) + " " + shape_text(w.shape);
}

}  // namespace

class Packer {
 public:
  static Result<PackedMatrix> pack(std::span<const Rows> parts, std::int64_t k, Packing target,
                                   ThreadPool* pool, const StoredAs& as) {
    // Offsets inside kernels stay far from overflow with these bounds.
    if (k <= 0 || k > (std::int64_t{1} << 32)) {
      return Error{"pack: K must be between 1 and 2^32, got " + std::to_string(k)};
    }
    PackedMatrix m;
    m.k_ = k;
    m.packing_ = target;
    m.panel_bytes_ = bytes_of_panel(k, target);
    for (const Rows& part : parts) {
      const std::int64_t rows = part.count();
      if (rows <= 0 || rows > std::numeric_limits<std::int32_t>::max() - m.n_ - kPanel) {
        return Error{"pack: a weight needs between 1 and 2^31 outputs, got " + std::to_string(rows)};
      }
      const std::int64_t first = m.panels();
      for (std::int64_t r = 0; r < rows; r += kPanel) {
        m.spans_.push_back({.column = static_cast<std::int32_t>(m.n_ + r),
                            .count = static_cast<std::int32_t>(std::min(kPanel, rows - r))});
      }
      m.parts_.push_back({.panels = {first, m.panels()}, .columns = {m.n_, m.n_ + rows}});
      m.n_ += rows;
    }
    if (m.panels() == 0) return Error{"pack: no weights given"};
    if (m.panels() > std::numeric_limits<std::int64_t>::max() / 2 / m.panel_bytes_) {
      return Error{"pack: weights of " + std::to_string(m.n_) + " x " + std::to_string(k) + " overflow"};
    }
    m.data_ = allocate(m.bytes());
    if (m.data_ == nullptr) {
      return Error{"pack: not enough memory for " + std::to_string(m.bytes()) + " bytes of weights"};
    }
    if (as.store != nullptr && as.store->restore(stored_name(m, as), m.data_, m.bytes())) return m;
    if (pool == nullptr) {
      fill(m, parts, {0, m.panels()});
    } else {
      pool->run([&](int t) { fill(m, parts, static_range(m.panels(), t, pool->threads())); });
    }
    return m;
  }

 private:
  /// "lm_head.weight int8 [1024, 4096]", the outputs of each part: they decide where panels end.
  static std::string stored_name(const PackedMatrix& m, const StoredAs& as) {
    std::string name = as.rows + " " + std::string(packing_name(m.packing_)) + " [";
    for (const PackedPart& part : m.parts_) {
      name += std::to_string(part.columns.end - part.columns.begin) + ", ";
    }
    return name + std::to_string(m.k_) + "]";
  }

  static void fill(PackedMatrix& m, std::span<const Rows> parts, Range panels) {
    if (m.packing_ != Packing::kF32 && m.packing_ != Packing::kBF16) return fill_quantised(m, parts, panels);
    const std::int64_t row_bytes = m.panel_bytes_ / kPanel;
    std::vector<float> values(static_cast<std::size_t>(m.k_));
    std::vector<std::byte> buffer(static_cast<std::size_t>(m.panel_bytes_));
    std::size_t part = 0;
    for (std::int64_t p = panels.begin; p < panels.end; ++p) {
      while (p >= m.parts_[part].panels.end) ++part;
      const std::int64_t first = (p - m.parts_[part].panels.begin) * kPanel;
      std::array<const std::byte*, kPanel> rows{};
      for (std::int64_t r = 0; r < m.spans_[static_cast<std::size_t>(p)].count; ++r) {
        rows[static_cast<std::size_t>(r)] =
            parts[part].row(first + r, values, &buffer[static_cast<std::size_t>(r * row_bytes)]);
      }
      interleave(rows.data(), kPanel, row_bytes / 4, m.data_.get() + p * m.panel_bytes_);
    }
  }

  static void fill_quantised(PackedMatrix& m, std::span<const Rows> parts, Range panels) {
    const bool bytes = m.packing_ == Packing::kInt8;
    const std::int64_t depth = round_up(m.k_, bytes ? 4 : kWeightGroup);
    const std::int64_t groups = bytes ? 1 : (m.k_ + kWeightGroup - 1) / kWeightGroup;
    const std::int64_t scale_size = bytes ? 4 : m.packing_ == Packing::kInt4 ? 2 : 1;
    const int bias = bytes ? 128 : m.packing_ == Packing::kInt4 ? 8 : 0;
    std::vector<float> values(static_cast<std::size_t>(m.k_));
    std::vector<std::int8_t> codes(static_cast<std::size_t>(kPanel * depth));  // 0 where K is padded
    std::vector<std::uint8_t> scales(static_cast<std::size_t>(groups * scale_size) + 4);
    std::array<const std::byte*, kPanel> rows{};
    std::size_t part = 0;
    for (std::int64_t p = panels.begin; p < panels.end; ++p) {
      while (p >= m.parts_[part].panels.end) ++part;
      const std::int64_t first = (p - m.parts_[part].panels.begin) * kPanel;
      std::byte* const panel = m.data_.get() + p * m.panel_bytes_;
      const std::int64_t scale_bytes = scale_bytes_of_panel(m.k_, m.packing_);
      std::memset(panel, 0, static_cast<std::size_t>(scale_bytes));
      for (std::int64_t r = 0; r < kPanel; ++r) {
        std::int8_t* const row = &codes[static_cast<std::size_t>(r * depth)];
        rows[static_cast<std::size_t>(r)] = reinterpret_cast<const std::byte*>(row);
        if (r >= m.spans_[static_cast<std::size_t>(p)].count) {  // a scale of 0
          std::fill_n(row, depth, std::int8_t{0});
          continue;
        }
        parts[part].quantised_row(first + r, values, row, scales.data());
        for (std::int64_t k = 0; k < m.k_; ++k) {
          row[k] = static_cast<std::int8_t>(static_cast<std::uint8_t>(row[k] + bias));
        }
        for (std::int64_t g = 0; g < groups; ++g) {
          std::memcpy(panel + (g * kPanel + r) * scale_size,
                      &scales[static_cast<std::size_t>(g * scale_size)],
                      static_cast<std::size_t>(scale_size));
        }
      }
      if (!bytes) {  // outputs 16 apart share a byte
        for (std::int64_t i = 0; i < kPanel / 2 * depth; ++i) {
          const auto low = static_cast<std::uint8_t>(codes[static_cast<std::size_t>(i)]);
          const auto high =
              static_cast<std::uint8_t>(codes[static_cast<std::size_t>(i + kPanel / 2 * depth)]);
          codes[static_cast<std::size_t>(i)] =
              static_cast<std::int8_t>(static_cast<std::uint8_t>(low | high << 4));
        }
      }
      interleave(rows.data(), bytes ? kPanel : kPanel / 2, depth / 4, panel + scale_bytes);
    }
  }
};

float PackedMatrix::at(std::int64_t n, std::int64_t k) const {
  for (std::int64_t p = 0; p < panels(); ++p) {
    const std::int64_t i = n - spans_[static_cast<std::size_t>(p)].column;
    if (i < 0 || i >= spans_[static_cast<std::size_t>(p)].count) continue;
    if (packing_ == Packing::kF32) {
      float f = 0;
      std::memcpy(&f, panel(p) + (k * kPanel + i) * 4, 4);
      return f;
    }
    if (packing_ == Packing::kBF16) {
      std::uint16_t h = 0;
      std::memcpy(&h, panel(p) + ((k / 2 * kPanel + i) * 2 + k % 2) * 2, 2);
      return bf16_to_f32(h);
    }
    return quantised_at(panel(p), i, k);
  }
  check(false, "PackedMatrix::at: no such output");
  return 0;
}

float PackedMatrix::quantised_at(const std::byte* panel, std::int64_t n, std::int64_t k) const {
  const std::byte* const data = panel + scale_bytes_of_panel(k_, packing_);
  if (packing_ == Packing::kInt8) {
    float scale = 0;
    std::memcpy(&scale, panel + n * 4, 4);
    const int code = std::to_integer<int>(data[(k / 4 * kPanel + n) * 4 + k % 4]);
    return static_cast<float>(code - 128) * scale;
  }
  const std::int64_t scale_at = k / kWeightGroup * kPanel + n;
  const int both = std::to_integer<int>(data[(k / 4 * (kPanel / 2) + n % 16) * 4 + k % 4]);
  const int code = n < 16 ? both & 15 : both >> 4;
  if (packing_ == Packing::kInt4) {
    std::uint16_t scale = 0;
    std::memcpy(&scale, panel + scale_at * 2, 2);
    return static_cast<float>(code - 8) * bf16_to_f32(scale);
  }
  return e2m1_value(code) * f8e8m0_to_f32(std::to_integer<std::uint8_t>(panel[scale_at]));
}

std::string_view packing_name(Packing packing) {
  switch (packing) {
    case Packing::kF32:
      return "f32";
    case Packing::kBF16:
      return "bf16";
    case Packing::kInt8:
      return "int8";
    case Packing::kInt4:
      return "int4";
    case Packing::kMxfp4:
      return "mxfp4";
  }
  return "";
}

Packing packed_as(DType source, Arithmetic arithmetic, bool keep_f32) {
  if (source == DType::kBF16) return Packing::kBF16;
  return arithmetic == Arithmetic::kF32 || keep_f32 ? Packing::kF32 : Packing::kBF16;
}

std::int64_t packed_bytes(std::span<const std::int64_t> part_rows, std::int64_t k, Packing target) {
  std::int64_t panels = 0;
  for (const std::int64_t rows : part_rows) panels += panels_for(rows);
  return panels * bytes_of_panel(k, target);
}

Result<PackedMatrix> pack(const TensorView& w, Packing target, ThreadPool* pool) {
  return pack(std::span(&w, 1), target, pool);
}

Result<PackedMatrix> pack(std::span<const TensorView> parts, Packing target, ThreadPool* pool) {
  std::vector<Rows> rows;
  for (const TensorView& w : parts) {
    const bool known = w.dtype == DType::kF32 || w.dtype == DType::kBF16 || w.dtype == DType::kF16;
    if (!known || w.shape.size() != 2 || w.shape[0] <= 0 || w.shape[1] <= 0) return Error{two_dimensions(w)};
    if (w.shape[1] != parts[0].shape[1]) {
      return Error{"pack: weights packed together need the same K, got " + shape_text(parts[0].shape) +
                   " and " + shape_text(w.shape)};
    }
    rows.emplace_back(w, target);
  }
  return Packer::pack(rows, parts.empty() ? 1 : parts[0].shape[1], target, pool, {});
}

Result<PackedMatrix> pack(std::span<const RowSource> parts, std::int64_t k, Packing target, ThreadPool* pool,
                          const StoredAs& as) {
  std::vector<Rows> rows;
  for (const RowSource& source : parts) rows.emplace_back(source, k, target);
  return Packer::pack(rows, k, target, pool, as);
}

}  // namespace firstlight
