// Runs one operator outside of a graph, for tests and benchmarks: builds the NodeSpec and the kernel,
// lays out caches as the cache manager would, and feeds sequences piece by piece in ragged steps.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/kernel.h"

namespace firstlight::testing {

/// A weight that lives in the test.
class TestWeight final : public WeightSource {
 public:
  TestWeight(std::string name, Shape shape, std::vector<float> data, bool exact_in_bf16 = false)
      : name_(std::move(name)), shape_(std::move(shape)), data_(std::move(data)), exact_(exact_in_bf16) {
    check(elements() == static_cast<std::int64_t>(data_.size()), "a test weight has another size");
  }
  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] const Shape& shape() const override { return shape_; }
  [[nodiscard]] bool exact_in_bf16() const override { return exact_; }
  [[nodiscard]] const std::vector<float>& data() const { return data_; }
  Status read_rows(std::int64_t begin, std::int64_t count, float* out) const override {
    const std::int64_t width = rows() == 0 ? 0 : elements() / rows();
    std::memcpy(out, data_.data() + begin * width, static_cast<std::size_t>(count * width) * sizeof(float));
    return {};
  }

 private:
  std::string name_;
  Shape shape_;
  std::vector<float> data_;
  bool exact_;
};

/// Zeroed memory on a cache line.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::int64_t bytes, int fill = 0)
      : bytes_(bytes),
        data_(static_cast<std::uint8_t*>(
            ::operator new (static_cast<std::size_t>(bytes) + 64, std::align_val_t{64}))) {
    std::memset(data_.get(), fill, static_cast<std::size_t>(bytes));
  }
  [[nodiscard]] std::uint8_t* data() const { return data_.get(); }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::uint8_t* p) const { ::operator delete (p, std::align_val_t{64}); }
  };
  std::int64_t bytes_;
  std::unique_ptr<std::uint8_t, Free> data_;
};

/// Zeroed address space that takes memory only where it is touched.
class SparseBytes {
 public:
  explicit SparseBytes(std::int64_t bytes)
      : bytes_(static_cast<std::size_t>(bytes)),
        data_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                   0)) {
    check(data_ != MAP_FAILED, "a test cannot reserve address space");
  }
  ~SparseBytes() { munmap(data_, bytes_); }
  SparseBytes(const SparseBytes&) = delete;
  SparseBytes& operator=(const SparseBytes&) = delete;
  [[nodiscard]] std::uint8_t* data() const { return static_cast<std::uint8_t*>(data_); }

 private:
  std::size_t bytes_;
  void* data_;
};

/// A node under construction. Slots and attributes are given by name; what is missing takes the fallback.
class TestOp {
 public:
  TestOp(const OpContract& contract, MakeKernel make)
      : contract_(&contract),
        make_(make),
        inputs_(contract.inputs.size()),
        weights_(contract.inputs.size()) {}

  /// A value of type f32[T, width]; call again for the next value of a variadic slot.
  TestOp& value(std::string_view slot, std::int64_t width) {
    return value(slot, ValueType{DType::kF32, Rows::kTokens, {width}});
  }
  TestOp& value(std::string_view slot, ValueType type) {
    inputs_[index(slot)].push_back(std::move(type));
    return *this;
  }
  TestOp& weight(std::string_view slot, Shape shape, std::vector<float> data, bool exact_in_bf16 = false) {
    const std::size_t i = index(slot);
    inputs_[i].push_back(ValueType{DType::kF32, Rows::kFixed, shape});
    weights_[i].push_back(
        std::make_shared<TestWeight>(std::string(slot), std::move(shape), std::move(data), exact_in_bf16));
    return *this;
  }
  TestOp& set(const std::string& name, Attribute value) {
    attributes_[name] = std::move(value);
    return *this;
  }

