// What `firstlight bench` says: figures beside the bounds that the machine sets, as a table and as JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/model_flags.h"
#include "engine/meter.h"
#include "engine/model.h"
#include "engine/step_cost.h"

namespace firstlight {

/// What all threads of the model's pool do together, best of several: bytes and operations a second.
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
/// The better of `before` and of what is measured now.
MachinePeaks measure_peaks(Model& model, MachinePeaks before = {});

/// Collects measurements; says each at once on standard error, and all of them at the end.
class BenchReport {
 public:
  /// Measures the machine, and again beside every measurement: the best counts, for all of them. `fast_fill`:
  /// see Meter::deepen; 0: contexts are computed.
  BenchReport(Model& model, const ModelFlags& flags, std::int64_t fast_fill);

  void add_prefill(std::int64_t tokens, std::int64_t depth, std::int64_t chunk, MeterTimes times);
  void add_decode(std::int64_t tokens, std::int64_t depth, std::int64_t streams, MeterTimes times);

  [[nodiscard]] std::string table() const;
  [[nodiscard]] nlohmann::ordered_json json() const;

 private:
  struct Entry {
    bool prefill = false;
    std::int64_t tokens = 0;  // that one run computed, of all streams
    std::int64_t depth = 0;
    std::int64_t streams = 1;
    std::int64_t steps = 0;
    std::vector<NodeCost> costs;  // of one run
    MeterTimes times;
  };
  struct Figures;
  struct OperatorRow;
  void add(Entry entry);
  [[nodiscard]] Figures figures_of(const Entry& entry) const;
  /// By kind of operator, the slowest first.
  [[nodiscard]] std::vector<OperatorRow> operators_of(const Entry& entry) const;

  Model* model_;
  ModelFlags flags_;
  std::int64_t fast_fill_;
  double load_average_;
  MachinePeaks peaks_;
  std::vector<Entry> entries_;
};

}  // namespace firstlight
