// Fixed partitions: pieces that depend on the size alone, never on the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>

namespace penstock::kernels::cpu {

// [0, total) in pieces of `size`, the last one shorter.
struct Partition {
  int64_t total = 0;
  int64_t size = 1;

  int64_t pieces() const { return (total + size - 1) / size; }
  int64_t begin(int64_t piece) const { return piece * size; }
  int64_t length(int64_t piece) const { return std::min(size, total - begin(piece)); }
};

}  // namespace penstock::kernels::cpu
