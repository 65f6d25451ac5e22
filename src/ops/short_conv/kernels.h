// Table of the short_conv kernels, one an instruction set.
#pragma once

#include <cstdint>

#include "ops/dispatch.h"

namespace firstlight {

/// Consecutive rows of one sequence, channels [begin, end).
struct ShortConvRows {
  const float* x;  // [rows, channels]
  float* y;        // [rows, channels]
  std::int64_t rows;
  std::int64_t channels;
  std::int64_t begin;
  std::int64_t end;
  const float* weight;  // [taps, channels]
  std::int64_t taps;    // 2..8
  void* history;        // [taps - 1, channels], oldest first; read and brought up to date
  bool fresh;           // the sequence starts here: the history is zero whatever memory holds
};

struct ShortConvKernels {
  void (*f32)(const ShortConvRows& rows);
  /// bf16 history; x is rounded to bf16 before use, so that a row does not depend on how it arrives.
  void (*bf16)(const ShortConvRows& rows);
};
FL_DECLARE_TABLES(ShortConvKernels, kShortConvKernels)

}  // namespace firstlight
