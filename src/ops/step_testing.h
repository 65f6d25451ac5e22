// Runs one operator that keeps no caches on whole steps, and holds it to the promise of all such operators:
// the bits of a row are a function of that row alone.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "ops/op_testing.h"

namespace firstlight::testing {

struct TestStep {
  std::vector<std::int32_t> tokens;      // [T]
  std::vector<std::int32_t> sampled;     // [R]
  std::vector<Words> inputs;             // the value inputs, flattened in slot order
  const std::int32_t* forced = nullptr;  // Step::forced of this node
};

/// One kernel without sequences. Outputs and scratch are watched: nothing may be written behind them.
class StepKernel {
 public:
  StepKernel(const TestOp& op, const TestSettings& settings)
      : op_(op), spec_(op.spec()), weights_(op.weights()), pool_(settings.threads) {
    auto types = op.contract().infer(spec_);
    check(types.ok(), types.ok() ? "" : types.error().message.c_str());
    outputs_ = *types;
    const StepLimits limits{settings.max_tokens, settings.max_tokens, 1, settings.max_tokens};
    context_ = std::make_unique<KernelContext>(
        KernelContext{spec_, 0, weights_, {}, limits, settings.isa, settings.f32, settings.threads});
    auto kernel = op.maker()(*context_);
    check(kernel.ok(), kernel.ok() ? "" : kernel.error().message.c_str());
    kernel_ = std::move(*kernel);
    scratch_ = std::make_unique<AlignedBytes>(kernel_->scratch_bytes() + kBorder, 0xff);
  }

  /// The outputs, each [rows, width].
  std::vector<Words> run(const TestStep& in) {
    Step step;
    step.tokens = in.tokens;
    step.sampled_rows = in.sampled;
    const std::int32_t* forced[] = {in.forced};
    step.forced = forced;
    std::vector<const void*> in_pointers;
    for (const Words& input : in.inputs) in_pointers.push_back(input.data());
    std::vector<Words> out;
    std::vector<void*> out_pointers;
    for (const ValueType& type : outputs_) {
      const auto size = static_cast<std::size_t>(step.rows(type.rows) * type.width());
      out.emplace_back(size + kBorder, std::bit_cast<float>(kUntouched));
    }
    for (Words& words : out) out_pointers.push_back(words.data());
    kernel_->run(step, NodeIo{in_pointers, out_pointers, scratch_->data()}, pool_);
    for (Words& words : out) {
      for (std::size_t i = words.size() - kBorder; i < words.size(); ++i) {
        EXPECT_EQ(std::bit_cast<std::uint32_t>(words[i]), kUntouched) << "wrote behind an output";
      }
      words.resize(words.size() - kBorder);
    }
    for (std::int64_t i = scratch_->bytes() - kBorder; i < scratch_->bytes(); ++i) {
      EXPECT_EQ(scratch_->data()[i], 0xff) << "wrote behind the scratch";
    }
    return out;
  }

  /// One step of `rows` rows of whatever kind the first value input has.
  std::vector<Words> run_rows(std::vector<Words> inputs, std::int64_t rows) {
    TestStep step;
    step.inputs = std::move(inputs);
    const auto count = static_cast<std::size_t>(rows);
    if (spec_.input(spec_.contract().inputs[0].name).rows == Rows::kSampled) {
      // More tokens than sampled rows: who takes one for the other writes too much.
      step.tokens.resize(count + 3);
      step.sampled.resize(count);
      std::iota(step.sampled.begin(), step.sampled.end(), 1);
    } else {
      step.tokens.resize(count);
    }
    return run(step);
  }

 private:
  static constexpr std::int64_t kBorder = 64;
  static constexpr std::uint32_t kUntouched = 0x7fc0dead;

  TestOp op_;  // owns the weights, which a kernel may read as it runs
  NodeSpec spec_;
  std::vector<std::vector<const WeightSource*>> weights_;
  ThreadPool pool_;
  std::vector<ValueType> outputs_;
  std::unique_ptr<KernelContext> context_;
  std::unique_ptr<Kernel> kernel_;
  std::unique_ptr<AlignedBytes> scratch_;
};

/// Rows [begin, begin + count) of [rows, width].
inline Words rows_of(const Words& words, std::int64_t rows, std::int64_t begin, std::int64_t count) {
  const std::int64_t width = static_cast<std::int64_t>(words.size()) / rows;
  return {words.begin() + begin * width, words.begin() + (begin + count) * width};
}

/// Words that differ; any NaN equals any NaN, whose payload is the instruction set's.
inline std::int64_t different_values(const Words& a, const Words& b) {
  if (a.size() != b.size()) return static_cast<std::int64_t>(std::max(a.size(), b.size()));
  std::int64_t n = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool same = std::bit_cast<std::uint32_t>(a[i]) == std::bit_cast<std::uint32_t>(b[i]) ||
                      (std::isnan(a[i]) && std::isnan(b[i]));
    n += same ? 0 : 1;
  }
  return n;
}

/// Runs the rows in one step, one by one, in uneven pieces and behind other rows, with one thread and with
/// two, on every instruction set. Expects the same bits of every row each time and returns the outputs.
inline std::vector<Words> expect_rows_alone_decide(const TestOp& op, const std::vector<Words>& inputs,
                                                   std::int64_t rows, bool f32 = true) {
  TestSettings settings{.f32 = f32, .max_tokens = 2 * rows + 3};
  const std::vector<Words> whole = StepKernel(op, settings).run_rows(inputs, rows);
  const auto compare = [&](const std::vector<Words>& out, std::int64_t begin, std::int64_t count,
                           const char* how) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      EXPECT_EQ(different_values(out[i], rows_of(whole[i], rows, begin, count)), 0)
          << op.contract().name << " " << how << ", output " << i << ", rows " << begin << " + " << count
          << " of " << rows << ", " << isa_name(settings.isa) << ", " << settings.threads << " threads, f32 "
          << f32;
    }
  };
  const auto inputs_of = [&](std::int64_t begin, std::int64_t count) {
    std::vector<Words> some;
    for (const Words& input : inputs) some.push_back(rows_of(input, rows, begin, count));
    return some;
  };
  for (const Isa isa : available_isas()) {
    for (const int threads : {1, 2}) {
      settings.isa = isa;
      settings.threads = threads;
      StepKernel kernel(op, settings);
      compare(kernel.run_rows(inputs, rows), 0, rows, "at once");
      for (std::int64_t r = 0; r < rows; ++r)
        compare(kernel.run_rows(inputs_of(r, 1), 1), r, 1, "one by one");
      for (std::int64_t begin = 0, size = 1; begin < rows; begin += size, size += 2) {
        size = std::min(size, rows - begin);
        compare(kernel.run_rows(inputs_of(begin, size), size), begin, size, "in pieces");
      }
      // Behind all the rows but one: every row at another place, after other neighbours.
      std::vector<Words> twice = inputs_of(1, rows - 1);
      for (std::size_t i = 0; i < twice.size(); ++i) {
        twice[i].insert(twice[i].end(), inputs[i].begin(), inputs[i].end());
      }
      std::vector<Words> behind = kernel.run_rows(twice, 2 * rows - 1);
      for (Words& out : behind) out = rows_of(out, 2 * rows - 1, rows - 1, rows);
      compare(behind, 0, rows, "behind others");
    }
  }
  return whole;
}

}  // namespace firstlight::testing
