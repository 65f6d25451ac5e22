// Any text is a config or one Error; an accepted config is JSON to the plain parser too, with the same tree.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "checkpoint/config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = firstlight::parse_config(text, "fuzz");
  if (!config.ok()) return 0;
  if (nlohmann::ordered_json::parse(text, nullptr, false) != *config) std::abort();
  return 0;
}
