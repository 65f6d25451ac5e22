#include "text/vocabulary.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace firstlight {
namespace {

std::uint64_t mix(std::uint64_t h, std::uint64_t word) {
  h = (h ^ word) * 0x9E3779B97F4A7C15U;  // 2^64 / golden ratio: spreads low bits upwards
  return h ^ (h >> 29);
}

std::uint64_t hash_bytes(std::string_view s) {
  std::uint64_t h = s.size();
  while (s.size() >= sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, s.data(), sizeof word);
    h = mix(h, word);
    s.remove_prefix(sizeof word);
  }
  std::uint64_t tail = 0;
  for (const char c : s) tail = (tail << 8) | static_cast<std::uint8_t>(c);
  return mix(h, tail);
}

}  // namespace

Result<Vocabulary> Vocabulary::build(std::string blob, std::vector<Span> spans) {
  Vocabulary v;
  v.blob_ = std::move(blob);
  v.spans_ = std::move(spans);
  v.slots_.resize(std::bit_ceil(2 * v.spans_.size() + 1));
  const std::size_t mask = v.slots_.size() - 1;
  for (std::size_t id = 0; id < v.spans_.size(); ++id) {
    const std::string_view token = v.bytes_of(v.spans_[id]);
    if (token.empty()) continue;
    v.longest_ = std::max(v.longest_, token.size());
    const std::uint64_t h = hash_bytes(token);
    const auto tag = static_cast<std::uint32_t>(h >> 32);
    std::size_t i = h & mask;
    for (; v.slots_[i].id != kNone; i = (i + 1) & mask) {
      if (v.slots_[i].tag == tag && v.bytes(v.slots_[i].id) == token) {
        return Error{"ids " + std::to_string(v.slots_[i].id) + " and " + std::to_string(id) +
                     " are the same token"};
      }
    }
    v.slots_[i] = {tag, static_cast<std::int32_t>(id)};
  }
  for (std::size_t b = 0; b < v.byte_ids_.size(); ++b) {
    const char c = static_cast<char>(static_cast<std::uint8_t>(b));
    v.byte_ids_[b] = v.find({&c, 1});
  }
  return v;
}

std::int32_t Vocabulary::find(std::string_view bytes) const {
  if (bytes.size() > longest_) return kNone;
  const std::size_t mask = slots_.size() - 1;
  const std::uint64_t h = hash_bytes(bytes);
  const auto tag = static_cast<std::uint32_t>(h >> 32);
  for (std::size_t i = h & mask; slots_[i].id != kNone; i = (i + 1) & mask) {
    if (slots_[i].tag == tag && this->bytes(slots_[i].id) == bytes) return slots_[i].id;
  }
  return kNone;
}

}  // namespace firstlight
