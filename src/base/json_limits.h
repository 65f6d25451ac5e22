// JSON from files and the network, read with limits: nesting depth, size, number of values, no duplicate
// keys, valid UTF-8 only. nlohmann's own parser keeps the last of two equal keys and stops at a NUL byte,
// both without a word; here both are errors.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

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

/// Feeds the document to the handler. Unlike parse_json, limits and duplicate keys are the handler's affair.
Status read_json_events(std::string_view text, const std::string& origin, JsonHandler& handler);

/// Text out of a file in quotes, fit for a message: control and non-ASCII bytes escaped, cut after
/// `max_bytes`.
std::string quote_text(std::string_view text, std::size_t max_bytes = 200);

}  // namespace firstlight
