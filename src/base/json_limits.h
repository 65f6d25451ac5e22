// JSON from files and the network, read with limits: nesting depth, size, number of values, no duplicate
// keys, valid UTF-8 only. nlohmann's own parser keeps the last of two equal keys and stops at a NUL byte,
// both without a word; here both are errors.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace firstlight {

struct JsonLimits {
  std::size_t max_bytes = std::size_t{64} << 20;
  std::size_t max_depth = 64;
  /// A value costs up to about 100 bytes however short its text is ("0,").
  std::size_t max_values = std::size_t{4} << 20;
};

/// The document as a tree that keeps the order of keys. `origin` (a file name) begins every error message.
Result<nlohmann::ordered_json> parse_json(std::string_view text, const std::string& origin,
                                          const JsonLimits& limits = {});

/// Base of handlers that read a document event by event, without a tree. Every event that a subclass does not
/// take is refused; a subclass refuses with fail(), whose sentence becomes the Error.
class JsonHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return unexpected(); }
  bool boolean(bool) override { return unexpected(); }
  bool number_integer(number_integer_t) override { return unexpected(); }  // negative numbers only
  bool number_unsigned(number_unsigned_t) override { return unexpected(); }
  bool number_float(number_float_t, const string_t&) override { return unexpected(); }
  bool string(string_t&) override { return unexpected(); }
  bool binary(binary_t&) override { return unexpected(); }
  bool start_object(std::size_t) override { return unexpected(); }
  bool key(string_t&) override { return unexpected(); }
  bool end_object() override { return unexpected(); }
  bool start_array(std::size_t) override { return unexpected(); }
  bool end_array() override { return unexpected(); }
  bool parse_error(std::size_t position, const std::string& last_token,
                   const nlohmann::detail::exception& error) final;

  /// What fail() was given.
  [[nodiscard]] const std::string& failure() const { return message_; }

 protected:
  /// Says what was expected at this place.
  virtual bool unexpected() = 0;
  bool fail(std::string what) {
    message_ = std::move(what);
    return false;
  }

 private:
  friend Status read_json_events(std::string_view text, const std::string& origin, JsonHandler& handler);
  std::string message_;
  std::size_t error_position_ = 0;  // count of bytes read when the syntax broke, 0: no syntax error
};

/// Builds a tree bottom-up from events: of a whole document, or of one value that a handler of a larger
/// document passes on to it.
class JsonTreeBuilder final : public JsonHandler {
 public:
  explicit JsonTreeBuilder(const JsonLimits& limits) : limits_(limits) {}

  /// Whether the value is complete; only then may it be taken.
  [[nodiscard]] bool complete() const { return values_ != 0 && stack_.empty(); }
  nlohmann::ordered_json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool start_object(std::size_t) override { return push(nlohmann::ordered_json::object()); }
  bool start_array(std::size_t) override { return push(nlohmann::ordered_json::array()); }
  bool end_array() override { return pop(); }
  bool key(string_t& name) override;
  bool end_object() override;

 protected:
  bool unexpected() override { return fail("binary values are not JSON"); }

 private:
  struct Level {
    nlohmann::ordered_json value;
    std::string key;  // of the member being read, in an object
  };
  bool push(nlohmann::ordered_json container);
  bool pop();
  bool add(nlohmann::ordered_json value);
  [[nodiscard]] std::string path_to(const std::string& name) const;

  JsonLimits limits_;
  std::vector<Level> stack_;  // the containers that are still open
  nlohmann::ordered_json root_;
  std::size_t values_ = 0;
};

/// Feeds the document to the handler. Unlike parse_json, limits and duplicate keys are the handler's affair.
Status read_json_events(std::string_view text, const std::string& origin, JsonHandler& handler);

/// Text out of a file in quotes, fit for a message: control and non-ASCII bytes escaped, cut after
/// `max_bytes`.
std::string quote_text(std::string_view text, std::size_t max_bytes = 200);

}  // namespace firstlight
