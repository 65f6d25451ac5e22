// Files made to hurt: every parser of a checkpoint folder refuses them in one sentence, or reads them, within
// a memory that follows from the bytes that are there.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/config.h"
#include "checkpoint/generation_config.h"
#include "checkpoint/shard_index.h"
#include "checkpoint/test_folder.h"

namespace firstlight {
namespace {

using testing::safetensors_text;
using testing::TestFolder;

/// Peak memory of `body` above what the process had, in bytes, measured in a child.
std::int64_t peak_growth(const std::function<void()>& body) {
  int ends[2];
  if (::pipe(ends) != 0) return -1;
  const pid_t child = ::fork();
  if (child == 0) {
    rusage before{};
    rusage after{};
    ::getrusage(RUSAGE_SELF, &before);
    body();
    ::getrusage(RUSAGE_SELF, &after);
    const std::int64_t growth = (after.ru_maxrss - before.ru_maxrss) * 1024;
    const ssize_t written = ::write(ends[1], &growth, sizeof(growth));
    ::_exit(written == sizeof(growth) ? 0 : 1);
  }
  ::close(ends[1]);
  std::int64_t growth = -1;
  const ssize_t got = ::read(ends[0], &growth, sizeof(growth));
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return got == sizeof(growth) ? growth : -1;
}

/// `start`, then items until the text has `bytes` bytes.
std::string repeated(std::string start, std::size_t bytes,
                     const std::function<std::string(std::size_t)>& item) {
  for (std::size_t i = 0; start.size() < bytes; ++i) start += item(i);
  return start;
}

constexpr std::size_t kBytes = 8 << 20;

class Hostile : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "memory bounds of hostile files: sanitizers keep memory of their own";
#endif
  }

  /// At most 16 bytes for each byte of the file, and 64 MiB.
  static void expect_bounded(std::size_t bytes, const std::function<void()>& body) {
    const std::int64_t growth = peak_growth(body);
    EXPECT_GE(growth, 0);
    EXPECT_LE(growth, static_cast<std::int64_t>(16 * bytes + (std::size_t{64} << 20)));
  }

  /// The file is opened as a checkpoint of its own.
  void expect_bounded_header(const std::string& file, bool good) const {
    SCOPED_TRACE(file.substr(8, 60));
    folder_.write("model.safetensors", file);
    expect_bounded(file.size(), [&] {
      check(Checkpoint::open(folder_.path()).ok() == good, "a hostile file is refused, a large one is read");
    });
  }

  static void expect_bounded_config(const std::string& text, bool good) {
    SCOPED_TRACE(text.substr(0, 60));
    expect_bounded(text.size(),
                   [&] { check(parse_config(text, "f").ok() == good, "refused or read, as expected"); });
  }

  static void expect_bounded_index(const std::string& text, bool good) {
    SCOPED_TRACE(text.substr(0, 60));
    expect_bounded(text.size(),
                   [&] { check(parse_shard_index(text, "f").ok() == good, "refused or read, as expected"); });
  }

  TestFolder folder_;
};

using HostileSlow = Hostile;

std::string tiny_tensor(std::size_t i, const char* tail = ",") {
  return "\"" + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})" + tail;
}

