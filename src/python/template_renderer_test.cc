#include "python/template_renderer.h"

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

/// Renders every row of one file of expectations; a row that differs is a failure of the test.
Tally check_rows(const fs::path& template_path, const fs::path& rows_path) {
  const std::string template_text = read(template_path);
  EXPECT_FALSE(template_text.empty()) << template_path;
  Tally tally;
  std::ifstream rows(rows_path);
  for (std::string line; std::getline(rows, line);) {
    const Json row = Json::parse(line);
    Json variables = row["kwargs"];
    RenderOptions options;
    options.add_generation_prompt = variables["add_generation_prompt"];
    options.tools_json = row["tools"].is_null() ? "" : row["tools"].dump();
    options.variables_json = variables.dump();
    options.now = row["now"];
    const auto text = render_chat(template_text, row["messages"].dump(), options);
    ++tally.rows;
    const std::string id = row["id"];
    const int failures_before =
        testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
    if (row.contains("error")) {
      const Json& error = row["error"];
      EXPECT_FALSE(text.ok()) << id << " expects " << error.dump();
      if (!text.ok() && error["kind"] == "raise_exception") {
        EXPECT_EQ(text.error().message,
                  "the chat template refuses these messages: " + error["message"].get<std::string>());
      }
    } else {
      EXPECT_TRUE(text.ok()) << id << ": " << (text.ok() ? "" : text.error().message);
      EXPECT_EQ(text.ok() ? *text : "", row["rendered"].get<std::string>()) << id;
    }
    tally.equal += testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count() ==
                   failures_before;
  }
  return tally;
}

fs::path shared_folder() {
  const char* given = std::getenv("FIRSTLIGHT_SHARED");
  return given != nullptr ? fs::path(given) : fs::path(FL_REPO_ROOT) / ".." / "shared";
}

TEST(TemplateRenderer, RendersAsTheEcosystemDoes) {
  const fs::path folder = fs::path(FL_REPO_ROOT) / "tests" / "data" / "templates";
  for (const char* name : {"vllm-chatml", "Qwen-Qwen3-0.6B", "Kimi-K2-Instruct"}) {
    const Tally tally =
        check_rows(folder / (std::string(name) + ".jinja"), folder / (std::string(name) + ".jsonl"));
    EXPECT_GE(tally.rows, 4) << name;
  }
}

TEST(TemplateRenderer, RendersEveryPublishedTemplate) {
  const fs::path data = shared_folder() / "data";
  if (!fs::exists(data)) GTEST_SKIP() << "the goldens of all templates are not here: " << data;
  Tally all;
  for (const auto& entry : fs::directory_iterator(data / "templates")) {
    const std::string name = entry.path().stem();
    const fs::path rows = data / "goldens" / "templates" / (name + ".jsonl");
    if (!fs::exists(rows)) continue;
    const Tally tally = check_rows(entry.path(), rows);
    all.rows += tally.rows;
    all.equal += tally.equal;
  }
  EXPECT_GT(all.rows, 500);
  std::printf("%d of %d rows are equal\n", all.equal, all.rows);
}

std::string error_of(const std::string& template_text, const std::string& messages = "[]") {
  const auto text = render_chat(template_text, messages);
  return text.ok() ? "rendered: " + *text : text.error().message;
}

TEST(TemplateRenderer, EnvironmentOfTheEcosystem) {
  const auto text = [](const std::string& t) { return *render_chat(t, R"([{"content": "<é> & 'x'"}])"); };
  EXPECT_EQ(text("{% for i in [1,2,3] %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}"), "13");
  EXPECT_EQ(text("{{ messages | tojson }}"), R"([{"content": "<é> & 'x'"}])");
  EXPECT_EQ(text("{{ {'b': 1, 'a': [2]} | tojson(indent=1) }}"), "{\n \"b\": 1,\n \"a\": [\n  2\n ]\n}");
  EXPECT_EQ(text("a{% generation %}{% set x = 1 %}b{% endgeneration %}c{{ x }}"), "abc");
  EXPECT_EQ(text("  {% if true %}\n  x\n  {% endif %}\ny"), "  x\ny");  // trim_blocks, lstrip_blocks
  EXPECT_EQ(text("{{ tools is none }}{{ documents is none }}{{ bos_token }}|"), "TrueTrue|");
  RenderOptions options;
  options.now = "2026-07-28T12:00:00";
  const auto now = render_chat("{{ strftime_now('%d %b %Y') }}", "[]", options);
  EXPECT_EQ(*now, "28 Jul 2026");
}

TEST(TemplateRenderer, ErrorsSayWhatAndWhere) {
  EXPECT_EQ(error_of("{{ raise_exception('roles must alternate') }}"),
            "the chat template refuses these messages: roles must alternate");
  EXPECT_EQ(error_of("a\nb\n{{ messages[0].content.x }}"),
            "the chat template fails in line 3: UndefinedError: list object has no element 0");
  EXPECT_EQ(error_of("a\n{% if %}").rfind("the chat template fails in line 2: TemplateSyntaxError", 0), 0);
  EXPECT_EQ(error_of("x", "[").rfind("the chat template fails: JSONDecodeError", 0), 0);
  // A lone surrogate is JSON but no text.
  EXPECT_EQ(
      error_of("{{ messages[0] }}", R"(["\ud800"])").rfind("the chat template fails: UnicodeEncodeError", 0),
      0);
}

TEST(TemplateRenderer, TheSandboxHolds) {
  for (const char* hostile :
       {"{{ ''.__class__.__mro__ }}{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append.__self__.clear() }}", "{{ messages.insert(0, 1) }}", "{{ {}.update({'a': 1}) }}",
        "{% for i in range(10 ** 9) %}{% endfor %}", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% include '/etc/passwd' %}",
        "{{ raise_exception.__globals__ }}{{ raise_exception.__globals__.json }}"}) {
    EXPECT_EQ(error_of(hostile).rfind("the chat template fails", 0), 0) << hostile << "\n"
                                                                        << error_of(hostile);
  }
}

TEST(TemplateRenderer, AnEndlessTemplateIsStopped) {
  const std::string endless =
      "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% "
      "endfor %}"
      "{% endfor %}";
  RenderOptions options;
  options.time_limit = std::chrono::milliseconds(100);
  const auto text = render_chat(endless, "[]", options);
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().message, "the chat template takes too long");
  EXPECT_EQ(error_of("x"), "rendered: x");
}

TEST(TemplateRenderer, ThreadsTakeTurns) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 50; ++i) {
        const std::string n = std::to_string(t * 100 + i);
        EXPECT_EQ(error_of("{{ messages[0] }}", "[" + n + "]"), "rendered: " + n);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(TemplateRenderer, LeavesSignalsAlone) {
  ASSERT_TRUE(render_chat("x", "[]").ok());
  for (const int signal : {SIGINT, SIGPIPE}) {
    struct sigaction action {};
    ASSERT_EQ(sigaction(signal, nullptr, &action), 0);
    EXPECT_EQ(action.sa_handler, SIG_DFL);
  }
}

}  // namespace
}  // namespace firstlight
