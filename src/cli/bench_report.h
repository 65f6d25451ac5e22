// What `firstlight bench` says: figures beside the bounds that the machine sets, as a table and as JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

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
    return arith == Arith::kInt8 ? int8 : arith == Arith::kBF16 ? bf16 : f32;
  }
};
MachinePeaks measure_peaks(Model& model);

class BenchReport {
 public:
  /// Measures the machine. `table`: every figure is printed to standard output when it is there.
  BenchReport(Model& model, const ModelFlags& flags, bool table);

  void add_prefill(std::int64_t tokens, std::int64_t depth, std::int64_t chunk, const MeterTimes& times);
  void add_decode(std::int64_t tokens, std::int64_t depth, std::int64_t streams, const MeterTimes& times);

  /// Writes the JSON to the file ("-": standard output, "": nowhere).
  Status finish(const std::string& json_file);

 private:
  struct Result {
    const char* kind;
    std::int64_t tokens;  // that one run computed, of all streams
    std::int64_t depth;
    std::int64_t streams;
    std::int64_t steps;
  };
  void add(const Result& result, const std::vector<NodeCost>& costs, const MeterTimes& times);
  void add_operators(const Result& result, const std::vector<NodeCost>& costs, const MeterTimes& times,
                     nlohmann::ordered_json& entry);
  void print(const std::string& text);

  Model* model_;
  bool table_;
  bool output_failed_ = false;
  MachinePeaks peaks_;
  nlohmann::ordered_json json_;
};

}  // namespace firstlight
