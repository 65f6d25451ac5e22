// Chat templates: jinja2 as the ecosystem runs it, sandboxed.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "base/result.h"

namespace firstlight {

struct RenderOptions {
  bool add_generation_prompt = true;  // end with the opening of the assistant's turn
  std::string tools_json;             // an array of tool declarations; empty: none
  std::string variables_json;  // an object of further variables (bos_token, enable_thinking …); may be empty
  std::string now;             // the time strftime_now() tells, ISO 8601; empty: the clock's
  /// An honest template renders the longest conversation in milliseconds; one that loops must not hang us.
  std::chrono::milliseconds time_limit{10000};
};

/// The prompt text for `messages_json` (an array of {role, content …}). An error carries the template's own
/// message where it refuses, otherwise what failed in which line of it. Any thread may call this; renderings
/// take turns.
///
/// The environment is that of the ecosystem (trim_blocks, lstrip_blocks, loop controls, the generation tag,
/// tojson without ASCII escapes, raise_exception, strftime_now) in jinja2's immutable sandbox, with one
/// exception: list.append is allowed, since published templates use it (Kimi K2 queues its tool ids). The
/// lists within reach are the rendering's own.
Result<std::string> render_chat(std::string_view template_text, std::string_view messages_json,
                                const RenderOptions& options = {});

}  // namespace firstlight