TEST_F(Hostile, Headers) {
  const auto header = [](std::string start, const std::function<std::string(std::size_t)>& item) {
    return safetensors_text(repeated(std::move(start), kBytes, item), 0);
  };
  // many small tensors, cut off or complete
  expect_bounded_header(header("{", [](std::size_t i) { return tiny_tensor(i); }), false);
  expect_bounded_header(safetensors_text(repeated("{", kBytes, [](std::size_t i) { return tiny_tensor(i); }) +
                                             tiny_tensor(100'000'000, "}"),
                                         0),
                        true);
  // tensors of many dimensions
  std::string ones = "1";
  for (int k = 0; k < 63; ++k) ones += ",1";
  expect_bounded_header(header("{",
                               [&](std::size_t i) {
                                 return "\"" + std::to_string(i) + R"(":{"dtype":"U8","shape":[)" + ones +
                                        R"(],"data_offsets":[0,1]},)";
                               }),
                        false);
  // much metadata
  expect_bounded_header(
      header(R"({"__metadata__":{)", [](std::size_t i) { return "\"" + std::to_string(i) + R"(":"",)"; }),
      false);
  // one endless name, shape, number, nothing, nesting
  expect_bounded_header(header("{\"", [](std::size_t) { return "\\u0061\xc3\xa9"; }), false);
  expect_bounded_header(header(R"({"a":{"shape":[)", [](std::size_t) { return "0,"; }), false);
  expect_bounded_header(header(R"({"a":{"shape":[)", [](std::size_t) { return "1"; }), false);
  expect_bounded_header(header("{", [](std::size_t) { return " "; }), false);
  expect_bounded_header(header(R"({"a":)", [](std::size_t) { return R"({"a":)"; }), false);
}

TEST_F(HostileSlow, HeaderOfAHundredMegabytes) {
  std::string text = repeated("{", 99'900'000, [](std::size_t i) { return tiny_tensor(i); });
  expect_bounded_header(safetensors_text(text + tiny_tensor(100'000'000, "}"), 0), true);
}

TEST_F(Hostile, Indices) {
  const auto entry = [](std::size_t i, const std::string& file) {
    return "\"" + std::to_string(i) + "\":\"" + file + "\",";
  };
  const std::string start = R"({"weight_map":{)";
  expect_bounded_index(repeated(start, 2 * kBytes, [&](std::size_t i) { return entry(i, "m.safetensors"); }),
                       false);
  expect_bounded_index(repeated(start, 2 * kBytes, [&](std::size_t i) { return entry(i, "m.safetensors"); }) +
                           R"("x":"m.safetensors"}})",
                       true);
  expect_bounded_index(repeated(start, 2 * kBytes,
                                [&](std::size_t i) { return entry(i, std::to_string(i) + ".safetensors"); }) +
                           R"("x":"m.safetensors"}})",
                       true);
  expect_bounded_index(repeated(start, kBytes, [&](std::size_t) { return entry(7, "../m"); }), false);
  expect_bounded_index(repeated(R"({"metadata":)", kBytes, [](std::size_t) { return R"({"a":)"; }), false);
  expect_bounded_index(repeated(R"({"metadata":[)", kBytes, [](std::size_t) { return "[],"; }) + "0]}",
                       false);
}

TEST_F(Hostile, Configs) {
  expect_bounded_config(repeated(R"({"a":)", kBytes, [](std::size_t) { return R"({"a":)"; }), false);
  expect_bounded_config(repeated(R"({"a":)", kBytes, [](std::size_t) { return "["; }), false);
  expect_bounded_config(repeated(R"({"a":[)", kBytes, [](std::size_t) { return "[],"; }) + "0]}", false);
  expect_bounded_config(repeated(R"({"a":[)", kBytes, [](std::size_t) { return "0,"; }) + "0]}", false);
  expect_bounded_config(
      repeated("{", kBytes, [](std::size_t i) { return "\"" + std::to_string(i) + "\":0,"; }), false);
  expect_bounded_config(repeated(R"({"a":")", kBytes, [](std::size_t) { return "\\u00e9"; }) + "\"}", true);
  expect_bounded_config(repeated(R"({"a":[)", 1 << 18, [](std::size_t) { return "{},"; }) + "0]}", true);
}

TEST_F(Hostile, SizesThatAreOnlyClaimed) {
  const auto claims = [](const std::string& shape, const std::string& offsets) {
    return safetensors_text(
        R"({"a":{"dtype":"F32","shape":[)" + shape + R"(],"data_offsets":[)" + offsets + "]}}", 4);
  };
  for (const std::string& file :
       {claims("1099511627776", "0,4398046511104"), claims("9223372036854775807", "0,4"),
        claims("4294967296,4294967296", "0,4"), claims("-1", "0,4"), claims("1", "0,18446744073709551615"),
        claims("1", "4,0"), claims("1", "-4,0"), claims("1e3", "0,4"), claims("0", "0,0"),
        claims("1", "0,1e400")}) {
    expect_bounded_header(file, false);
  }
}

}  // namespace
}  // namespace firstlight
