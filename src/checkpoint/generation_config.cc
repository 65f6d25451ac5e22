#include "checkpoint/generation_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json_limits.h"
#include "base/mapped_file.h"
#include "checkpoint/config.h"
#include "checkpoint/problem_list.h"

namespace firstlight {

namespace {

using Json = nlohmann::ordered_json;

constexpr double kLargestFactor = 1e6;  // beyond it the logits lose all meaning
constexpr std::int64_t kMaxId = std::numeric_limits<std::int32_t>::max();

std::optional<std::int64_t> as_integer(const Json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() &&
      value.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
    return std::nullopt;
  }
  return value.get<std::int64_t>();
}

/// Moves fields from the object into the struct and collects what is wrong with them.
class Reader {
 public:
  explicit Reader(const Json& object) : object_(object) {}

  void boolean(const char* name, std::optional<bool>& out) {
    const Json* value = take(name);
    if (value == nullptr) return;
    if (!value->is_boolean()) return problem(name, "true or false");
    out = value->get<bool>();
  }

  void number(const char* name, double low, double high, const char* expected, std::optional<double>& out) {
    const Json* value = take(name);
    if (value == nullptr) return;
    if (!value->is_number()) return problem(name, expected);
    const auto x = value->get<double>();
    if (!(x >= low && x <= high && std::isfinite(x))) return problem(name, expected);
    out = x;
  }

  template <class Int>
  void integer(const char* name, std::int64_t low, const char* expected, std::optional<Int>& out) {
    const Json* value = take(name);
    if (value == nullptr) return;
    const auto x = as_integer(*value);
    if (!x || *x < low || *x > std::int64_t{std::numeric_limits<Int>::max()}) return problem(name, expected);
    out = static_cast<Int>(*x);
  }

  void ids(const char* name, std::vector<std::int32_t>& out) {
    const Json* value = take(name);
    if (value == nullptr) return;
    constexpr const char* kExpected = "a token id or a list of 1 to 1024 of them";
    const Json list = value->is_array() ? *value : Json::array({*value});
    // Published lists have fewer than ten; the limit keeps the search for repetitions short.
    if (list.empty() || list.size() > 1024) return problem(name, kExpected);
    for (const Json& item : list) {
      const auto x = as_integer(item);
      if (!x || *x < 0 || *x > kMaxId) return problem(name, kExpected);
      const auto id = static_cast<std::int32_t>(*x);
      if (std::find(out.begin(), out.end(), id) == out.end()) out.push_back(id);
    }
  }

  [[nodiscard]] std::vector<std::string> unknown_keys() const {
    static constexpr const char* kBookKeeping[] = {"transformers_version", "_from_model_config",
                                                   "_commit_hash"};
    std::vector<std::string> names;
    for (const auto& [name, value] : object_.items()) {
      const auto known = [&n = name](const auto& k) { return n == k; };
      if (std::any_of(taken_.begin(), taken_.end(), known)) continue;
      if (std::any_of(std::begin(kBookKeeping), std::end(kBookKeeping), known)) continue;
      names.push_back(name);
    }
    return names;
  }

  [[nodiscard]] std::string problems() const { return problems_.line(); }

 private:
  const Json* take(const char* name) {
    taken_.emplace_back(name);
    const auto it = object_.find(name);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }

  void problem(const char* name, const char* expected) {
    problems_.add(quote_text(name) + " is not " + expected);
  }

  const Json& object_;
  std::vector<std::string> taken_;
  ProblemList problems_{"wrong fields"};
};

}  // namespace

Result<GenerationDefaults> read_generation_config(const std::string& path) {
  if (!name_is_taken(path)) return GenerationDefaults{};
  FL_ASSIGN(const std::string text, read_file(path, JsonLimits().max_bytes));
  return parse_generation_config(text, path);
}

Result<GenerationDefaults> parse_generation_config(std::string_view text, const std::string& path) {
  FL_ASSIGN(const Json config, parse_config(text, path));
  GenerationDefaults d;
  Reader reader(config);
  reader.boolean("do_sample", d.do_sample);
  reader.number("temperature", 0, kLargestFactor, "a number from 0 to 1000000", d.temperature);
  reader.number("top_p", 0, 1, "a number from 0 to 1", d.top_p);
  reader.integer("top_k", -1, "an integer of at least -1", d.top_k);
  reader.number("min_p", 0, 1, "a number from 0 to 1", d.min_p);
  reader.number("repetition_penalty", 0.01, 100, "a number from 0.01 to 100", d.repetition_penalty);
  reader.number("presence_penalty", -2, 2, "a number from -2 to 2", d.presence_penalty);
  reader.number("frequency_penalty", -2, 2, "a number from -2 to 2", d.frequency_penalty);
  reader.integer("max_new_tokens", 1, "an integer of at least 1", d.max_new_tokens);
  reader.integer("max_length", 1, "an integer of at least 1", d.max_length);
  reader.integer("bos_token_id", 0, "a token id", d.bos_token_id);
  reader.integer("pad_token_id", 0, "a token id", d.pad_token_id);
  reader.ids("eos_token_id", d.eos_token_ids);
  d.unknown_keys = reader.unknown_keys();
  if (const std::string lines = reader.problems(); !lines.empty()) {
    return Error{path + ": cannot be used:" + lines};
  }
  if (d.top_k == -1) d.top_k = 0;
  return d;
}

}  // namespace firstlight
