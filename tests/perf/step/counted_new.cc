#include "tests/perf/step/counted_new.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

// Where the code of this program begins and ends, by the linker.
extern "C" const char __executable_start;
extern "C" const char etext;

namespace {

std::atomic<int64_t> own{0};
std::atomic<int64_t> libraries{0};

bool called_from_this_program(const void* caller) {
  return caller >= &__executable_start && caller < &etext;
}

void* counted(size_t bytes, size_t alignment, const void* caller) {
  ++(called_from_this_program(caller) ? own : libraries);
  void* memory = alignment <= alignof(std::max_align_t)
                     ? std::malloc(bytes)
                     : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

[[gnu::noinline]] void* operator new(size_t bytes) {
  return counted(bytes, 0, __builtin_return_address(0));
}
[[gnu::noinline]] void* operator new(size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<size_t>(alignment), __builtin_return_address(0));
}
[[gnu::noinline]] void* operator new[](size_t bytes) {
  return counted(bytes, 0, __builtin_return_address(0));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory, size_t) noexcept {
  std::free(memory);
}

namespace penstock::perf {

Allocations allocations_so_far() {
  return {own, libraries};
}

}  // namespace penstock::perf
