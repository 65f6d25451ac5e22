// kv_b [heads, nope + v, latent] as the two forms of mla multiply with it.
#pragma once

#include <vector>

#include "base/result.h"
#include "device/cpu/packed_matrix.h"
#include "ops/kernel.h"
#include "ops/mla/setup.h"

namespace firstlight {

struct MlaWeights {
  PackedMatrix absorb_k;  // heads parts [latent, nope], the transpose of W_UK
  PackedMatrix up_k;      // heads parts [nope, latent]; only for the expanded form
  PackedMatrix up_v;      // heads parts [v, latent]
  /// In 8 bits a row of W_UK has a scale. Its transpose has the same codes, without scales: they are factors
  /// of what it meets, [heads, nope]. Else empty.
  std::vector<float> key_scales;

  [[nodiscard]] std::int64_t bytes() const;
  /// Of what rows in that form are computed with.
  [[nodiscard]] std::int64_t absorbed_bytes() const { return bytes() - up_k.bytes(); }
  [[nodiscard]] std::int64_t expanded_bytes() const { return up_k.bytes() + up_v.bytes(); }
};

/// Packs a weight in 8 bits (`bytes`), or as bf16 or f32; releases it.
Result<MlaWeights> pack_kv_b(const WeightSource& kv_b, const MlaSetup& setup, bool bytes, bool expanded,
                             PackedStore* store);

}  // namespace firstlight
