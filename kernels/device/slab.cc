#include "kernels/device/slab.h"

#include <cstring>
#include <new>

namespace penstock::kernels {
namespace {

constexpr int64_t kAlignment = 64;

}  // namespace

StatusOr<Slab> Slab::allocate(int64_t bytes, const std::string& purpose) {
  if (bytes < 0) return invalid_argument("{} bytes of memory asked for {}", bytes, purpose);
  Slab slab;
  slab.bytes_ = bytes;
  if (bytes == 0) return slab;
  if (bytes <= INT64_MAX - kAlignment) {
    const size_t rounded = (static_cast<size_t>(bytes) + kAlignment - 1) / kAlignment * kAlignment;
    slab.memory_.reset(std::aligned_alloc(kAlignment, rounded));
  }
  if (slab.memory_ == nullptr) {
    return resource_exhausted(
        "no memory for {}: {} bytes asked for; use more workers or a smaller microbatch", purpose, bytes);
  }
  // Touches every page now, so that a host that promised too much fails before the first step and not in it.
  std::memset(slab.memory_.get(), 0, static_cast<size_t>(bytes));
  return slab;
}

}  // namespace penstock::kernels
