// Any lines are a list of modules or one Error; matching ends soon, whatever they are, with one of them or
// none.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/name_pattern.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> lines;
  for (std::size_t end = 0; lines.size() < 64 && (end = text.find('\n')) != text.npos;
       text.remove_prefix(end + 1)) {
    lines.emplace_back(text.substr(0, end));
  }
  const auto list = firstlight::ModuleList::create(lines);
  if (!list.ok()) return 0;
  for (const std::string_view name :
       {text.substr(0, 600), std::string_view("model.layers.10.mlp.experts.7.up_proj.weight"),
        std::string_view("lm_head.weight")}) {
    const std::string* const entry = list->covering(name);
    if (entry != nullptr && std::find(lines.begin(), lines.end(), *entry) == lines.end()) std::abort();
  }
  return 0;
}
