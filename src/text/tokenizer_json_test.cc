#include "text/tokenizer_json.h"

#include <gtest/gtest.h>

#include <sstream>

#include "text/stream_decoder.h"
#include "text/test_data.h"

namespace firstlight {
namespace {

using Json = nlohmann::ordered_json;
using Ids = std::vector<std::int32_t>;
using text_test::data_path;
using text_test::shared_path;

Result<std::unique_ptr<Tokenizer>> make(const std::string& file, const std::string& config = "") {
  if (config.empty()) return make_tokenizer_json({file, "tokenizer.json"});
  return make_tokenizer_json({file, "tokenizer.json"}, NamedText{config, "tokenizer_config.json"});
}

std::unique_ptr<Tokenizer> loaded(const std::string& file, const std::string& config = "") {
  auto result = make(file, config);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result ? std::move(*result) : nullptr;
}

Ids encode(const Tokenizer& tokenizer, std::string_view text, bool parse_special = false) {
  Ids ids;
  const Status status = tokenizer.encode(text, parse_special, ids);
  EXPECT_TRUE(status.ok()) << status.error().message;
  return ids;
}

std::string decode(const Tokenizer& tokenizer, const Ids& ids) {
  StreamDecoder decoder(tokenizer);
  std::string text;
  for (const std::int32_t id : ids) decoder.push(id, text);
  decoder.finish(text);
  return text;
}

/// tokenizer.json with `parts` and a small model.
std::string document(const Json& model, const Json& parts = Json::object()) {
  Json whole = {
      {"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}, {"added_tokens", Json::array()}};
  for (const char* key : {"normalizer", "pre_tokenizer", "post_processor", "decoder"}) whole[key] = nullptr;
  whole["model"] = model;
  for (const auto& [key, value] : parts.items()) {
    if (key == "model") {
      whole["model"].update(value);
    } else {
      whole[key] = value;
    }
  }
  return whole.dump();
}

/// Bytes "a", "b", "c", "Ġ" (the blank) and what they are joined to.
Json abc_model() {
  return Json::parse(R"({"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "Ġ": 3, "ab": 4, "abc": 5, "Ġa": 6},
                         "merges": ["a b", "ab c", "Ġ a"]})");
}

const char* const kBytes =
    R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
                               "decoder": {"type": "ByteLevel"}})";

Json parts(const std::string& more = "{}") {
  Json all = Json::parse(kBytes);
  all.update(Json::parse(more));
  return all;
}

// Every combination of components in tests/oracle/tokenizer_json_goldens.py, against another implementation.
TEST(TokenizerJson, GoldenCases) {
  std::map<std::string, Json> models;
  for (const std::string name : {"bytes", "letters"}) {
    models[name] = Json::parse(text_test::file_bytes(data_path("json/" + name + ".model.json")));
  }
  std::istringstream lines(text_test::gunzip(data_path("json/cases.jsonl.gz")));
  int cases = 0;
  for (std::string line; std::getline(lines, line); ++cases) {
    const Json golden = Json::parse(line);
    SCOPED_TRACE(golden["name"]);
    const auto tokenizer = loaded(document(models[golden["model"].get<std::string>()], golden["parts"]));
    ASSERT_NE(tokenizer, nullptr);
    for (const Json& row : golden["rows"]) {
      const Ids ids = encode(*tokenizer, row["text"].get<std::string>(), row["parse_special"]);
      ASSERT_EQ(ids, row["ids"].get<Ids>()) << row;
      if (row.contains("decoded")) {
        ASSERT_EQ(decode(*tokenizer, ids), row["decoded"].get<std::string>()) << row;
      }
    }
  }
  EXPECT_GT(cases, 40);
}

