// What the executor asks of an operator's implementation on a device. Kernels see buffers, weights and a
// step; they never see a graph, a model or Python.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/tensor.h"
#include "base/thread_pool.h"
#include "device/cpu/isa.h"
#include "device/cpu/packed_store.h"
#include "ops/contract.h"
#include "ops/settings.h"

namespace firstlight {

/// One sequence's rows in a step: rows [first_row, first_row + rows) are its tokens at absolute positions
/// [position, position + rows).
struct SequenceRows {
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t position = 0;
  const std::int64_t* pages = nullptr;  // pages[p] holds tokens 64p .. 64p+63; enough for all rows
  std::uint8_t* state = nullptr;        // the sequence's block of per-sequence caches
  /// The rows are tokens that the model itself put out, not a prompt's. Only RunSettings that trade the
  /// equality of both away may look.
  bool generated = false;
};

/// A ragged batch: any mix of prompt pieces and single tokens of many sequences.
struct Step {
  std::span<const std::int32_t> tokens;        // [T]
  std::span<const SequenceRows> sequences;     // cover all rows, ascending
  std::span<const std::int32_t> sampled_rows;  // [R] rows whose logits are wanted, ascending
  std::uint8_t* page_base = nullptr;           // page p starts at page_base + p * page_bytes
  std::int64_t page_bytes = 0;
  std::span<const std::int32_t* const> forced;  // by node: choices given from outside ([T, width]), or null

  [[nodiscard]] std::int64_t rows() const { return static_cast<std::int64_t>(tokens.size()); }
  /// Rows of a value of that kind in this step.
  [[nodiscard]] std::int64_t rows(Rows kind) const {
    return kind == Rows::kSampled ? static_cast<std::int64_t>(sampled_rows.size()) : rows();
  }
  [[nodiscard]] std::uint8_t* page(std::int64_t id) const { return page_base + id * page_bytes; }
};

/// Upper bounds known when a program is compiled; buffers and scratch are sized by them.
struct StepLimits {
  std::int64_t tokens = 1;   // T
  std::int64_t sampled = 1;  // R
  std::int64_t sequences = 1;
  std::int64_t context = 0;  // longest sequence, in tokens

  [[nodiscard]] std::int64_t rows(Rows kind) const { return kind == Rows::kSampled ? sampled : tokens; }
};

/// A weight as the checkpoint holds it, readable row by row with exact conversion.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  [[nodiscard]] virtual const std::string& name() const = 0;
  [[nodiscard]] virtual const Shape& shape() const = 0;  // as the model file declared it
  /// True when every element is exact in bf16 (BF16, MXFP4): such weights stay bf16 in f32 mode too.
  [[nodiscard]] virtual bool exact_in_bf16() const = 0;
  /// Rows [begin, begin + count) of the tensor seen as [rows, elements / rows], rows = shape()[0].
  virtual Status read_rows(std::int64_t begin, std::int64_t count, float* out) const = 0;
  /// The row as it lies in the file, not necessarily aligned, when it is stored in one piece as plain numbers
  /// of this type; else null.
  [[nodiscard]] virtual const std::uint8_t* stored_row(std::int64_t /*row*/, DType /*type*/) const {
    return nullptr;
  }
  /// The form of few bits in which the weight is stored and kernels can hold it as it is; kStored when there
  /// is none.
  [[nodiscard]] virtual HeldAs stored_form() const { return HeldAs::kStored; }
  /// A row in that form, as device/cpu/quantise.h lays out codes and scales. False: only read_rows knows the
  /// row, and rounding what it gives to the form loses nothing that matters.
  virtual Result<bool> read_codes(std::int64_t /*row*/, std::int8_t* /*codes*/,
                                  std::uint8_t* /*scales*/) const {
    return false;
  }
  /// Whether read_rows can fail: codes or scales that are no numbers.
  [[nodiscard]] virtual bool reading_may_fail() const { return false; }
  /// The kernel has all it needs of the weight: what is stored may leave the memory. Reading it again is
  /// allowed.
  virtual void release() const {}

