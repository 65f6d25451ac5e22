// Arbitrary bytes through the UTF-8 stream and the stop strings, cut at arbitrary places: the cuts change
// nothing. Input: number of stop strings, cut length, then parts separated by 0xFF 0xFF: stops, text.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/stop_strings.h"
#include "text/utf8.h"

namespace {

using firstlight::check;

std::string run(std::string_view text, const std::vector<std::string>& stops, std::size_t step) {
  auto matcher = firstlight::StopStrings::create(stops);
  check(matcher.ok(), "valid stop strings");
  firstlight::Utf8Stream utf8;
  std::string out;
  for (std::size_t i = 0; i < text.size(); i += step) {
    std::string delta;
    utf8.push(text.substr(i, step), delta);
    check(firstlight::is_valid_utf8(delta), "whole characters");
    std::string visible;
    matcher->push(delta, visible);
    check(firstlight::is_valid_utf8(visible), "whole characters");
    out += visible;
  }
  std::string rest;
  utf8.finish(rest);
  matcher->push(rest, out);
  matcher->finish(out);
  for (const std::string& stop : stops) check(out.find(stop) == std::string::npos, "no stop string gets out");
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::size_t stop_count = data[0] % 4;
  const std::size_t step = 1 + data[1] % 8;
  std::string_view rest(reinterpret_cast<const char*>(data) + 2, size - 2);
  std::vector<std::string> stops;
  while (stops.size() < stop_count) {
    const std::size_t end = rest.find("\xff\xff");
    if (end == std::string_view::npos) break;
    stops.emplace_back(rest.substr(0, end));
    rest.remove_prefix(end + 2);
    if (stops.back().empty() || !firstlight::is_valid_utf8(stops.back())) {
      check(!firstlight::StopStrings::create(stops).ok(), "bad stop strings are refused");
      stops.pop_back();
      break;
    }
  }
  check(run(rest, stops, step) == run(rest, stops, std::max<std::size_t>(rest.size(), 1)),
        "cuts change nothing");
  return 0;
}