TEST(TokenizerJson, ConfigAddsChangesAndNamesTokens) {
  const std::string file = document(abc_model(), parts(R"({"added_tokens": [
      {"id": 7, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}]})"));
  const auto plain = loaded(file);
  EXPECT_EQ(plain->vocab_size(), 8);
  EXPECT_FALSE(plain->eos_id().has_value());
  EXPECT_TRUE(plain->prefix().empty());
  const auto configured = loaded(file, R"({"added_tokens_decoder": {
      "7": {"content": "<s>", "rstrip": true, "special": true}, "9": {"content": "<e>", "special": false}},
      "bos_token": "<s>", "add_bos_token": true, "eos_token": "<e>"})");
  EXPECT_EQ(configured->vocab_size(), 10);
  EXPECT_EQ(configured->eos_id(), 9);
  EXPECT_EQ(configured->prefix(), Ids{7});
  EXPECT_EQ(encode(*configured, "<s>  ab<e>", true), (Ids{7, 4, 9}));
  EXPECT_EQ(encode(*plain, "<s> ab", true), (Ids{7, 3, 4}));
  EXPECT_TRUE(configured->is_special(9));
  EXPECT_TRUE(configured->is_skipped(9)) << "the end token is special by role";
  EXPECT_EQ(configured->token_bytes(8), "");
  EXPECT_EQ(configured->token_bytes(6), " a");
  EXPECT_EQ(configured->special_id("<e>"), 9);
  EXPECT_EQ(configured->token_bytes(10), "");
  EXPECT_EQ(configured->token_bytes(-1), "");
  EXPECT_FALSE(configured->is_special(-1));
}

TEST(TokenizerJson, PostProcessorGivesThePrefix) {
  const char* bos = R"({"post_processor": {"type": "Sequence", "processors": [
      {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false},
      {"type": "TemplateProcessing",
       "single": [{"SpecialToken": {"id": "c", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
       "pair": [], "special_tokens": {"c": {"id": "c", "ids": [2], "tokens": ["c"]}}}]}})";
  const std::string file = document(abc_model(), parts(bos));
  EXPECT_EQ(loaded(file)->prefix(), Ids{2});
  EXPECT_TRUE(encode(*loaded(file), "").empty());
  EXPECT_TRUE(loaded(file, R"({"add_bos_token": false})")->prefix().empty());
}

TEST(TokenizerJson, TextAloneNeverBecomesASpecialToken) {
  const std::string special =
      R"({"added_tokens": [{"id": 5, "content": "abc", "single_word": false, "lstrip": false,
      "rstrip": false, "normalized": false, "special": true}], "model": {"ignore_merges": true}})";
  const auto tokenizer = loaded(document(abc_model(), parts(special)));
  EXPECT_EQ(encode(*tokenizer, "abc"), (Ids{4, 2}));
  EXPECT_EQ(encode(*tokenizer, "abc", true), (Ids{5}));
}

TEST(TokenizerJson, BytesThatAreNotUtf8) {
  Json model = abc_model();
  model["vocab"]["Ã"] = 7;  // the letter of byte 0xC3
  const auto tokenizer = loaded(document(model, parts()));
  EXPECT_EQ(encode(*tokenizer, "a\xC3 a"), (Ids{0, 7, 6}));
  Ids ids;
  const Status status = tokenizer->encode("a\xFF", false, ids);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("no token for the byte 255"), std::string::npos);
  const Json letters = Json::parse(R"({"type": "BPE", "byte_fallback": true, "merges": [],
      "vocab": {"a": 0, "<0xC3>": 1, "<0xA9>": 2}})");
  const auto spm = loaded(document(letters, Json::parse(R"({"decoder": {"type": "ByteFallback"}})")));
  EXPECT_EQ(encode(*spm, "a\xC3"), (Ids{0, 1}));
  EXPECT_EQ(encode(*spm, "aé"), (Ids{0, 1, 2}));
  EXPECT_EQ(decode(*spm, {1, 2, 1, 0}), "é\uFFFDa");
}

