#include "text/stop_strings.h"

#include <algorithm>

#include "text/utf8.h"

namespace firstlight {

Result<StopStrings> StopStrings::create(const std::vector<std::string>& stops) {
  StopStrings matcher;
  for (std::size_t index = 0; index < stops.size(); ++index) {
    if (stops[index].empty() || !is_valid_utf8(stops[index])) {
      return Error{"stop[" + std::to_string(index) + "]: expected non-empty valid UTF-8"};
    }
    Stop stop;
    stop.text = stops[index];
    stop.border.assign(stop.text.size(), 0);
    for (std::size_t i = 1; i < stop.text.size(); ++i) {
      std::size_t k = stop.border[i - 1];
      while (k != 0 && stop.text[k] != stop.text[i]) k = stop.border[k - 1];
      stop.border[i] = stop.text[k] == stop.text[i] ? k + 1 : 0;
    }
    matcher.stops_.push_back(std::move(stop));
  }
  return matcher;
}

void StopStrings::Stop::advance(char c) {
  while (seen != 0 && text[seen] != c) seen = border[seen - 1];
  if (text[seen] == c) ++seen;
}

void StopStrings::push(std::string_view text, std::string& out) {
  if (stopped()) return;
  const std::size_t begin = out.size();  // everything from here on is still ours to take back
  out += held_;
  for (const char c : text) {
    out += c;
    for (std::size_t index = 0; index < stops_.size(); ++index) {
      Stop& stop = stops_[index];
      stop.advance(c);
      if (stop.seen != stop.text.size()) continue;
      if (!matched_ || stop.text.size() > stops_[*matched_].text.size()) matched_ = index;
    }
    if (matched_) {
      out.resize(out.size() - stops_[*matched_].text.size());
      held_.clear();
      return;
    }
  }
  std::size_t hold = 0;
  for (const Stop& stop : stops_) hold = std::max(hold, stop.seen);
  check(out.size() - begin >= hold, "stop strings: text that may be a stop string has left");
  held_ = out.substr(out.size() - hold);
  out.resize(out.size() - hold);
}

void StopStrings::finish(std::string& out) {
  if (!stopped()) out += held_;
  held_.clear();
}

}  // namespace firstlight
