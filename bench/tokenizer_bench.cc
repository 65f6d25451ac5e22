// Speed of text to ids on one thread, warm, in CPU time.
//
//   tokenizer_bench [TEXT DIR...]    (DIR: tokenizer files; TEXT: a file of prose)
//
// Without arguments: the guide, with the demo model's tokenizer.
// For each tokenizer: megabytes a second of the prose, and how much longer a megabyte of repeated text takes
// than a megabyte of prose. The second figures are ratios of one run.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace firstlight::bench {
namespace {

constexpr std::size_t kMegabyte = 1'000'000;

double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

std::string repeated(const std::string& unit) {
  std::string text;
  while (text.size() < kMegabyte) text += unit;
  return text;
}

/// Megabytes a second, the best of five.
double speed(const Tokenizer& tokenizer, const std::string& text) {
  double best = 0;
  std::vector<std::int32_t> ids;
  for (int round = 0; round < 5; ++round) {
    ids.clear();
    const double begin = cpu_seconds();
    const Status status = tokenizer.encode(text, /*parse_special=*/false, ids);
    const double seconds = cpu_seconds() - begin;
    if (!status.ok()) {
      std::printf("error: %s\n", status.error().message.c_str());
      return 0;
    }
    best = std::max(best, static_cast<double>(text.size()) / kMegabyte / seconds);
  }
  return best;
}

int run(const std::string& prose_file, const std::vector<std::string>& folders) {
  std::ifstream file(prose_file, std::ios::binary);
  const std::string prose{std::istreambuf_iterator<char>(file), {}};
  if (prose.empty()) {
    std::fprintf(stderr, "error: %s: cannot be read\n", prose_file.c_str());
    return 1;
  }
  const struct {
    const char* name;
    std::string unit;
  } kinds[] = {{"spaces", " "}, {"one letter", "a"}, {"newlines", "\n"},       {"digits", "7"},
               {"emoji", "😀"},  {"one word", "ab"},  {"punctuation", "!?..."}, {"Han", "漢字"}};
  for (const std::string& folder : folders) {
    const auto tokenizer = load_tokenizer(folder);
    if (!tokenizer.ok()) {
      std::fprintf(stderr, "error: %s\n", tokenizer.error().message.c_str());
      return 1;
    }
    const double base = speed(**tokenizer, prose);
    std::printf("%s: prose %.1f MB/s; times as long as prose:", folder.c_str(), base);
    for (const auto& kind : kinds) {
      std::printf(" %s %.2f", kind.name, base / speed(**tokenizer, repeated(kind.unit)));
    }
    std::printf("\n");
  }
  return 0;
}

}  // namespace
}  // namespace firstlight::bench

int main(int argc, char** argv) {
  if (argc == 2) {
    std::fprintf(stderr, "usage: tokenizer_bench [TEXT DIR...]\n");
    return 2;
  }
  if (argc == 1) return firstlight::bench::run(FL_REPO_ROOT "/docs/guide.md", {FL_REPO_ROOT "/demo/model"});
  return firstlight::bench::run(argv[1], {argv + 2, argv + argc});
}
