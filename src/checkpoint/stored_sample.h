// For tests: a checkpoint of a few tensors, written and opened.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/test_folder.h"
#include "checkpoint/weights.h"

namespace firstlight::testing {

struct Stored {
  std::string name;
  DType dtype;
  Shape shape;
  std::vector<std::uint8_t> data = {};  // zero-filled to size
};

/// Writes the tensors as a checkpoint and keeps it open.
class Sample {
 public:
  explicit Sample(std::vector<Stored> stored) {
    std::vector<NamedTensor> tensors;
    for (Stored& s : stored) {
      TensorView view{s.dtype, s.shape, nullptr};
      s.data.resize(static_cast<std::size_t>(view.bytes()));
      view.data = s.data.data();
      tensors.push_back({s.name, view});
    }
    check(write_safetensors(folder_ / "model.safetensors", tensors).ok(), "sample written");
    auto opened = Checkpoint::open(folder_.path());
    check(opened.ok(), "sample opened");
    checkpoint_ = std::move(*opened);
  }
  const Checkpoint& operator*() const { return checkpoint_; }

 private:
  TestFolder folder_;
  Checkpoint checkpoint_;
};

/// A part of `full`, which must be one.
inline TensorPart part_of(Shape full, std::vector<std::int64_t> at,
                          std::optional<RowChoice> rows = std::nullopt, bool transposed = false) {
  auto part = make_part(std::move(full), std::move(at), rows, transposed);
  check(part.ok(), "a part of the tensor");
  return *part;
}

inline WeightRequest request(const std::string& name, const TensorPart& part) {
  WeightRequest wanted;
  wanted.name = name;
  wanted.shape = part.full;
  wanted.part = part;
  return wanted;
}

}  // namespace firstlight::testing
