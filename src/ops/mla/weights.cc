#include "ops/mla/weights.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "device/cpu/quantise.h"

namespace firstlight {
namespace {

/// Rows of kv_b; W_UK a head at a time, because its transpose needs all rows of a head.
class Reader {
 public:
  Reader(const WeightSource& kv_b, const MlaSetup& setup)
      : kv_b_(kv_b), setup_(setup), scales_(static_cast<std::size_t>(setup.heads * setup.nope)) {}

  [[nodiscard]] std::int64_t first_key(std::int64_t head) const { return head * (setup_.nope + setup_.v); }

  /// W_UK of a head [nope, latent].
  const float* keys(std::int64_t head) {
    if (head != keys_of_) {
      keys_.resize(static_cast<std::size_t>(setup_.nope * setup_.latent));
      for (std::int64_t i = 0; i < setup_.nope; ++i) {
        row(first_key(head) + i, keys_.data() + i * setup_.latent);
      }
      keys_of_ = head;
    }
    return keys_.data();
  }
  /// The same in 8 bits.
  const std::int8_t* key_codes(std::int64_t head) {
    if (head != codes_of_) {
      codes_.resize(static_cast<std::size_t>(setup_.nope * setup_.latent));
      std::vector<float> values(static_cast<std::size_t>(setup_.latent));
      for (std::int64_t i = 0; i < setup_.nope; ++i) {
        const std::int64_t at = first_key(head) + i;
        std::int8_t* const codes = codes_.data() + i * setup_.latent;
        float& scale = scales_[static_cast<std::size_t>(head * setup_.nope + i)];
        if (stored_codes(at, codes, reinterpret_cast<std::uint8_t*>(&scale))) continue;
        row(at, values.data());
        scale = quantise_int8(values.data(), setup_.latent, codes);
      }
      codes_of_ = head;
    }
    return codes_.data();
  }
  /// Scales of the rows of a head's W_UK [nope].
  const float* key_scales(std::int64_t head) {
    key_codes(head);
    return scales_.data() + head * setup_.nope;
  }

  /// Zeros after a failure, which `status` keeps.
  void row(std::int64_t at, float* out) {
    Status read = kv_b_.read_rows(at, 1, out);
    if (read.ok()) return;
    std::fill_n(out, setup_.latent, 0.0F);
    keep(std::move(read));
  }
  bool stored_codes(std::int64_t at, std::int8_t* codes, std::uint8_t* scale) {
    if (kv_b_.stored_form() != HeldAs::kInt8) return false;
    const Result<bool> read = kv_b_.read_codes(at, codes, scale);
    if (!read.ok()) keep(Status(read.error()));
    return read.ok() && *read;
  }
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  void keep(Status failure) {
    if (status_.ok()) status_ = std::move(failure);
  }

  const WeightSource& kv_b_;
  const MlaSetup& setup_;
  std::vector<float> keys_;
  std::vector<std::int8_t> codes_;
  std::vector<float> scales_;
  std::int64_t keys_of_ = -1;
  std::int64_t codes_of_ = -1;
  Status status_;
};

/// A part for each head: `count` rows of kv_b, `skipped` rows behind the head's first.
std::vector<RowSource> rows_of_heads(Reader& reader, const MlaSetup& setup, std::int64_t skipped,
                                     std::int64_t count, bool bytes) {
  std::vector<RowSource> heads;
  for (std::int64_t h = 0; h < setup.heads; ++h) {
    const std::int64_t first = reader.first_key(h) + skipped;
    RowSource source{.rows = count, .read = [&reader, first](std::int64_t row, float* out) {
                       reader.row(first + row, out);
                     }};
    if (bytes) {
      source.codes = [&reader, first](std::int64_t row, std::int8_t* codes, std::uint8_t* scales) {
        return reader.stored_codes(first + row, codes, scales);
      };
    }
    heads.push_back(std::move(source));
  }
  return heads;
}

/// A part for each head: row r is channel r of the rows of W_UK.
std::vector<RowSource> transposed_keys(Reader& reader, const MlaSetup& setup, bool bytes) {
  std::vector<RowSource> heads;
  for (std::int64_t h = 0; h < setup.heads; ++h) {
    RowSource source{.rows = setup.latent, .read = [&reader, &setup, h](std::int64_t row, float* out) {
                       const float* keys = reader.keys(h);
                       for (std::int64_t i = 0; i < setup.nope; ++i) out[i] = keys[i * setup.latent + row];
                     }};
    if (bytes) {
      source.codes = [&reader, &setup, h](std::int64_t row, std::int8_t* codes, std::uint8_t* scales) {
        constexpr float kOne = 1;
        std::memcpy(scales, &kOne, sizeof(kOne));
        const std::int8_t* keys = reader.key_codes(h);
        for (std::int64_t i = 0; i < setup.nope; ++i) codes[i] = keys[i * setup.latent + row];
        return true;
      };
    }
    heads.push_back(std::move(source));
  }
  return heads;
}

/// Kept as a matrix, so that a start from kept weights need not read kv_b for them.
Result<std::vector<float>> scales_of_keys(Reader& reader, const MlaSetup& setup, const StoredAs& as) {
  const RowSource rows{.rows = setup.heads, .read = [&](std::int64_t head, float* out) {
                         std::copy_n(reader.key_scales(head), setup.nope, out);
                       }};
  FL_ASSIGN(const PackedMatrix packed, pack({&rows, 1}, setup.nope, Packing::kF32, nullptr, as));
  std::vector<float> scales;
  for (std::int64_t h = 0; h < setup.heads; ++h) {
    for (std::int64_t i = 0; i < setup.nope; ++i) scales.push_back(packed.at(h, i));
  }
  return scales;
}

}  // namespace

std::int64_t MlaWeights::bytes() const {
  return absorb_k.bytes() + up_k.bytes() + up_v.bytes() +
         static_cast<std::int64_t>(key_scales.size() * sizeof(float));
}

Result<MlaWeights> pack_kv_b(const WeightSource& kv_b, const MlaSetup& setup, bool bytes, bool expanded,
                             PackedStore* store) {
  Reader reader(kv_b, setup);
  const Packing packing =
      bytes ? Packing::kInt8 : packed_as(kv_b.exact_in_bf16() ? DType::kBF16 : DType::kF32, setup.arithmetic);
  // The widths of both kinds of rows in one: with the sizes they say which rows these are.
  const auto as = [&](const char* what) {
    return StoredAs{.store = store,
                    .rows = kv_b.name() + " " + what + " of " + std::to_string(setup.nope) + " + " +
                            std::to_string(setup.v)};
  };
  MlaWeights weights;
  FL_ASSIGN(weights.absorb_k,
            pack(transposed_keys(reader, setup, bytes), setup.nope, packing, nullptr, as("transposed keys")));
  if (bytes) {
    FL_ASSIGN(weights.key_scales, scales_of_keys(reader, setup, as("scales of keys")));
  }
  FL_ASSIGN(weights.up_v, pack(rows_of_heads(reader, setup, setup.nope, setup.v, bytes), setup.latent,
                               packing, nullptr, as("values")));
  if (expanded) {
    FL_ASSIGN(weights.up_k, pack(rows_of_heads(reader, setup, 0, setup.nope, bytes), setup.latent, packing,
                                 nullptr, as("keys")));
  }
  kv_b.release();
  if (!reader.status().ok()) return Error{reader.status().error()};
  return weights;
}

}  // namespace firstlight
