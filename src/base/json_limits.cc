#include "base/json_limits.h"

#include <algorithm>

namespace firstlight {

namespace {

using nlohmann::ordered_json;

/// The reason within nlohmann's message, without its prefix, its own position and the last token (which may
/// be long, or broken UTF-8).
std::string reason_of(std::string_view what) {
  if (const auto bracket = what.find("] "); bracket != what.npos) what.remove_prefix(bracket + 2);
  if (what.starts_with("parse error at ")) {
    if (const auto colon = what.find(": "); colon != what.npos) what.remove_prefix(colon + 2);
  }
  what = what.substr(0, what.find("; last read"));
  const std::string safe = quote_text(what);
  return safe.substr(1, safe.size() - 2);
}

/// "line 3, column 7", both from 1, columns in bytes; `offset` is the byte in question.
std::string place_of(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const auto newline = before.rfind('\n');
  const std::size_t column = before.size() - (newline == before.npos ? 0 : newline + 1) + 1;
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

const std::string* duplicate_key(const ordered_json& object) {
  const auto& members = object.get_ref<const ordered_json::object_t&>();
  std::vector<const std::string*> keys;
  keys.reserve(members.size());
  for (const auto& member : members) keys.push_back(&member.first);
  std::sort(keys.begin(), keys.end(), [](const auto* a, const auto* b) { return *a < *b; });
  const auto twice =
      std::adjacent_find(keys.begin(), keys.end(), [](const auto* a, const auto* b) { return *a == *b; });
  return twice == keys.end() ? nullptr : *twice;
}

}  // namespace

bool JsonTreeBuilder::key(string_t& name) {
  stack_.back().key = std::move(name);
  return true;
}

bool JsonTreeBuilder::end_object() {
  if (const std::string* twice = duplicate_key(stack_.back().value)) {
    return fail("key " + quote_text(path_to(*twice)) + " appears twice");
  }
  return pop();
}

bool JsonTreeBuilder::push(ordered_json container) {
  if (stack_.size() >= limits_.max_depth) {
    return fail("is nested deeper than " + std::to_string(limits_.max_depth) + " levels");
  }
  stack_.push_back({std::move(container), {}});
  return true;
}

bool JsonTreeBuilder::pop() {
  ordered_json done = std::move(stack_.back().value);
  stack_.pop_back();
  return add(std::move(done));
}

bool JsonTreeBuilder::add(ordered_json value) {
  if (++values_ > limits_.max_values) {
    return fail("holds more than " + std::to_string(limits_.max_values) + " values");
  }
  if (stack_.empty()) {
    root_ = std::move(value);
  } else if (Level& top = stack_.back(); top.value.is_array()) {
    top.value.get_ref<ordered_json::array_t&>().push_back(std::move(value));
  } else {
    // emplace_back of the underlying vector: the map's own insertion searches linearly for the key each time.
    top.value.get_ref<ordered_json::object_t&>().emplace_back(std::move(top.key), std::move(value));
  }
  return true;
}

/// "text_config.rope.theta"; list positions are left out.
std::string JsonTreeBuilder::path_to(const std::string& name) const {
  std::string path;
  for (std::size_t i = 0; i + 1 < stack_.size(); ++i) {
    if (stack_[i].value.is_object()) path += stack_[i].key + ".";
  }
  return path + name;
}

std::string quote_text(std::string_view text, std::size_t max_bytes) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text.substr(0, max_bytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      out += c;
    }
  }
  if (text.size() > max_bytes) out += "...";
  return out + "\"";
}

bool JsonHandler::parse_error(std::size_t position, const std::string& /*last_token*/,
                              const nlohmann::detail::exception& error) {
  error_position_ = std::max<std::size_t>(position, 1);
  return fail(reason_of(error.what()));
}

Status read_json_events(std::string_view text, const std::string& origin, JsonHandler& handler) {
  if (const auto nul = text.find('\0'); nul != text.npos) {
    return Error{origin + ": is not valid JSON at " + place_of(text, nul) + ": a NUL byte"};
  }
  if (nlohmann::json::sax_parse(text.begin(), text.end(), &handler)) return {};
  if (handler.error_position_ == 0) return Error{origin + ": " + handler.message_};
  const std::size_t offset = std::min(handler.error_position_ - 1, text.size());
  const std::string_view rest = text.substr(offset);
  if (rest.starts_with("NaN") || rest.starts_with("Infinity")) {
    handler.message_ = "NaN and Infinity are not JSON numbers";
  }
  return Error{origin + ": is not valid JSON at " + place_of(text, offset) + ": " + handler.message_};
}

Result<ordered_json> parse_json(std::string_view text, const std::string& origin, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return Error{origin + ": has " + std::to_string(text.size()) + " bytes of JSON, at most " +
                 std::to_string(limits.max_bytes) + " are accepted"};
  }
  JsonTreeBuilder builder(limits);
  FL_TRY(read_json_events(text, origin, builder));
  return builder.take();
}

}  // namespace firstlight
