// Table of the kda kernels, one an instruction set.
#pragma once

#include <cstdint>

#include "ops/dispatch.h"

namespace firstlight {

/// What all heads share. Plain numbers, computed once from KdaLayout.
struct KdaShape {
  std::int64_t dk;
  std::int64_t dv;
  std::int64_t panels;        // of 32 value columns
  std::int64_t key_stride;    // dk padded to 16
  std::int64_t value_stride;  // 32 * panels
  std::int64_t c, r, x;       // offsets into the state of a head, in floats
  float q_scale;              // dk^-1/2
  float lower_bound;          // of the bounded gate; 0 chooses the softplus gate
  bool head_decay;            // one decay a head, else one a key channel
};

/// Consecutive tokens of one sequence, seen by one head: pointers to the first row, steps between rows.
struct KdaRows {
  const float* q;  // [rows] x [dk], likewise k
  const float* k;
  const float* f;     // [rows] x [dk], or [rows] with one decay a head
  const float* v;     // [rows] x [dv]
  const float* beta;  // [rows]
  float* o;           // [rows] x [dv]
  std::int64_t key_step;
  std::int64_t value_step;
  std::int64_t f_step;
  std::int64_t beta_step;
  std::int64_t rows;
  std::int64_t position;  // of the first row
  const float* dt_bias;   // [key_stride] of this head, zero-padded; [1] with one decay a head
  float rate;             // exp(A_log) of this head
};

struct KdaKernels {
  /// Floats of scratch that rows() needs.
  std::int64_t (*scratch_floats)(const KdaShape& shape);
  /// Advances the state of one head, layout.h, by the rows.
  void (*rows)(const KdaShape& shape, const KdaRows& rows, float* state, float* scratch);
  /// s0_out [panels, dk, 32] = the state after `position` tokens.
  void (*state_at)(const KdaShape& shape, const float* state, std::int64_t position, float* s0_out);
  /// In place, the same bits on every machine.
  void (*exp)(float* x, std::int64_t n);
};
FL_DECLARE_TABLES(KdaKernels, kKdaKernels)

}  // namespace firstlight
