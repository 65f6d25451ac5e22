#include "text/symbols.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/json_limits.h"
#include "text/unicode.h"

namespace firstlight {
namespace {

constexpr std::int32_t kNone = Vocabulary::kNone;
constexpr std::size_t kPlane = 0x10000;

}  // namespace

Result<SymbolMaker> SymbolMaker::create(const TokenizerJsonFile& file, const Vocabulary& vocabulary,
                                        bool bytes) {
  SymbolMaker maker;
  maker.vocabulary_ = &vocabulary;
  maker.bytes_ = bytes;
  maker.fuse_unknown_ = file.fuse_unk;
  maker.prefix_ = file.continuing_subword_prefix;
  maker.suffix_ = file.end_of_word_suffix;
  if (bytes && !(maker.prefix_.empty() && maker.suffix_.empty())) {
    return Error{
        "model.continuing_subword_prefix and model.end_of_word_suffix are not supported with ByteLevel"};
  }
  if (file.unk_token) {
    maker.unknown_ = vocabulary.find(*file.unk_token);
    if (*maker.unknown_ == kNone) {
      return Error{"model.unk_token: " + quote_text(*file.unk_token, 80) + " is not in the vocabulary"};
    }
  }
  maker.fallback_.fill(kNone);
  for (std::size_t b = 0; file.byte_fallback && b < maker.fallback_.size(); ++b) {
    std::array<char, 8> name{};
    std::snprintf(name.data(), name.size(), "<0x%02X>", static_cast<unsigned>(b));
    maker.fallback_[b] = vocabulary.find(name.data());
  }
  if (!bytes && maker.prefix_.empty()) {
    maker.characters_.assign(kPlane, kNone);
    std::string text;
    for (char32_t c = 0; c < kPlane; ++c) {
      text.clear();
      append_utf8(c, text);
      maker.characters_[c] = vocabulary.find(text);
    }
  }
  return maker;
}

std::vector<bool> SymbolMaker::stand_ins() const {
  std::vector<bool> result(static_cast<std::size_t>(vocabulary_->size()));
  if (unknown_) result[static_cast<std::size_t>(*unknown_)] = true;
  for (const std::int32_t id : fallback_) {
    if (id != kNone) result[static_cast<std::size_t>(id)] = true;
  }
  return result;
}

Status SymbolMaker::make(std::string_view piece, std::vector<std::int32_t>& symbols) const {
  symbols.clear();
  if (bytes_) {
    for (const char c : piece) {
      const auto byte = static_cast<std::uint8_t>(c);
      const std::int32_t id = vocabulary_->byte_id(byte);
      if (id == kNone) FL_TRY(add_byte(byte, symbols));
      if (id != kNone) symbols.push_back(id);
    }
    return {};
  }
  Unknown unknown;
  std::string marked;
  for (std::size_t i = 0; i < piece.size();) {
    const std::size_t start = i;
    const char32_t c = next_code_point(piece, i);
    const bool last = i == piece.size() && !suffix_.empty();
    if (!characters_.empty() && c < kPlane && !last) {
      if (const std::int32_t id = characters_[c]; id != kNone) {
        if (unknown.held) symbols.push_back(*unknown_);
        unknown.held = false;
        symbols.push_back(id);
        continue;
      }
    }
    marked = start == 0 ? "" : prefix_;
    marked += piece.substr(start, i - start);
    if (last) marked += suffix_;
    FL_TRY(add_character(marked, unknown, symbols));
  }
  if (unknown.held) symbols.push_back(*unknown_);
  return {};
}

Status SymbolMaker::add_character(std::string_view character, Unknown& unknown,
                                  std::vector<std::int32_t>& symbols) const {
  const std::int32_t id = vocabulary_->find(character);
  if (id == kNone) {
    const auto has_token = [&](char c) { return fallback_[static_cast<std::uint8_t>(c)] != kNone; };
    if (std::all_of(character.begin(), character.end(), has_token)) {
      for (const char c : character) symbols.push_back(fallback_[static_cast<std::uint8_t>(c)]);
      return {};
    }
    if (!unknown_) return Error{"the vocabulary has no token for " + quote_text(character, 40)};
  }
  if (unknown.held && !(id == kNone && fuse_unknown_)) symbols.push_back(*unknown_);
  unknown.held = id == kNone;
  if (id != kNone) symbols.push_back(id);
  return {};
}

Status SymbolMaker::add_byte(std::uint8_t byte, std::vector<std::int32_t>& symbols) const {
  std::int32_t id = bytes_ ? vocabulary_->byte_id(byte) : kNone;
  if (id == kNone) id = fallback_[byte];
  if (id == kNone && unknown_) id = *unknown_;
  if (id == kNone) return Error{"the vocabulary has no token for the byte " + std::to_string(byte)};
  symbols.push_back(id);
  return {};
}

}  // namespace firstlight