TEST(TokenizerJson, LeadingBlanksAreLostOnlyAtTheStart) {
  const Json letters = Json::parse(R"({"type": "BPE", "merges": [], "vocab": {"▁": 0, "a": 1, "▁▁": 2}})");
  const auto tokenizer =
      loaded(document(letters, Json::parse(R"({"decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 2, "stop": 0}]}})")));
  EXPECT_EQ(decode(*tokenizer, {0, 1, 0, 1}), "a a");
  EXPECT_EQ(decode(*tokenizer, {0, 0, 0, 1}), " a");
  EXPECT_EQ(decode(*tokenizer, {2, 0, 1}), " a");
  EXPECT_EQ(decode(*tokenizer, {1, 0}), "a ");
}

TEST(TokenizerJson, EachFaultHasItsSentence) {
  const auto expect = [](const std::string& file, const std::string& part, const std::string& config = "") {
    const auto result = make(file, config);
    ASSERT_FALSE(result.ok()) << part;
    EXPECT_TRUE(result.error().message.starts_with("tokenizer")) << result.error().message;
    EXPECT_NE(result.error().message.find(part), std::string::npos) << result.error().message;
    EXPECT_LT(result.error().message.size(), 400U);
  };
  const auto with = [](const std::string& more) { return document(abc_model(), parts(more)); };
  const std::string good = with("{}");
  for (std::size_t size = 0; size < good.size(); ++size) expect(good.substr(0, size), "");
  expect("[]", "expected a JSON object");
  expect("{}", "model: is missing");
  expect(R"({"model": null})", "\"model\": expected an object");
  expect(R"({"modell": {}})", "unknown field \"modell\"");
  expect(R"({"model": {"type": "Unigram"}})", "model.type: \"Unigram\" is not supported");
  expect(R"({"model": {"vocab": [["a", 0.5]]}})", "model.vocab: a value of this type is not expected");
  expect(R"({"model": {"vocab": {"a": 0}}})", "model.merges: is missing");
  expect(R"({"model": {"merges": []}})", "model.vocab: is missing");
  expect(R"({"model": {"vocab": {}, "merges": []}})", "model.vocab: is empty");
  expect(R"({"model": {"vocab": {"a": -1}}})", "model.vocab: expected an id from 0 to 2097150 for \"a\"");
  expect(R"({"model": {"vocab": {"a": 2097151}}})", "expected an id from 0 to 2097150");
  expect(R"({"model": {"vocab": {"a": 1e3}}})", "expected an id from 0 to 2097150");
  expect(R"({"model": {"vocab": {"a": 0, "b": 0}, "merges": []}})", "two tokens have the id 0");
  expect(R"({"model": {"vocab": {"a": 0, "a": 1}, "merges": []}})", "ids 0 and 1 are the same token");
  expect(R"({"model": {"vocab": {"a": 0}, "vocab": {"a": 0}, "merges": []}})",
         "key model.vocab appears twice");
  expect(R"({"version": "1.0", "version": "1.0"})", "key version appears twice");
  expect(R"({"version": "2.0"})", "version: expected \"1.0\"");
  expect(R"({"padding": 1})", "padding: expected an object or null");
  expect(R"({"normalizer": )" + std::string(100'000, '['), "normalizer: is nested deeper");
  expect(R"({"model": {"vocab": {"\ud800": 0}}})", "not valid JSON");
  expect("{\"model\": {\"vocab\": {\"\xff\": 0}}}", "not valid JSON");
  expect(with(R"({"model": {"dropout": 0.1}})"), "model.dropout: a value of this type");
  expect(with(R"({"model": {"fuse_unk": null}})"), "model.fuse_unk: a value of this type");
  expect(with(R"({"model": {"cache_capacity": 1}})"), "model: unknown field \"cache_capacity\"");
  expect(with(R"({"model": {"unk_token": "x"}})"), "model.unk_token: \"x\" is not in the vocabulary");
  expect(with(R"({"model": {"end_of_word_suffix": "x"}})"), "not supported with ByteLevel");
  expect(with(R"({"model": {"merges": ["a x"]}})"), "model.merges[0]: \"x\" is not in the vocabulary");
  expect(with(R"({"model": {"merges": ["a b", "b c"]}})"),
         "model.merges[1]: \"bc\" is not in the vocabulary");
  expect(with(R"({"model": {"merges": ["ab"]}})"), "model.merges[0]: expected \"left right\"");
  expect(with(R"({"model": {"merges": ["a b c"]}})"), "model.merges[0]: expected \"left right\"");
  expect(with(R"({"model": {"merges": [["a", "b"], ["a"]]}})"), "model.merges[1]: expected two tokens");
  expect(with(R"({"model": {"merges": [["a", "b", "c"]]}})"), "model.merges[0]: expected \"left right\"");
  expect(with(R"({"model": {"merges": [1]}})"), "model.merges[0]: expected \"left right\"");
  expect(with(R"({"model": {"merges": [" a"]}})"), "model.merges[0]: \"\" is not in the vocabulary");
  expect(with(R"({"model": {"continuing_subword_prefix": "c", "merges": ["a c"]}})"), "");
  expect(with(R"({"added_tokens": {}})"), "added_tokens: expected an array");
  expect(with(R"({"added_tokens": [{"id": 7}]})"), "added_tokens[0].content: is missing");
  const auto added = [](const std::string& id, const std::string& content, const std::string& more = "") {
    return R"({"id": )" + id + R"(, "content": ")" + content +
           R"(", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true)" +
           more + "}";
  };
  const auto with_added = [&](const std::string& list) {
    return with(R"({"added_tokens": [)" + list + "]}");
  };
  expect(with_added(added("7", "x", R"(, "score": 1)")), "added_tokens[0]: unknown field \"score\"");
  expect(with_added(added("-7", "x")), "added_tokens[0].id: expected a number");
  expect(with_added(added("2097151", "x")), "added_tokens[0].id: expected at most 2097150");
  expect(with_added(added("7", "")), "added_tokens[0].content: expected 1 to 1024 bytes");
  expect(with_added(added("0", "x")), "\"x\" (id 0) has the id of \"a\" in model.vocab");
  expect(with_added(added("7", "a")), "\"a\" (id 7) has the id 0 in model.vocab");
  expect(with_added(added("7", "x") + "," + added("7", "y")), "has the id of \"x\"");
  expect(with_added(added("7", "x") + "," + added("8", "x")), "ids 7 and 8 are the same added token");
  const std::string one = with_added(added("7", "x"));
  expect(one, "added_tokens_decoder.7: is \"y\", but \"x\" in tokenizer.json",
         R"({"added_tokens_decoder": {"7": {"content": "y"}}})");
  expect(one, "ids 7 and 8 are the same added token", R"({"added_tokens_decoder": {"8": {"content": "x"}}})");
  expect(one, "added_tokens_decoder.2097151: expected an id of at most",
         R"({"added_tokens_decoder": {"2097151": {"content": "y"}}})");
  expect(one, "eos_token: there is no token \"q\"", R"({"eos_token": "q"})");
  expect(one, "bos_token: there is no token \"q\"", R"({"bos_token": "q", "add_bos_token": true})");

  expect(with(R"({"normalizer": {"type": "Precompiled", "precompiled_charsmap": ""}})"),
         "normalizer.type: the normalizer \"Precompiled\" is not supported");
  expect(with(R"({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "X"}]}})"),
         "normalizer.normalizers[1].type: the normalizer \"X\" is not supported");
  expect(with(R"({"normalizer": {"type": "NFC", "version": 1}})"), "normalizer: unknown field \"version\"");
  expect(with(R"({"normalizer": {"type": "Prepend"}})"), "normalizer.prepend: is missing");
  expect(with(R"({"normalizer": {"type": "Replace", "pattern": {"Regex": "("}, "content": ""}})"),
         "normalizer.pattern.Regex: split pattern:");
  expect(with(R"({"normalizer": {"type": "Replace", "pattern": {"Glob": "("}, "content": ""}})"),
         "normalizer.pattern: unknown field \"Glob\"");
  expect(with(R"({"pre_tokenizer": {"type": "BertPreTokenizer"}})"),
         "the pre-tokenizer \"BertPreTokenizer\"");
  expect(with(R"({"pre_tokenizer": {"type": "ByteLevel"}})"), "pre_tokenizer.add_prefix_space: is missing");
  expect(with(R"({"pre_tokenizer": {"type": "Split", "pattern": {"String": "a"}, "behavior": "isolated"}})"),
         "pre_tokenizer.behavior: unknown behavior \"isolated\"");
  expect(with(R"({"pre_tokenizer": {"type": "Metaspace", "replacement": "ab"}})"),
         "pre_tokenizer.replacement: expected one character");
  expect(with(R"({"pre_tokenizer": {"type": "Metaspace", "replacement": "a", "prepend_scheme": "last"}})"),
         "pre_tokenizer.prepend_scheme: unknown scheme \"last\"");
  expect(with(R"({"decoder": {"type": "CTC"}})"), "decoder.type: the decoder \"CTC\" is not supported");
  expect(with(R"({"decoder": {"type": "Strip", "content": " ", "start": -1, "stop": 0}})"),
         "decoder.start: expected a number");
  expect(
      with(R"({"decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "ByteFallback"}]}})"),
      "decoder.decoders[1].type: \"ByteFallback\" after Fuse is not supported");
  expect(with(R"({"post_processor": {"type": "X"}})"), "post_processor.type: the post-processor \"X\"");
  expect(with(R"({"post_processor": {"type": "TemplateProcessing", "special_tokens": {},
                  "single": [{"SpecialToken": {"id": "c", "type_id": 0}}], "pair": []}})"),
         "post_processor.special_tokens.\"c\": is missing");
  expect(with(R"({"post_processor": {"type": "BertProcessing", "cls": ["x", 99], "sep": ["y", 0]}})"),
         "post_processor: there is no token 99");
}

