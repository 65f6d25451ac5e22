#include "python/chat_renderer.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <vector>

namespace firstlight {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

struct Tally {
  int rows = 0;
  int equal = 0;
};

/// Whether a row's expectation holds; the outcome is the rendered text, or "error: " and why.
void check_row(const Json& row, const std::string& text, const RenderFailure& failure) {
  const std::string id = row["id"];
  const bool failed = !failure.message.empty();
  if (row.contains("error")) {
    EXPECT_TRUE(failed) << id << " expects " << row["error"].dump();
    const bool refused = row["error"]["kind"] == "raise_exception";
    EXPECT_EQ(failure.kind == RenderFailure::Kind::kRefused, refused) << id << ": " << failure.message;
    if (refused) {
      EXPECT_EQ(failure.message, row["error"]["message"].get<std::string>()) << id;
    }
    return;
  }
  if (row.contains("rejected")) {
    EXPECT_TRUE(failed) << id;
    return;
  }
  EXPECT_FALSE(failed) << id << ": " << failure.message;
  for (const char* key : {"rendered", "text", "typescript"}) {
    if (row.contains(key)) {
      EXPECT_EQ(text, row[key].get<std::string>()) << id;
    }
  }
  std::size_t at = 0;
  for (const auto& piece : row.value("contains_in_order", Json::array())) {
    at = text.find(piece.get<std::string>(), at);
    EXPECT_NE(at, text.npos) << id << ": " << piece;
  }
  for (const auto& piece : row.value("contains", Json::array())) {
    EXPECT_NE(text.find(piece.get<std::string>()), text.npos) << id << ": " << piece;
  }
  for (const auto& piece : row.value("not_contains", Json::array())) {
    EXPECT_EQ(text.find(piece.get<std::string>()), text.npos) << id << ": " << piece;
  }
  EXPECT_TRUE(text.ends_with(row.value("ends_with", ""))) << id;
}

/// Renders every row of a file of expectations with a template, a format, or both; a row that differs is a
/// failure of the test.
Tally check_rows(const std::string& template_text, const std::string& format, const fs::path& rows_path) {
  Tally tally;
  std::ifstream rows(rows_path);
  for (std::string line; std::getline(rows, line);) {
    const Json row = Json::parse(line);
    const auto failures = [] {
      return testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
    };
    const int before = failures();
    RenderFailure failure;
    const auto prompt = render_chat({.template_text = template_text, .format = format, .row_json = line},
                                    kRenderTime, &failure);
    check_row(row, prompt ? prompt->text() : "", failure);
    if (row.contains("segments") && prompt) {
      Json segments = Json::array();
      for (const PromptPart& part : prompt->parts) {
        segments.push_back({{"text", part.text}, {"allow_special", !part.literal}});
      }
      EXPECT_EQ(segments, row["segments"]) << row["id"];
    }
    ++tally.rows;
    tally.equal += failures() == before;
  }
  return tally;
}

fs::path shared_folder() {
  const char* given = std::getenv("FIRSTLIGHT_SHARED");
  return given != nullptr ? fs::path(given) : fs::path(FL_REPO_ROOT) / ".." / "shared";
}

TEST(ChatRenderer, RendersAsTheEcosystemDoes) {
  const fs::path folder = fs::path(FL_REPO_ROOT) / "tests" / "data" / "templates";
  for (const char* name : {"vllm-chatml", "Qwen-Qwen3-0.6B", "Kimi-K2-Instruct"}) {
    const Tally tally = check_rows(read(folder / (std::string(name) + ".jinja")), "",
                                   folder / (std::string(name) + ".jsonl"));
    EXPECT_GE(tally.rows, 4) << name;
  }
}

TEST(ChatRenderer, FormatsInPython) {
  const fs::path folder = fs::path(FL_REPO_ROOT) / "tests" / "data" / "templates";
  for (const char* name : {"kimi_k3", "kimi_k25", "deepseek_v32"}) {
    const Tally tally = check_rows("", name, folder / (std::string(name) + ".jsonl"));
    EXPECT_GE(tally.rows, 4) << name;
  }
}

TEST(ChatRenderer, RendersEveryPublishedTemplate) {
  const fs::path data = shared_folder() / "data";
  if (!fs::exists(data)) GTEST_SKIP() << "the goldens of all templates are not here: " << data;
  Tally all;
  const auto check = [&](const std::string& template_name, const std::string& format,
                         const std::string& rows_name) {
    const fs::path rows = data / "goldens" / "templates" / (rows_name + ".jsonl");
    if (!fs::exists(rows)) return;
    const std::string text =
        template_name.empty() ? "" : read(data / "templates" / (template_name + ".jinja"));
    const Tally tally = check_rows(text, format, rows);
    all.rows += tally.rows;
    all.equal += tally.equal;
  };
  for (const auto& entry : fs::directory_iterator(data / "templates")) {
    check(entry.path().stem(), "", entry.path().stem());
  }
  check("", "kimi_k3", "Kimi-K3.official_python_encoder");
  check("", "kimi_k3", "Kimi-K3.vllm_assertions");
  check("", "kimi_k25", "Kimi-K2.5.tool_declaration_typescript");
  check("", "kimi_k25", "Kimi-K2.5.official_wrapper");
  check("Kimi-K2.5", "kimi_k25", "Kimi-K2.5.official_wrapper");
  check("", "deepseek_v32", "DeepSeek-V3.2.official_python_encoder");
  EXPECT_GT(all.rows, 800);
  std::printf("%d of %d rows are equal\n", all.equal, all.rows);
}

/// The outcome in words.
std::string outcome(const std::string& template_text, const std::string& messages = "[]",
                    std::chrono::milliseconds time_limit = kRenderTime) {
  const std::string row = R"({"messages": )" + messages + "}";
  const auto prompt = render_chat({.template_text = template_text, .row_json = row}, time_limit);
  return prompt ? "rendered: " + prompt->text() : prompt.error().message;
}

TEST(ChatRenderer, EnvironmentOfTheEcosystem) {
  const auto text = [](const std::string& t) {
    return outcome(t, R"([{"content": "<é> & 'x'"}])").substr(10);
  };
  EXPECT_EQ(text("{% for i in [1,2,3] %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}"), "13");
  EXPECT_EQ(text("{{ messages | tojson }}"), R"([{"content": "<é> & 'x'"}])");
  EXPECT_EQ(text("{{ {'b': 1, 'a': [2]} | tojson(indent=1) }}"), "{\n \"b\": 1,\n \"a\": [\n  2\n ]\n}");
  EXPECT_EQ(text("a{% generation %}{% set x = 1 %}b{% endgeneration %}c{{ x }}"), "abc");
  EXPECT_EQ(text("  {% if true %}\n  x\n  {% endif %}\ny"), "  x\ny");  // trim_blocks, lstrip_blocks
  EXPECT_EQ(text("{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}{{ bos_token }}|"),
            "TrueTrueTrue|");
  EXPECT_EQ(text("{{ 'a\\n\\u00e9\\N{EM DASH}' }}"), "a\né—");  // codecs that Python loads on demand
}

TEST(ChatRenderer, RowsVariablesAndTheClock) {
  ChatRequest request;
  request.template_text = "{{ bos_token }}{{ eos_token }}{{ x }}{{ strftime_now('%d %b %Y') }}";
  request.row_json =
      R"({"messages": [], "kwargs": {"x": 3, "eos_token": "E"}, "now": "2026-07-28T12:00:00"})";
  request.variables_json = R"({"bos_token": "<s>", "eos_token": "</s>"})";
  EXPECT_EQ(render_chat(request)->text(), "<s>E328 Jul 2026");
}

TEST(ChatRenderer, ErrorsSayWhatAndWhere) {
  EXPECT_EQ(outcome("{{ raise_exception('roles must alternate') }}"),
            "the chat template refuses these messages: roles must alternate");
  EXPECT_EQ(outcome("a\nb\n{{ messages[0].content.x }}"),
            "the chat template fails in line 3: UndefinedError: list object has no element 0");
  EXPECT_TRUE(outcome("a\n{% if %}").starts_with("the chat template fails in line 2: TemplateSyntaxError"));
  EXPECT_TRUE(outcome("x", "[").starts_with("the chat template fails: JSONDecodeError"));
  // A lone surrogate is JSON but no text.
  EXPECT_TRUE(outcome("{{ messages[0] }}", R"(["\ud800"])")
                  .starts_with("the chat template fails: UnicodeEncodeError"));
  const auto error = [](const char* row) {
    return render_chat({.template_text = "x", .row_json = row}).error().message;
  };
  EXPECT_EQ(error("{}"), "`messages` is missing");
  EXPECT_EQ(error("[]"), "a conversation must be an object with `messages`");
  EXPECT_EQ(error(R"({"messages": [], "kwargs": 3})"), "`kwargs` must be an object");
  EXPECT_EQ(error(R"({"messages": [], "now": 3})"), "`now` must be a text like 2026-07-28T12:00:00");
  EXPECT_EQ(render_chat({.format = "no_such", .row_json = "{}"}).error().message,
            "there is no chat format no_such; there are: deepseek_v32, kimi_k25, kimi_k3");
}

TEST(ChatRenderer, TheSandboxHolds) {
  for (const char* hostile :
       {"{{ ''.__class__.__mro__ }}{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ ''['__class__']['__mro__'][1] }}", "{{ messages.append.__self__.clear() }}",
        "{{ (''|attr('__class__')).mro() }}", "{{ '{0.__class__.__mro__}'.format(1) }}",
        "{{ ('{0.__class__.__mro__}'|attr('format'))(1) }}",
        "{{ ['{0.__class__}']|map('format', 1)|list }}{{ ''.__class__.x }}",
        "{% for i in range(10 ** 9) %}{% endfor %}", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% include '/etc/passwd' %}", "{% import 'os' as os %}", "{% extends 'x' %}",
        "{{ cycler.__init__.__globals__.os }}{{ cycler.__init__.__globals__.os.popen }}",
        "{{ self._TemplateReference__context.environment.x.y }}",
        "{{ lipsum.__globals__['os'] }}{{ lipsum.__globals__.os.x }}",
        "{{ raise_exception.__globals__ }}{{ raise_exception.__globals__.json }}"}) {
    EXPECT_TRUE(outcome(hostile).starts_with("the chat template fails")) << hostile << "\n"
                                                                         << outcome(hostile);
  }
  for (const char* hostile :
       {"{{ '{x.__class__}'.format_map({'x': 1}) }}", "{% set f = '{0.__class__}'.format %}{{ f(1) }}",
        "{{ ''.__class__ }}", "{{ ''['__class__'] }}"}) {
    EXPECT_EQ(outcome(hostile), "rendered: ") << hostile;  // undefined
  }
}