  [[nodiscard]] std::int64_t elements() const { return element_count(shape()); }
  [[nodiscard]] std::int64_t rows() const { return shape().empty() ? 1 : shape()[0]; }
};

/// Everything of a small weight as f32; releases it.
Result<std::vector<float>> read_all(const WeightSource& weight);

/// Where a cache of the node lies: in each page (scope kPerPage) or in the sequence's state block.
struct CachePlace {
  std::int64_t offset = 0;    // bytes; 64-byte aligned
  DType dtype = DType::kF32;  // F32, BF16, or U8 for kBytes
};

/// What a kernel is built from.
struct KernelContext {
  const NodeSpec& node;
  int node_index = 0;                                     // for Step::forced
  std::vector<std::vector<const WeightSource*>> weights;  // by input slot; empty for value slots
  std::vector<CachePlace> caches;                         // in the order of OpContract::caches
  StepLimits limits;
  Isa isa = Isa::kGeneric;
  bool f32 = true;  // f32 mode: f32 arithmetic and caches; else bf16 products, f32 sums
  int threads = 1;
  RunSettings settings = {};
  ThreadPool* pool = nullptr;    // for packing; null: the calling thread does it all
  PackedStore* store = nullptr;  // of matrices packed before

  /// Weights of a slot by name; empty when not given.
  [[nodiscard]] const std::vector<const WeightSource*>& weight_list(std::string_view slot) const;
  [[nodiscard]] const WeightSource& weight(std::string_view slot) const { return *weight_list(slot).front(); }
};

/// Buffers of one node in one step. Values are dense row-major [rows, width]; f32 or i32.
struct NodeIo {
  std::span<const void* const> inputs;  // value slots only, flattened in slot order (variadic spread out)
  std::span<void* const> outputs;
  std::uint8_t* scratch = nullptr;  // scratch_bytes() bytes, 64-byte aligned, contents undefined

  [[nodiscard]] const float* in(std::size_t i) const { return static_cast<const float*>(inputs[i]); }
  [[nodiscard]] const std::int32_t* in_i32(std::size_t i) const {
    return static_cast<const std::int32_t*>(inputs[i]);
  }
  [[nodiscard]] float* out(std::size_t i = 0) const { return static_cast<float*>(outputs[i]); }
  [[nodiscard]] std::int32_t* out_i32(std::size_t i = 0) const {
    return static_cast<std::int32_t*>(outputs[i]);
  }
};

/// A value that a stateful operator can show besides its outputs (`forward --values state,conv`).
struct StateValue {
  std::string name;  // "state", "conv"
  Shape shape;
};

/// One node, ready to run: weights packed, constants folded. run() allocates nothing.
class Kernel {
 public:
  Kernel() = default;
  virtual ~Kernel() = default;
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  virtual void run(const Step& step, const NodeIo& io, ThreadPool& pool) = 0;
  /// Scratch of one run under `limits` of the context, shared by all nodes (one runs at a time).
  [[nodiscard]] virtual std::int64_t scratch_bytes() const { return 0; }
  /// Bytes of packed weights held.
  [[nodiscard]] virtual std::int64_t weight_bytes() const { return 0; }
  /// Those of them that a step of rows which the model `generated`, or of a prompt's rows, reads.
  [[nodiscard]] virtual std::int64_t read_bytes(bool /*generated*/) const { return weight_bytes(); }
  [[nodiscard]] virtual std::vector<StateValue> state_values() const { return {}; }
  /// Writes state_values()[i] of the sequence whose state block is given, as f32, after `position` tokens.
  virtual void export_state(std::size_t /*i*/, const std::uint8_t* /*state*/, std::int64_t /*position*/,
                            float* /*out*/) const {}
};

using MakeKernel = Result<std::unique_ptr<Kernel>> (*)(const KernelContext&);

}  // namespace firstlight
