// The messages of a chat, and their file form: {"messages": [{"role", "content"}, …]}.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"

namespace firstlight {

class Conversation {
 public:
  [[nodiscard]] const nlohmann::ordered_json& messages() const { return messages_; }
  [[nodiscard]] std::size_t size() const { return messages_.size(); }

  void add(const std::string& role, const std::string& content);
  void drop_last();
  /// Replaces the system message at the start, or removes it if `text` is empty.
  void set_system(const std::string& text);
  /// Drops everything but the system message.
  void reset();

  Status save(const std::string& path) const;
  /// Reads what save() writes, or a bare list of messages.
  static Result<Conversation> load(const std::string& path);

 private:
  [[nodiscard]] bool has_system() const { return !messages_.empty() && messages_[0]["role"] == "system"; }

  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
};

}  // namespace firstlight
