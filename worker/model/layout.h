// Where tensors stand inside a block of memory: one after another, each rounded up to 64 bytes.
//
// A room lays out once, at construction, and asks a Place for its view whenever it holds the memory. The
// bytes of a layout are therefore measured from what is really placed, not computed a second time. Thread:
// any; values.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

#include "kernels/tensor/tensor.h"

namespace penstock::worker {

// A tensor's place inside memory that begins somewhere.
struct Place {
  int64_t offset_bytes = 0;
  kernels::DataType type = kernels::DataType::Float32;
  int rank = 0;
  std::array<int64_t, kernels::TensorView::kMaxRank> shape{};

  kernels::TensorView in(void* memory) const;
};

class Layout {
 public:
  static constexpr int64_t kAlignmentBytes = 64;  // a cache line, and what vector loads like best

  Place place(kernels::DataType type, std::initializer_list<int64_t> shape);
  int64_t bytes() const { return bytes_; }

  // Memory account: what routers decided is told apart from activations.
  void count_as_routes(int64_t bytes) { route_bytes_ += bytes; }
  int64_t route_bytes() const { return route_bytes_; }

 private:
  int64_t bytes_ = 0;
  int64_t route_bytes_ = 0;
};

// Where an item lays out its input, and where what its forward saves beside it: one layout, unless it is recomputed.
struct ItemLayout {
  Layout& input;
  Layout& saved;
};

}  // namespace penstock::worker