TEST(TokenizerJson, GrowingTextIsStopped) {
  std::string steps;
  for (int i = 0; i < 40; ++i) {
    steps += std::string(i == 0 ? "" : ",") +
             R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"})";
  }
  const auto tokenizer = loaded(document(
      abc_model(), parts(R"({"normalizer": {"type": "Sequence", "normalizers": [)" + steps + "]}}")));
  Ids ids;
  const Status status = tokenizer->encode(std::string(1000, 'a'), false, ids);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("too long"), std::string::npos) << status.error().message;
}

std::string command_output(const std::string& command) {
  std::string bytes;
  FILE* pipe = popen(command.c_str(), "r");
  std::vector<char> block(1 << 16);
  for (std::size_t n = 0; pipe != nullptr && (n = fread(block.data(), 1, block.size(), pipe)) > 0;) {
    bytes.append(block.data(), n);
  }
  EXPECT_TRUE(pipe != nullptr && pclose(pipe) == 0) << command;
  return bytes;
}

std::string unpacked(const std::filesystem::path& path) {
  return command_output("zstd -dcq '" + path.string() + "'");
}

class SharedVocabulary : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(shared_path("data/tokenizers"))) {
      GTEST_SKIP() << "vocabularies skipped: no " << shared_path("data/tokenizers");
    }
  }
  static std::unique_ptr<Tokenizer> open(const std::string& name) {
    const auto folder = shared_path("data/tokenizers/" + name);
    const auto config = folder / "tokenizer_config.json";
    return loaded(unpacked(folder / "tokenizer.json.zst"),
                  std::filesystem::exists(config) ? text_test::file_bytes(config) : "");
  }
  static void compare(const Tokenizer& tokenizer, const std::string& file, std::size_t at_least) {
    const auto rows = text_test::jsonl(shared_path("data/goldens/tokenizers/" + file));
    EXPECT_GE(rows.size(), at_least);
    for (const auto& row : rows) {
      EXPECT_EQ(encode(tokenizer, row["text"].get<std::string>(), row.value("parse_special", false)),
                row["ids"].get<Ids>())
          << row["id"] << " " << row["text"];
    }
  }
};

