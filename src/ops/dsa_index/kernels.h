// The inner loops of dsa_index, compiled once per instruction set.
#pragma once

#include <cstdint>

#include "ops/dispatch.h"

namespace firstlight {

struct DsaIndexKernels {
  /// I(t, .) of one query against a page of transposed keys [dim, lanes] -> scores [lanes].
  /// q [heads, dim]; w [heads] already holds the constant factor. Never gives -0.
  void (*score_page)(const float* q, const float* w, const float* keys, std::int64_t heads, std::int64_t dim,
                     std::int64_t lanes, float* scores);
  /// bf16 -> f32, exact; count is a multiple of 16.
  void (*widen)(const std::uint16_t* in, std::int64_t count, float* out);
  /// One pooled key: rows[j] and gates[j] [dim] of the pool's token j, ape [kpool, dim] -> out [dim].
  void (*pool)(const float* const* rows, const float* const* gates, const float* ape, std::int64_t kpool,
               std::int64_t dim, float* out);
};

FL_DECLARE_TABLES(DsaIndexKernels, kDsaIndexKernels)

}  // namespace firstlight
