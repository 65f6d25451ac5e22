// What the tests of this folder share: golden files, the real vocabulary, a small one, random text.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "text/tiktoken.h"
#include "text/unicode.h"

namespace firstlight::text_test {

inline std::filesystem::path data_path(const std::string& name) {
  return std::filesystem::path(FL_REPO_ROOT) / "tests/data/tokenizers" / name;
}

/// The folder of larger test data beside the repository, which need not exist.
inline std::filesystem::path shared_path(const std::string& name) {
  const char* folder = std::getenv("FIRSTLIGHT_SHARED");
  return (folder != nullptr ? std::filesystem::path(folder)
                            : std::filesystem::path(FL_REPO_ROOT) / "../shared") /
         name;
}

inline std::string file_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::vector<nlohmann::json> jsonl(const std::filesystem::path& path) {
  std::vector<nlohmann::json> rows;
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  for (std::string line; std::getline(file, line);) rows.push_back(nlohmann::json::parse(line));
  return rows;
}

inline std::string gunzip(const std::filesystem::path& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  EXPECT_NE(file, nullptr) << path;
  std::string bytes;
  std::vector<char> block(1 << 16);
  for (int n = 0; (n = gzread(file, block.data(), 1 << 16)) > 0;) {
    bytes.append(block.data(), static_cast<std::size_t>(n));
  }
  EXPECT_EQ(gzclose(file), Z_OK) << path;
  return bytes;
}

/// Kimi's tokenizer; `config` is "k2" or "k3". Loaded once a program.
inline const Tokenizer& kimi(const std::string& config) {
  const auto load = [](const std::string& file) {
    static const std::string model = gunzip(data_path("kimi/tiktoken.model.gz"));
    auto loaded = make_tiktoken({model, "tiktoken.model"}, {file_bytes(data_path(file)), file});
    EXPECT_TRUE(loaded.ok()) << loaded.error().message;
    return std::move(*loaded);
  };
  static const auto k2 = load("kimi/tokenizer_config.k2.json");
  static const auto k3 = load("kimi/tokenizer_config.k3.json");
  return config == "k2" ? *k2 : *k3;
}

inline std::string base64(std::string_view bytes) {
  constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      bits = (bits << 8) | (i + k < bytes.size() ? static_cast<std::uint8_t>(bytes[i + k]) : 0U);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      text += i + k > bytes.size() ? '=' : alphabet[(bits >> (18 - 6 * k)) & 63U];
    }
  }
  return text;
}

/// tiktoken.model text: the 256 bytes, then `more`.
inline std::string small_model(const std::vector<std::string>& more) {
  std::string text;
  std::size_t rank = 0;
  const auto add = [&](std::string_view token) {
    text += base64(token) + " " + std::to_string(rank++) + "\n";
  };
  for (int b = 0; b < 256; ++b) add(std::string(1, static_cast<char>(static_cast<std::uint8_t>(b))));
  for (const std::string& token : more) add(token);
  return text;
}

inline std::string random_bytes(Random& random, std::size_t size) {
  std::string bytes;
  while (bytes.size() < size) bytes += static_cast<char>(static_cast<std::uint8_t>(random() & 0xFF));
  return bytes;
}

/// Characters of all lengths, ASCII and white space more often than the rest.
inline std::string random_text(Random& random, std::size_t characters) {
  constexpr std::string_view common = "  \n\t'abcdefgsdmtXYZ019.,(<|>";
  std::string text;
  for (std::size_t i = 0; i < characters; ++i) {
    const std::uint64_t bits = random();
    if (bits % 4 != 0) {
      text += common[(bits >> 8) % common.size()];
      continue;
    }
    constexpr char32_t limits[] = {0x80, 0x800, 0x10000, 0x110000};
    const auto c = static_cast<char32_t>((bits >> 8) % limits[(bits >> 2) % 4]);
    append_utf8(c >= 0xD800 && c < 0xE000 ? U'中' : c, text);
  }
  return text;
}

}  // namespace firstlight::text_test