TEST_P(SharedVocabulary, Goldens) {
  const std::string name = GetParam();
  const auto tokenizer = open(name);
  ASSERT_NE(tokenizer, nullptr);
  compare(*tokenizer, name + ".encode.jsonl", 150);
  for (const auto& row : text_test::jsonl(shared_path("data/goldens/tokenizers/" + name + ".decode.jsonl"))) {
    EXPECT_EQ(decode(*tokenizer, row["ids"].get<Ids>()), row["text_replace"].get<std::string>()) << row["id"];
  }
  for (const auto& row : text_test::jsonl(shared_path("data/goldens/tokenizers/mixed_long.encode.jsonl"))) {
    if (!row["ids"].contains(name)) continue;
    EXPECT_EQ(encode(*tokenizer, row["text"].get<std::string>(), row["parse_special"]),
              row["ids"][name].get<Ids>())
        << row["id"];
  }
  if (name == "gpt2") compare(*tokenizer, "llamacpp_gpt-2.encode.jsonl", 20);
  if (name == "llama3_1") compare(*tokenizer, "llamacpp_llama-bpe.encode.jsonl", 20);
  if (name == "qwen3") compare(*tokenizer, "llamacpp_qwen2.encode.jsonl", 20);
}

INSTANTIATE_TEST_SUITE_P(TokenizerJson, SharedVocabulary,
                         testing::Values("deepseek_v3", "gpt2", "gpt_oss", "llama3_1", "qwen3"));

