// One contiguous allocation of device memory, 64-byte aligned, made before the first step.
//
// Slab owns and moves; SlabView is copied. The CPU twin is below; a CUDA twin will hold device memory.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "base/status.h"

namespace penstock::kernels {

struct SlabView {
  void* data = nullptr;
  int64_t bytes = 0;
};

class Slab {
 public:
  Slab() = default;
  // ResourceExhausted with the bytes asked for and what they were for. Zero bytes are fine. Filled with
  // zeros.
  static StatusOr<Slab> allocate(int64_t bytes, const std::string& purpose);

  SlabView view() const { return {memory_.get(), bytes_}; }
  int64_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> memory_;
  int64_t bytes_ = 0;
};

}  // namespace penstock::kernels