  [[nodiscard]] NodeSpec spec() const {
    std::vector<Attribute> attributes;
    for (const AttributeSpec& a : contract_->attributes) {
      const auto given = attributes_.find(std::string(a.name));
      check(given != attributes_.end() || a.fallback.has_value(), "a test leaves out an attribute");
      attributes.push_back(given != attributes_.end() ? given->second : *a.fallback);
    }
    return {*contract_, inputs_, std::move(attributes)};
  }
  [[nodiscard]] Result<std::vector<ValueType>> infer() const { return contract_->infer(spec()); }
  [[nodiscard]] const OpContract& contract() const { return *contract_; }
  [[nodiscard]] MakeKernel maker() const { return make_; }
  [[nodiscard]] std::vector<std::vector<const WeightSource*>> weights() const {
    std::vector<std::vector<const WeightSource*>> out(weights_.size());
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      for (const auto& w : weights_[i]) out[i].push_back(w.get());
    }
    return out;
  }

 private:
  [[nodiscard]] std::size_t index(std::string_view slot) const {
    for (std::size_t i = 0; i < contract_->inputs.size(); ++i) {
      if (contract_->inputs[i].name == slot) return i;
    }
    check(false, "a test names an input slot that the contract does not declare");
    return 0;
  }

  const OpContract* contract_;
  MakeKernel make_;
  std::vector<std::vector<ValueType>> inputs_;
  std::vector<std::vector<std::shared_ptr<const TestWeight>>> weights_;
  std::map<std::string, Attribute> attributes_;
};

/// f32 or i32 rows of one value; i32 travels as its bits.
using Words = std::vector<float>;
inline Words int_words(const std::vector<std::int32_t>& v) {
  Words out(v.size());
  if (!v.empty()) std::memcpy(out.data(), v.data(), v.size() * sizeof(float));
  return out;
}
inline std::vector<std::int32_t> words_int(const Words& v) {
  std::vector<std::int32_t> out(v.size());
  if (!v.empty()) std::memcpy(out.data(), v.data(), v.size() * sizeof(float));
  return out;
}

/// What FIRSTLIGHT_ISA asks for, else the best: the build runs these tests once per instruction set.
inline Isa chosen_isa() {
  const Result<Isa> isa = choose_isa();
  check(isa.ok(), isa.ok() ? "" : isa.error().message.c_str());
  return *isa;
}

/// How a session is set up.
struct TestSettings {
  Isa isa = chosen_isa();
  bool f32 = true;
  int threads = 1;
  std::int64_t max_tokens = 512;    // of one step
  std::int64_t max_context = 4096;  // of one sequence
  std::int64_t max_sequences = 8;
  int stale = 0;  // every byte of fresh state and pages
  // Above 1: page ids are multiples of this, in reserved (zeroed) address space, so that offsets grow large.
  std::int64_t page_spread = 1;
  RunSettings run = {};
};

/// One kernel and some sequences in progress.
class TestSession {
 public:
  struct Sequence {
    std::vector<Words> inputs;   // by value input, flattened in slot order: [tokens, width] each
    std::vector<Words> outputs;  // rows so far
    std::int64_t position = 0;
    std::vector<std::int64_t> pages;
    std::unique_ptr<AlignedBytes> state;
  };
  /// `rows` more tokens of a sequence.
  struct Piece {
    std::size_t sequence;
    std::int64_t rows;
    bool generated = false;
  };