using SharedKinds = SharedVocabulary;

// The pattern of Qwen3.5 on the vocabulary of Qwen3.
TEST_F(SharedKinds, Qwen35Pattern) {
  nlohmann::json file =
      nlohmann::json::parse(unpacked(shared_path("data/tokenizers/qwen3/tokenizer.json.zst")));
  file["normalizer"] = nullptr;
  file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)"
      R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
  compare(*loaded(file.dump()), "qwen35_pretokenizer_on_qwen3_vocab.encode.jsonl", 20);
}

// All rows of the SentencePiece vocabulary, which exists as a GGUF: an oracle script makes the
// tokenizer.json.
TEST_F(SharedKinds, SentencePieceFromGguf) {
  const auto gguf = std::filesystem::path(testing::TempDir()) / "llama-spm.gguf";
  std::ofstream(gguf, std::ios::binary) << unpacked(shared_path("data/gguf/ggml-vocab-llama-spm.gguf.zst"));
  const auto script = std::filesystem::path(FL_REPO_ROOT) / "tests/oracle/gguf_to_tokenizer_json.py";
  const auto tokenizer =
      loaded(command_output("/usr/bin/python3 '" + script.string() + "' '" + gguf.string() + "'"));
  std::filesystem::remove(gguf);
  ASSERT_NE(tokenizer, nullptr);
  compare(*tokenizer, "llamacpp_llama-spm.encode.jsonl", 30);
  for (const auto& row :
       text_test::jsonl(shared_path("data/goldens/tokenizers/llamacpp_llama-spm.encode.jsonl"))) {
    EXPECT_EQ(decode(*tokenizer, row["ids"].get<Ids>()), row["text"].get<std::string>()) << row["id"];
  }
  EXPECT_EQ(tokenizer->prefix(), Ids{1});
}

}  // namespace
}  // namespace firstlight
