#include "kernels/device/slab.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>

#include "kernels/device/host_memory.h"

namespace penstock::kernels {
namespace {

constexpr int64_t kAlignment = 64;
constexpr size_t kLargePage = size_t{2} << 20;

// Weights and logits are read in long strides, which small pages make dear. A wish that the kernel may ignore.
void use_large_pages(void* memory, size_t bytes) {
  const auto begin = (reinterpret_cast<uintptr_t>(memory) + kLargePage - 1) / kLargePage * kLargePage;
  const auto end = (reinterpret_cast<uintptr_t>(memory) + bytes) / kLargePage * kLargePage;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

}  // namespace

StatusOr<Slab> Slab::allocate(int64_t bytes, const std::string& purpose) {
  if (bytes < 0) return invalid_argument("{} bytes of memory asked for {}", bytes, purpose);
  Slab slab;
  slab.bytes_ = bytes;
  if (bytes == 0) return slab;
  PENSTOCK_RETURN_IF_ERROR(expect_memory(bytes, purpose));
  const size_t rounded = (static_cast<size_t>(bytes) + kAlignment - 1) / kAlignment * kAlignment;
  slab.memory_.reset(std::aligned_alloc(kAlignment, rounded));
  if (slab.memory_ == nullptr)
    return resource_exhausted("no memory for {}: {} bytes asked for", purpose, bytes);
  use_large_pages(slab.memory_.get(), rounded);
  // Touches every page now, so that a host that promised too much fails before the first step and not in it.
  std::memset(slab.memory_.get(), 0, static_cast<size_t>(bytes));
  return slab;
}

}  // namespace penstock::kernels
