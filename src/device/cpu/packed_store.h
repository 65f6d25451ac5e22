// Where packed matrices may come from instead of being packed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace firstlight {

class PackedStore {
 public:
  PackedStore() = default;
  virtual ~PackedStore() = default;
  PackedStore(const PackedStore&) = delete;
  PackedStore& operator=(const PackedStore&) = delete;

  /// Asked for every matrix before it is packed; `name` says what its bytes are made from and how, so that
  /// equal names have equal bytes. True: `data`, zeroed before, holds them now. False: the caller packs into
  /// `data`, which the store may keep for the next start once all is packed.
  virtual bool restore(const std::string& name, const std::shared_ptr<std::byte>& data,
                       std::int64_t bytes) = 0;
};

/// The store, if there is one, and what the rows of a matrix are: names of weights, and what of them.
struct StoredAs {
  PackedStore* store = nullptr;
  std::string rows = {};
};

}  // namespace firstlight
