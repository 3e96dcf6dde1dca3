#include "worker/model/layout.h"

#include <algorithm>

#include "base/check.h"

namespace penstock::worker {

kernels::TensorView Place::in(void* memory) const {
  void* data = static_cast<char*>(memory) + offset_bytes;
  switch (rank) {
    case 1:
      return {data, type, {shape[0]}};
    case 2:
      return {data, type, {shape[0], shape[1]}};
    default:
      PENSTOCK_CHECK(false, "a place of rank {}", rank);
  }
  return {};
}

Place Layout::place(kernels::DataType type, std::initializer_list<int64_t> shape) {
  PENSTOCK_CHECK(shape.size() == 1 || shape.size() == 2);
  Place place{bytes_, type, static_cast<int>(shape.size()), {}};
  std::copy(shape.begin(), shape.end(), place.shape.begin());
  const int64_t bytes = place.in(nullptr).bytes();
  bytes_ += (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  return place;
}

}  // namespace penstock::worker
