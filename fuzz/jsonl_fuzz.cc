// Arbitrary bytes as a file of JSON lines: the lines joined are the file, and every row is an object with an
// id or an error of one sentence with its place.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/jsonl.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using firstlight::check;
  static const int file = memfd_create("rows", 0);
  check(ftruncate(file, 0) == 0 && pwrite(file, data, size, 0) == static_cast<ssize_t>(size),
        "the file is written");

  auto reader = firstlight::JsonlReader::open("/proc/self/fd/" + std::to_string(file));
  check(reader.ok(), "the file opens");
  std::size_t total = 0;
  for (std::string line;;) {
    const auto more = reader->next(line);
    check(more.ok(), "lines are short");
    if (!*more) break;
    total += line.size();
    const auto row = firstlight::parse_row(line, reader->place());
    if (row) {
      check(row->is_object() && row->contains("id"), "a row has an id");
    } else {
      check(row.error().message.starts_with(reader->place() + ": "), "the place is named");
      check(row.error().message.find('\n') == std::string::npos, "one line");
    }
  }
  check(total <= size, "no byte is seen twice");
  return 0;
}
