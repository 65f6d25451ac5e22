#include "cli/conversation.h"

#include <cerrno>
#include <fstream>

#include "base/json_limits.h"
#include "base/mapped_file.h"

namespace firstlight {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

void Conversation::add(const std::string& role, const std::string& content) {
  messages_.push_back({{"role", role}, {"content", content}});
}

void Conversation::drop_last() { messages_.erase(messages_.size() - 1); }

void Conversation::set_system(const std::string& text) {
  if (has_system()) messages_.erase(0);
  if (!text.empty()) messages_.insert(messages_.begin(), Json{{"role", "system"}, {"content", text}});
}

void Conversation::reset() { messages_.erase(messages_.begin() + (has_system() ? 1 : 0), messages_.end()); }

Status Conversation::save(const std::string& path) const {
  std::ofstream file(path, std::ios::binary);
  file << Json{{"messages", messages_}}.dump(2) << '\n';
  file.close();
  if (!file) return Error{path + ": cannot be written: " + system_error_text(errno)};
  return {};
}

Result<Conversation> Conversation::load(const std::string& path) {
  const JsonLimits limits;
  FL_ASSIGN(const std::string text, read_file(path, limits.max_bytes));
  FL_ASSIGN(const Json document, parse_json(text, path, limits));
  const bool wrapped = document.is_object() && document.contains("messages");
  const Json& messages = wrapped ? document["messages"] : document;
  if (!messages.is_array())
    return Error{path + ": expected a list of messages, or an object with \"messages\""};
  Conversation conversation;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Json& m = messages[i];
    const auto is_text = [&](const char* key) {
      return m.is_object() && m.contains(key) && m[key].is_string();
    };
    if (!is_text("role") || !is_text("content")) {
      return Error{path + ": messages[" + std::to_string(i) +
                   "]: expected \"role\" and \"content\" with texts"};
    }
    conversation.add(m["role"], m["content"]);
  }
  return conversation;
}

}  // namespace firstlight
