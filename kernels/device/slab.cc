#include "kernels/device/slab.h"

#include <unistd.h>

#include <cstring>

namespace penstock::kernels {
namespace {

constexpr int64_t kAlignment = 64;

}  // namespace

StatusOr<Slab> Slab::allocate(int64_t bytes, const std::string& purpose) {
  if (bytes < 0) return invalid_argument("{} bytes of memory asked for {}", bytes, purpose);
  // Every page is touched below: more than the host has would end in the kernel's out-of-memory killer.
  const int64_t host_bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  Slab slab;
  slab.bytes_ = bytes;
  if (bytes == 0) return slab;
  if (bytes <= host_bytes) {
    const size_t rounded = (static_cast<size_t>(bytes) + kAlignment - 1) / kAlignment * kAlignment;
    slab.memory_.reset(std::aligned_alloc(kAlignment, rounded));
  }
  if (slab.memory_ == nullptr) {
    return resource_exhausted(
        "no memory for {}: {} bytes asked for, the host has {}; use more workers or a smaller microbatch",
        purpose, bytes, host_bytes);
  }
  // Touches every page now, so that a host that promised too much fails before the first step and not in it.
  std::memset(slab.memory_.get(), 0, static_cast<size_t>(bytes));
  return slab;
}

}  // namespace penstock::kernels
