#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <random>

#include "checkpoint/test_folder.h"

namespace firstlight {
namespace {

using testing::safetensors_text;
using testing::TestFolder;

std::span<const std::uint8_t> as_bytes(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

Result<SafetensorsContent> parse(const std::string& file) { return parse_safetensors(as_bytes(file), "f"); }

Result<SafetensorsContent> parse_header(std::string_view header, std::size_t data_bytes) {
  static std::string file;  // outlives the views
  file = safetensors_text(header, data_bytes);
  return parse(file);
}

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirData) {
  const auto content = parse_header(
      R"({"b":{"shape":[2,1],"dtype":"BF16","data_offsets":[4,8]},"__metadata__":{"format":"pt"},)"
      R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"e":{"dtype":"F32","shape":[0,7],"data_offsets":[4,4]},)"
      R"("s":{"dtype":"F32","shape":[],"data_offsets":[8,12]}}  )",
      12);
  ASSERT_TRUE(content.ok()) << content.error().message;
  ASSERT_EQ(content->tensors.size(), 4U);
  EXPECT_EQ(content->tensors[0].name, "a");
  EXPECT_EQ(content->tensors[1].name, "e");
  EXPECT_EQ(content->tensors[2].name, "b");
  EXPECT_EQ(content->tensors[2].view.dtype, DType::kBF16);
  EXPECT_EQ(content->tensors[2].view.shape, (Shape{2, 1}));
  EXPECT_EQ(content->tensors[2].view.data[0], 4);
  EXPECT_EQ(content->tensors[3].view.elements(), 1);
  ASSERT_EQ(content->metadata.size(), 1U);
  EXPECT_EQ(content->metadata[0].second, "pt");
}

TEST(Safetensors, EveryKnownDType) {
  for (const char* name : {"F32", "BF16", "F16", "I32", "U8", "I64", "F8_E4M3"}) {
    const std::string header =
        std::string(R"({"a":{"dtype":")") + name + R"(","shape":[0],"data_offsets":[0,0]}})";
    EXPECT_TRUE(parse_header(header, 0).ok()) << name;
  }
}

TEST(Safetensors, LengthField) {
  EXPECT_ERROR(parse(""), "f: has 0 bytes, too few");
  EXPECT_ERROR(parse("1234567"), "f: has 7 bytes, too few");
  EXPECT_ERROR(parse(std::string("\3\0\0\0\0\0\0\0{}", 10)), "claims a header of 3 bytes but only 2 follow");
  EXPECT_ERROR(parse(std::string(8, '\xff') + "{}"), "claims a header of 18446744073709551615 bytes");
  EXPECT_ERROR(parse(std::string("\1\xe1\xf5\5\0\0\0\0{}", 10)), "At most 100000000 are accepted");
  EXPECT_ERROR(parse(std::string(8, '\0')), "does not begin with '{'");
  EXPECT_ERROR(parse_header(" {}", 0), "does not begin with '{'");
  EXPECT_ERROR(parse("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"), "Git LFS pointer");
  EXPECT_TRUE(parse_header("{}", 0).ok());
}

TEST(Safetensors, MalformedHeaders) {
  const struct {
    const char* header;
    std::size_t data_bytes;
    const char* error;
  } cases[] = {
      {R"({"a")", 0, "not valid JSON"},
      {R"({} {)", 0, "not valid JSON"},
      {"{\"\xff\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "UTF-8"},
      {R"({"a":1})", 0, "tensor \"a\" is not described by an object"},
      {R"({"a":[]})", 0, "tensor \"a\" is not described by an object"},
      {R"({"a":{}})", 0, "tensor \"a\" lacks \"dtype\""},
      {R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1, "tensor \"a\" lacks \"shape\""},
      {R"({"a":{"dtype":"U8","shape":[1]}})", 1, "tensor \"a\" lacks \"data_offsets\""},
      {R"({"a":{"dtype":"U8","dtype":"U8"}})", 0, "tensor \"a\" has \"dtype\" twice"},
      {R"({"a":{"dtype":"U8","strides":[1]}})", 0, "tensor \"a\" has the unknown field \"strides\""},
      {R"({"a":{"dtype":7}})", 0, "tensor \"a\": \"dtype\" is not a string"},
      {R"({"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}})", 8,
       "tensor \"a\" has dtype \"F64\", supported are F32, BF16, F16, I32, U8, I64, F8_E4M3"},
      {R"({"a":{"dtype":"U8","shape":7}})", 0, "\"shape\" is not a list of non-negative integers"},
      {R"({"a":{"dtype":"U8","shape":[-1]}})", 0, "\"shape\" is not a list of non-negative integers"},
      {R"({"a":{"dtype":"U8","shape":[1.0]}})", 0, "\"shape\" is not a list of non-negative integers"},
      {R"({"a":{"dtype":"U8","shape":[[1]]}})", 0, "\"shape\" is not a list of non-negative integers"},
      {R"({"a":{"dtype":"U8","shape":["1"]}})", 0, "\"shape\" is not a list of non-negative integers"},
      {R"({"a":{"dtype":"U8","shape":[18446744073709551616]}})", 0, "\"shape\" is not a list"},
      {R"({"a":{"dtype":"U8","shape":[9223372036854775808]}})", 0, "the dimension 9223372036854775808"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1, "not a list of two"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}})", 1, "not a list of two"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[-1,0]}})", 1, "not a list of two"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":"01"}})", 1, "not a list of two"},
      {R"({"__metadata__":7})", 0, "\"__metadata__\" is not an object of strings"},
      {R"({"__metadata__":{"a":7}})", 0, "\"__metadata__\" is not an object of strings"},
      {R"({"__metadata__":{"a":{}}})", 0, "\"__metadata__\" is not an object of strings"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, "\"__metadata__\" appears twice"},
      {R"({"__metadata__":{"a":"","a":""}})", 0, "\"__metadata__\" has the key \"a\" twice"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[2,1]}})", 4, "has the data range [2, 1)"},
      {R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]}})", 4,
       "tensor \"a\" has the data range [0, 5) but the file holds 4 bytes of data: it is truncated"},
      {R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,4]}})", 4,
       "has 4 bytes of data, but U8 [3] needs 3"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "F32 [2] needs 8"},
      {R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0, "overflows"},
      {R"({"a":{"dtype":"U8","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}})", 0, "overflows"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})", 0, "overflows"},
      {R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
       4, "tensors \"a\" and \"b\" overlap"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
       4, "data bytes 1 to 2, before tensor \"b\", belong to no tensor"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 4,
       "the last 3 bytes of data belong to no tensor"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\u0061":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       2, "tensor \"a\" appears twice"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.header);
    const auto result = parse_header(c.header, c.data_bytes);
    EXPECT_ERROR(result, c.error);
    EXPECT_EQ(result.error().message.find("f: "), 0U) << "names the file";
  }
  std::string rank = R"({"a":{"dtype":"U8","shape":[1)";
  for (int i = 1; i < 64; ++i) rank += ",1";
  EXPECT_TRUE(parse_header(rank + R"(],"data_offsets":[0,1]}})", 1).ok());
  EXPECT_ERROR(parse_header(rank + R"(,1],"data_offsets":[0,1]}})", 1), "more than 64 dimensions");
  EXPECT_ERROR(parse_header(R"({"a":)" + std::string(100000, '['), 0), "not described by an object");
}

