#include "cache/reservation.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/zeroed_memory.h"

namespace firstlight {

Result<Reservation> Reservation::create(std::int64_t bytes, const char* what) {
  Reservation r;
  if (bytes == 0) return r;
  std::byte* const data = map_zeroed(bytes);
  if (data == nullptr) {
    return Error{"cannot reserve " + std::to_string(bytes) + " bytes for " + what + ": " +
                 std::strerror(errno)};
  }
  r.data_ = reinterpret_cast<std::uint8_t*>(data);
  r.bytes_ = bytes;
  return r;
}

Reservation::~Reservation() {
  if (data_ != nullptr) unmap(reinterpret_cast<std::byte*>(data_), bytes_);
}

Reservation::Reservation(Reservation&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace firstlight
