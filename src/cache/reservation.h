// Zeroed memory that is reserved at once and comes into being as it is touched.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace firstlight {

class Reservation {
 public:
  Reservation() = default;
  static Result<Reservation> create(std::int64_t bytes, const char* what);
  ~Reservation();
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

  [[nodiscard]] std::uint8_t* data() const { return data_; }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  std::uint8_t* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace firstlight
