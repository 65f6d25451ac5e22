// What the machine can do just now, measured on a model's threads: the bounds that `firstlight bench` shows.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "engine/model.h"
#include "engine/step_cost.h"

namespace firstlight {

/// What all threads of the model's pool do together: bytes and operations a second.
struct MachinePeaks {
  double read = 0;
  double f32 = 0;
  double bf16 = 0;
  double int8 = 0;

  [[nodiscard]] double of(Arith arith) const {
    switch (arith) {
      case Arith::kInt8:
        return int8;
      case Arith::kInt8Wide:
        return int8 / 2;
      case Arith::kBF16:
        return bf16;
      case Arith::kF32:
        break;
    }
    return f32;
  }
};

class MachineMeter {
 public:
  /// Holds a quarter of a GB, so that what is read lies in no cache. An Error when there is none.
  static Result<std::unique_ptr<MachineMeter>> create(Model& model);

  /// Samples all peaks; the best of many short ones is what others left alone.
  void sample_peaks();
  [[nodiscard]] const MachinePeaks& peaks() const { return peaks_; }

  /// Bytes a second at this moment, the median of samples over some 10 ms: memory that others share is not
  /// always as fast as at its best.
  [[nodiscard]] double read_speed();

 private:
  using Memory = std::unique_ptr<std::byte, decltype(&std::free)>;
  MachineMeter(Model& model, Memory memory) : model_(&model), memory_(std::move(memory)) {}
  /// Seconds for the next part of the memory.
  double read_part();

  Model* model_;
  MachinePeaks peaks_;
  Memory memory_;
  int next_ = 0;
};

}  // namespace firstlight