TEST(Safetensors, NoByteMayBeCutOff) {
  const std::string file = safetensors_text(
      R"({"a":{"dtype":"BF16","shape":[3],"data_offsets":[0,6]},"b":{"dtype":"U8","shape":[2],"data_offsets":[6,8]}})",
      8);
  ASSERT_TRUE(parse(file).ok());
  for (std::size_t n = 0; n < file.size(); ++n) EXPECT_FALSE(parse(file.substr(0, n)).ok()) << n;
  EXPECT_FALSE(parse(file + '\0').ok());
}

TEST(SafetensorsWrite, RoundTripOfRandomTensors) {
  const TestFolder folder;
  std::mt19937 random(7);
  const DType dtypes[] = {DType::kU8, DType::kBF16, DType::kF32, DType::kI64, DType::kF8E4M3};
  for (int round = 0; round < 30; ++round) {
    std::vector<std::vector<std::uint8_t>> data(random() % 8);
    std::vector<NamedTensor> tensors;
    for (std::size_t i = 0; i < data.size(); ++i) {
      TensorView view{dtypes[random() % 5], {}, nullptr};
      for (std::size_t d = random() % 4; d > 0; --d)
        view.shape.push_back(static_cast<std::int64_t>(random() % 6));
      data[i].resize(static_cast<std::size_t>(view.bytes()));
      for (auto& b : data[i]) b = static_cast<std::uint8_t>(random());
      view.data = data[i].data();
      tensors.push_back({"t\"\\\xc3\xa9." + std::to_string(i), view});
    }
    const std::string path = folder / "out.safetensors";
    const Status status = write_safetensors(path, tensors, {{"made", "here"}});
    ASSERT_TRUE(status.ok()) << status.error().message;
    const auto read = open_safetensors(path);
    ASSERT_TRUE(read.ok()) << read.error().message;
    ASSERT_EQ(read->content.tensors.size(), tensors.size());
    EXPECT_EQ(read->content.metadata[0].first, "made");
    for (const NamedTensor& got : read->content.tensors) {
      const auto index = static_cast<std::size_t>(std::stoi(got.name.substr(got.name.rfind('.') + 1)));
      const TensorView& want = tensors[index].view;
      EXPECT_EQ(got.name, tensors[index].name);
      EXPECT_EQ(got.view.dtype, want.dtype);
      EXPECT_EQ(got.view.shape, want.shape);
      if (want.bytes() > 0) {
        EXPECT_EQ(std::memcmp(got.view.data, want.data, static_cast<std::size_t>(want.bytes())), 0);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(got.view.data) % dtype_size(want.dtype), 0U) << "aligned";
      }
    }
  }
}