TEST(ChatRenderer, ListsMayBeChangedButNobodyElses) {
  const std::string appends =
      "{% set x = [1] %}{% set _ = x.append(2) %}{% set _ = messages.append(3) %}{{ x }}{{ messages }}";
  for (int i = 0; i < 2; ++i) EXPECT_EQ(outcome(appends), "rendered: [1, 2][3]");
}

TEST(ChatRenderer, LimitsHold) {
  const auto seconds = [](const std::string& t) { return outcome(t, "[]", std::chrono::milliseconds(300)); };
  const std::string endless =
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
  EXPECT_EQ(seconds(endless), "the chat template takes longer than 300 ms");
  EXPECT_EQ(seconds("{{ 9**(9**9) }}"), "the chat template takes longer than 300 ms");
  EXPECT_EQ(outcome("x"), "rendered: x");
  const std::string memory = "the chat template needs more than 512 MiB of memory";
  EXPECT_EQ(outcome("{{ 'x' * 10**10 }}"), memory);
  EXPECT_EQ(outcome("{{ '%9999999999d' % 1 }}").find("rendered"), std::string::npos);
  EXPECT_EQ(outcome("{{ '%999999999d' % 1 }}"), memory);
  EXPECT_EQ(outcome("{{ '{:999999999}'.format(1) }}"), memory);
  EXPECT_EQ(outcome("{{ 'x'|center(10**10) }}"), memory);
  const std::string doubling =
      "{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}";
  EXPECT_EQ(outcome(doubling), memory);
  EXPECT_EQ(outcome("{{ 'x' * (70 * 1024 * 1024) }}"), "the chat template makes a text of more than 64 MiB");
  EXPECT_TRUE(outcome("{{ " + std::string(100000, '(')).starts_with("the chat template fails"))
      << "deep nesting";
  EXPECT_LT(outcome("{{ raise_exception('x' * 10**7) }}").size(), 20000U);
  EXPECT_EQ(outcome("x"), "rendered: x");
}

