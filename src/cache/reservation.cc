#include "cache/reservation.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace firstlight {

Result<Reservation> Reservation::create(std::int64_t bytes, const char* what) {
  Reservation r;
  if (bytes == 0) return r;
  void* data = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return Error{"cannot reserve " + std::to_string(bytes) + " bytes for " + what + ": " +
                 std::strerror(errno)};
  }
  r.data_ = static_cast<std::uint8_t*>(data);
  r.bytes_ = bytes;
  return r;
}

Reservation::~Reservation() {
  if (data_ != nullptr) munmap(data_, static_cast<std::size_t>(bytes_));
}

Reservation::Reservation(Reservation&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace firstlight
