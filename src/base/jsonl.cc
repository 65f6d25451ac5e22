#include "base/jsonl.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/json_limits.h"
#include "base/mapped_file.h"

namespace firstlight {

Result<JsonlReader> JsonlReader::open(const std::string& path) {
  JsonlReader reader;
  reader.path_ = path == "-" ? "standard input" : path;
  reader.file_.reset(path == "-" ? stdin : std::fopen(path.c_str(), "rb"));
  if (reader.file_ == nullptr) return Error{path + ": " + system_error_text(errno)};
  return reader;
}

Result<bool> JsonlReader::next(std::string& line) {
  line.clear();
  for (bool at_end = false; !at_end;) {
    const std::size_t end = std::min(block_.find('\n', at_), block_.size());
    line.append(block_, at_, end - at_);
    if (line.size() > kMaxLineBytes) {
      return Error{path_ + ":" + std::to_string(number_ + 1) + ": the line has more than " +
                   std::to_string(kMaxLineBytes) + " bytes"};
    }
    at_ = end + 1;
    if (end == block_.size()) {  // the line goes on in the next block
      FL_ASSIGN(at_end, fill());
      if (!at_end) continue;
    }
    if (!at_end || !line.empty()) ++number_;
    if (line.find_first_not_of(" \t\r") != line.npos) return true;
    line.clear();
  }
  return false;
}

Result<bool> JsonlReader::fill() {
  // Not fread, which waits until its block is full: whoever writes rows may wait for the answers first.
  ssize_t got = -1;
  block_.resize(std::size_t{1} << 16);
  do {
    got = ::read(fileno(file_.get()), block_.data(), block_.size());
  } while (got < 0 && errno == EINTR);
  if (got < 0) return Error{path_ + ": cannot be read: " + system_error_text(errno)};
  block_.resize(static_cast<std::size_t>(got));
  at_ = 0;
  return got == 0;
}

Result<nlohmann::ordered_json> parse_row(std::string_view line, const std::string& place) {
  JsonLimits limits;
  limits.max_bytes = JsonlReader::kMaxLineBytes;
  FL_ASSIGN(auto row, parse_json(line, place, limits));
  if (!row.is_object()) return Error{place + ": expected an object"};
  const auto id = row.find("id");
  if (id == row.end() || !(id->is_string() || id->is_number())) {
    return Error{place + ": `id` is missing, or is neither a text nor a number"};
  }
  return row;
}

}  // namespace firstlight
