// What config.json says about how the weights of a checkpoint are stored.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace firstlight {

enum class WeightFormat : std::uint8_t {
  kPlain,  // BF16, F16, F32
  kFP8,    // E4M3 codes, one scale a block of rows x columns
  kInt,    // 4 or 8 bit integers in 32 bit words, one scale a group of columns
  kMXFP4   // E2M1 codes, one power of two a group of 32 columns
};

constexpr std::string_view format_name(WeightFormat f) {
  switch (f) {
    case WeightFormat::kPlain:
      return "plain";
    case WeightFormat::kFP8:
      return "fp8";
    case WeightFormat::kInt:
      return "int";
    case WeightFormat::kMXFP4:
      return "mxfp4";
  }
  return "?";
}

/// The one packed format that a checkpoint may use besides plain tensors. Which tensors use it is decided by
/// what is stored; those that `not_converted` covers must be plain.
struct Quantization {
  WeightFormat format = WeightFormat::kPlain;  // kPlain: config.json declares none
  std::int64_t block_rows = 1;                 // rows that share a scale; 0: all rows
  std::int64_t block_columns = 0;              // columns that share a scale; 0: all columns
  std::int64_t bits = 0;                       // kInt: 4 or 8
  /// Modules, as in quantization_config: a path whose components may be given from the left ("lm_head",
  /// "model.layers.0.mlp.gate") or from the right ("gate"), `*` standing for any text; or, behind "re:", a
  /// regular expression for the whole path.
  std::vector<std::string> not_converted = {};
};

}  // namespace firstlight