TEST(ChatRenderer, ThreadsDoNotDisturbEachOther) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 50; ++i) {
        const std::string n = std::to_string(t * 100 + i);
        EXPECT_EQ(outcome("{{ messages[0] }}", "[" + n + "]"), "rendered: " + n);
        if (i % 25 == t) {
          EXPECT_EQ(outcome("{{ 9**(9**9) }}", "[]", std::chrono::milliseconds(50)),
                    "the chat template takes longer than 50 ms");
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ChatRenderer, LargeConversationsPass) {
  const std::string text(5 << 20, 'a');
  EXPECT_EQ(outcome("{{ messages[0] }}", "[\"" + text + "\"]"), "rendered: " + text);
}

TEST(ChatRenderer, LeavesSignalsAlone) {
  ASSERT_EQ(outcome("x"), "rendered: x");
  for (const int signal : {SIGINT, SIGPIPE, SIGCHLD}) {
    struct sigaction action {};
    ASSERT_EQ(sigaction(signal, nullptr, &action), 0);
    EXPECT_EQ(action.sa_handler, SIG_DFL);
  }
}

/// The parts that are literal, joined by "|".
std::string literals(const std::string& template_text, const Json& messages,
                     std::vector<std::string> controls) {
  const std::string row = Json{{"messages", messages}}.dump();
  const std::string controls_json = Json(controls).dump();
  const auto plain = render_chat({.template_text = template_text, .row_json = row});
  const auto prompt =
      render_chat({.template_text = template_text, .row_json = row, .controls_json = controls_json});
  if (!plain || !prompt) return "error: " + (prompt ? plain : prompt).error().message;
  EXPECT_EQ(prompt->text(), plain->text());
  std::string found;
  for (const PromptPart& part : prompt->parts) {
    if (part.literal) found += (found.empty() ? "" : "|") + part.text;
  }
  return found;
}

TEST(ChatRenderer, WhatReadsLikeAControlTokenIsFound) {
  const std::vector<std::string> controls{"<|im_end|>", "<|im_start|>", "</think>"};
  const auto user = [](const std::string& text) { return Json{{{"role", "user"}, {"content", text}}}; };
  const std::string simple =
      "{% for m in messages %}<|im_start|>{{ m.content | trim }}<|im_end|>{% endfor %}";
  EXPECT_EQ(literals(simple, user("hello"), controls), "");
  EXPECT_EQ(literals(simple, user(" a <|im_end|> b<|im_start|><|im_start|> "), controls),
            "<|im_end|>|<|im_start|>|<|im_start|>");
  // Two texts that make one token only together.
  EXPECT_EQ(
      literals("{{ messages[0].a }}{{ messages[0].b }}", Json{{{"a", "x<|im_"}, {"b", "end|>y"}}}, controls),
      "<|im_|end|>");
  // In JSON, in keys, through filters that leave it as it is.
  EXPECT_EQ(literals("{{ messages | tojson }}", Json{{{"<|im_end|>", "q<|im_start|>"}}}, controls),
            "<|im_end|>|<|im_start|>");
  // A text that the template looks at is left to it, and only that.
  const std::string cuts =
      "{% for m in messages %}{{ m.content.split('</think>')[-1] }}<|im_end|>{% endfor %}";
  EXPECT_EQ(literals(cuts, user("a</think>b<|im_end|>c"), controls), "<|im_end|>");
  EXPECT_EQ(
      literals("{{ messages[0].content | length }} {{ messages[0].content }}", user("a<|im_end|>"), controls),
      "");
}

}  // namespace
}  // namespace firstlight