  TestSession(const TestOp& op, const TestSettings& settings)
      : settings_(settings), spec_(op.spec()), weights_(op.weights()), pool_(settings.threads) {
    auto types = op.contract().infer(spec_);
    check(types.ok(), types.ok() ? "" : types.error().message.c_str());
    outputs_ = *types;
    for (const InputSlot& slot : op.contract().inputs) {
      if (slot.kind == InputSlot::Kind::kWeight) continue;
      for (const ValueType& type : spec_.inputs(slot.name)) inputs_.push_back(type);
    }
    if (op.contract().caches != nullptr) place_caches(op.contract().caches(spec_));
    const StepLimits limits{settings.max_tokens, settings.max_tokens, settings.max_sequences,
                            settings.max_context};
    context_ = std::make_unique<KernelContext>(KernelContext{
        spec_, 0, weights_, places_, limits, settings.isa, settings.f32, settings.threads, settings.run});
    auto kernel = op.maker()(*context_);
    check(kernel.ok(), kernel.ok() ? "" : kernel.error().message.c_str());
    kernel_ = std::move(*kernel);
    scratch_ = std::make_unique<AlignedBytes>(kernel_->scratch_bytes(), 0xff);
    const std::int64_t page_count =
        settings.max_sequences * ((settings.max_context + kPageTokens - 1) / kPageTokens);
    if (page_bytes_ > 0 && settings.page_spread == 1) {
      pages_ = std::make_unique<AlignedBytes>(page_bytes_ * page_count, settings.stale);
      page_base_ = pages_->data();
    } else if (page_bytes_ > 0) {
      sparse_pages_ = std::make_unique<SparseBytes>(page_bytes_ * page_count * settings.page_spread);
      page_base_ = sparse_pages_->data();
    }
    for (std::int64_t p = 0; p < page_count; ++p) free_pages_.push_back(p * settings.page_spread);
    std::shuffle(free_pages_.begin(), free_pages_.end(), std::minstd_rand(1));
  }

  /// A new sequence whose whole inputs are given; returns its index.
  std::size_t add(std::vector<Words> inputs) {
    Sequence s;
    s.inputs = std::move(inputs);
    s.outputs.resize(outputs_.size());
    s.state = std::make_unique<AlignedBytes>(state_bytes_, settings_.stale);
    sequences_.push_back(std::move(s));
    return sequences_.size() - 1;
  }

