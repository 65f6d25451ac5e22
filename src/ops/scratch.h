// Cuts a kernel's scratch into arrays. One function that lays out the arrays serves run() and
// scratch_bytes().
#pragma once

#include <cstdint>

namespace firstlight {

class ScratchCarver {
 public:
  /// With a null base it only counts.
  explicit ScratchCarver(std::uint8_t* base) : base_(base) {}

  /// The next `count` elements, 64-byte aligned.
  template <class T>
  T* take(std::int64_t count) {
    const std::int64_t begin = used_;
    used_ += (count * static_cast<std::int64_t>(sizeof(T)) + 63) / 64 * 64;
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + begin);
  }
  [[nodiscard]] std::int64_t used() const { return used_; }

 private:
  std::uint8_t* base_;
  std::int64_t used_ = 0;
};

}  // namespace firstlight
