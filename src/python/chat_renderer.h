// Chat templates and chat formats: jinja2 as the ecosystem runs it, and the Python encoders of models/chat,
// in processes of their own (render_process.h).
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "base/result.h"
#include "python/render_process.h"
#include "text/prompt.h"

namespace firstlight {

/// What to render with what. Texts; all but the row may be empty.
struct ChatRequest {
  std::string_view template_text = {};  // jinja
  std::string_view format = {};  // a file of models/chat; it goes before the template unless it wraps one
  /// JSON: {"messages": [{"role", "content" …}], "tools": [...] or null, "kwargs": {variables of the
  /// template}, "now": the time that strftime_now() tells, ISO 8601; without it the clock's}.
  /// `add_generation_prompt` is on unless kwargs say otherwise.
  std::string_view row_json = {};
  std::string_view variables_json = {};  // an object: bos_token … where the row's kwargs do not say otherwise
  /// An array of the control tokens' texts. What of the row reads like one of them becomes a literal part.
  /// Without them a template's prompt is one part.
  std::string_view controls_json = {};
};

/// A failed rendering, taken apart.
struct RenderFailure {
  enum class Kind {
    kRefused,  // the template's raise_exception(); `message` is its own
    kFailed,   // an error in the template, or a conversation that it cannot take
    kLimit,    // time, memory or size
  };
  Kind kind = Kind::kFailed;
  std::string message;
};

/// The prompt. An error carries the template's own message where it refuses, else what failed in which line
/// of it, or which limit it passed: time, memory (kRenderMemoryBytes), size (kRenderOutputBytes). Any thread
/// may call this; a few renderings go on at once. A rendering that fails leaves nothing behind.
///
/// The environment is that of the ecosystem: trim_blocks, lstrip_blocks, loop controls, the generation tag,
/// tojson without ASCII escapes, raise_exception, strftime_now, in jinja2's immutable sandbox. A template
/// that needs to change lists (Kimi K2 queues its tool ids) runs in the mutable one on copies.
Result<Prompt> render_chat(const ChatRequest& request, std::chrono::milliseconds time_limit = kRenderTime,
                           RenderFailure* failure = nullptr);

/// The file of models/chat that serves this config.json, or an empty text. With a template only a format that
/// wraps one counts.
Result<std::string> find_chat_format(std::string_view config_json, bool has_template);

}  // namespace firstlight
