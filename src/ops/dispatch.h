// Picks the table of a kernel that was compiled once per instruction set.
#pragma once

#include "device/cpu/isa.h"

/// `FL_PICK(isa, kFooKernels)`: firstlight::avx512::kFooKernels, ::avx2:: or ::generic::, by `isa`.
/// Each op's kernels.inc is compiled once per instruction set by the build; see device/cpu/README.md.
#define FL_PICK(isa, table)                                          \
  ((isa) == ::firstlight::Isa::kAvx512 ? ::firstlight::avx512::table \
   : (isa) == ::firstlight::Isa::kAvx2 ? ::firstlight::avx2::table   \
                                       : ::firstlight::generic::table)

/// Declares the three tables of type `Type`, inside namespace firstlight.
#define FL_DECLARE_TABLES(Type, table) \
  namespace avx512 {                   \
  extern const Type table;             \
  }                                    \
  namespace avx2 {                     \
  extern const Type table;             \
  }                                    \
  namespace generic {                  \
  extern const Type table;             \
  }
