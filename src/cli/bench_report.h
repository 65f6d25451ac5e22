// What `firstlight bench` says: figures beside the bounds that the machine sets, as a table and as JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/machine_meter.h"
#include "cli/model_flags.h"
#include "engine/meter.h"
#include "engine/model.h"
#include "engine/step_cost.h"

namespace firstlight {

/// Collects measurements; says each at once on standard error, and all of them at the end.
class BenchReport {
 public:
  /// Samples the machine's peaks, and again beside every measurement. `fast_fill`: see Meter::deepen; 0:
  /// contexts are computed.
  BenchReport(Model& model, const ModelFlags& flags, std::int64_t fast_fill, MachineMeter& machine);

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
  MachineMeter* machine_;
  std::vector<Entry> entries_;
};

}  // namespace firstlight