TEST(SafetensorsWrite, RefusesAndLeavesNothingBehind) {
  const TestFolder folder;
  const std::uint8_t byte = 1;
  const NamedTensor t{"a", {DType::kU8, {1}, &byte}};
  EXPECT_ERROR(write_safetensors(folder / "x", {t, t}), "tensor name \"a\" twice");
  EXPECT_ERROR(write_safetensors(folder / "x", {{"__metadata__", t.view}}), "\"__metadata__\" twice");
  EXPECT_ERROR(write_safetensors(folder / "x", {{"\xff", t.view}}), "not valid UTF-8");
  EXPECT_ERROR(write_safetensors(folder / "no/x", {t}), "cannot be created: No such file or directory");
  std::filesystem::create_directory(folder / "d");
  EXPECT_ERROR(write_safetensors(folder / "d", {t}), "is not a regular file");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1) << "only the folder d";
  // An old file is replaced as a whole.
  folder.write("x", "old");
  ASSERT_TRUE(write_safetensors(folder / "x", {t}).ok());
  EXPECT_TRUE(open_safetensors(folder / "x").ok());
}

TEST(SafetensorsWrite, FollowsLinksAndReplacesFilesOnly) {
  const TestFolder folder;
  const std::uint8_t byte = 1;
  const NamedTensor t{"a", {DType::kU8, {1}, &byte}};
  std::filesystem::create_symlink("target", folder / "link");
  ASSERT_TRUE(write_safetensors(folder / "link", {t}).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_TRUE(open_safetensors(folder / "target").ok());
  std::filesystem::create_symlink("loop", folder / "loop");
  EXPECT_ERROR(write_safetensors(folder / "loop", {t}), "too many levels");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_ERROR(write_safetensors(folder / "pipe", {t}), "not a regular file");
  EXPECT_TRUE(std::filesystem::is_fifo(folder / "pipe"));
}

}  // namespace
}  // namespace firstlight