  /// One step; every listed sequence advances and its outputs grow.
  void step(const std::vector<Piece>& pieces) {
    std::int64_t rows = 0;
    std::vector<SequenceRows> table;
    for (const Piece& piece : pieces) {
      Sequence& s = sequences_[piece.sequence];
      while (static_cast<std::int64_t>(s.pages.size()) * kPageTokens < s.position + piece.rows) {
        check(!free_pages_.empty(), "a test session has no pages left");
        s.pages.push_back(free_pages_.back());
        free_pages_.pop_back();
      }
      table.push_back({rows, piece.rows, s.position, s.pages.data(), s.state->data(), piece.generated});
      rows += piece.rows;
    }
    const std::vector<std::int32_t> tokens(static_cast<std::size_t>(rows), 0);
    std::vector<Words> in(inputs_.size());
    std::vector<Words> out(outputs_.size());
    std::vector<const void*> in_pointers;
    std::vector<void*> out_pointers;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const std::int64_t width = inputs_[i].width();
      for (const Piece& piece : pieces) {
        const Sequence& s = sequences_[piece.sequence];
        const auto begin = s.inputs[i].begin() + s.position * width;
        in[i].insert(in[i].end(), begin, begin + piece.rows * width);
      }
      in_pointers.push_back(in[i].data());
    }
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      out[i].assign(static_cast<std::size_t>(rows * outputs_[i].width()), std::bit_cast<float>(0x7fc0dead));
      out_pointers.push_back(out[i].data());
    }
    const std::vector<std::int32_t> sampled;
    Step step;
    step.tokens = tokens;
    step.sequences = table;
    step.sampled_rows = sampled;
    step.page_base = page_base_;
    step.page_bytes = page_bytes_;
    step.forced = forced;
    kernel_->run(step, NodeIo{in_pointers, out_pointers, scratch_->data()}, pool_);
    for (std::size_t p = 0; p < pieces.size(); ++p) {
      Sequence& s = sequences_[pieces[p].sequence];
      for (std::size_t i = 0; i < outputs_.size(); ++i) {
        const std::int64_t width = outputs_[i].width();
        const auto begin = out[i].begin() + table[p].first_row * width;
        s.outputs[i].insert(s.outputs[i].end(), begin, begin + pieces[p].rows * width);
      }
      s.position += pieces[p].rows;
    }
  }

  /// Feeds a sequence alone, in pieces of these sizes.
  void feed(std::size_t sequence, const std::vector<std::int64_t>& cuts) {
    for (const std::int64_t rows : cuts) step({{sequence, rows}});
  }

  /// state_values()[i] of a sequence after the tokens fed so far.
  [[nodiscard]] Words exported(std::size_t sequence, std::size_t i = 0) const {
    const Sequence& s = sequences_[sequence];
    Words out(static_cast<std::size_t>(element_count(kernel_->state_values()[i].shape)));
    kernel_->export_state(i, s.state->data(), s.position, out.data());
    return out;
  }

  [[nodiscard]] const Words& output(std::size_t sequence, std::size_t i = 0) const {
    return sequences_[sequence].outputs[i];
  }
  [[nodiscard]] Sequence& sequence(std::size_t i) { return sequences_[i]; }
  [[nodiscard]] Kernel& kernel() { return *kernel_; }
  [[nodiscard]] std::uint8_t* page(std::int64_t id) const { return page_base_ + id * page_bytes_; }
  [[nodiscard]] std::int64_t page_bytes() const { return page_bytes_; }
  [[nodiscard]] const std::vector<CachePlace>& places() const { return places_; }
  [[nodiscard]] std::int64_t state_bytes() const { return state_bytes_; }

  std::vector<const std::int32_t*> forced;  // Step::forced of the next steps; this node is number 0

 private:
  void place_caches(const std::vector<CacheSpec>& caches) {
    for (const CacheSpec& cache : caches) {
      const DType dtype = storage_dtype(cache.storage, settings_.f32);
      std::int64_t& end = cache.scope == CacheSpec::Scope::kPerPage ? page_bytes_ : state_bytes_;
      places_.push_back({end, dtype});
      end += (cache.elements * static_cast<std::int64_t>(dtype_size(dtype)) + 63) / 64 * 64;
    }
  }

  TestSettings settings_;
  NodeSpec spec_;
  std::vector<std::vector<const WeightSource*>> weights_;
  ThreadPool pool_;
  std::vector<ValueType> inputs_;
  std::vector<ValueType> outputs_;
  std::vector<CachePlace> places_;
  std::int64_t page_bytes_ = 0;
  std::int64_t state_bytes_ = 0;
  std::unique_ptr<KernelContext> context_;
  std::unique_ptr<Kernel> kernel_;
  std::unique_ptr<AlignedBytes> scratch_;
  std::unique_ptr<AlignedBytes> pages_;
  std::unique_ptr<SparseBytes> sparse_pages_;
  std::uint8_t* page_base_ = nullptr;  // of whichever is there
  std::vector<std::int64_t> free_pages_;
  std::vector<Sequence> sequences_;
};

/// Number of words whose bits differ.
inline std::int64_t differing_words(const Words& a, const Words& b) {
  if (a.size() != b.size()) return static_cast<std::int64_t>(std::max(a.size(), b.size()));
  std::int64_t n = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    n += std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i]);
  }
  return n;
}

/// max |a - b| / max |b|; infinite when something is not finite.
inline double relative_error(const Words& a, const std::vector<double>& b) {
  double worst = 0;
  double size = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - b[i]);
    if (!(difference <= 1e300)) return HUGE_VAL;
    worst = std::max(worst, difference);
    size = std::max(size, std::abs(b[i]));
  }
  return size == 0 ? worst : worst / size;
}

/// Normal numbers, the same on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  /// In [0, 1).
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(uniform() * static_cast<double>(high - low + 1));
  }
  double normal() {
    const double u = 1.0 - uniform();
    return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * uniform());
  }
  Words normals(std::int64_t n, double scale = 1.0) {
    Words out(static_cast<std::size_t>(n));
    for (float& x : out) x = static_cast<float>(scale * normal());
    return out;
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace firstlight::testing
