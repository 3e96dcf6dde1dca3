#include <cstring>

#include "kernels/ops/copy/contract.h"
#include "kernels/ops/cpu/context.h"
#include "kernels/ops/cpu/lanes.h"
#include "kernels/ops/cpu/partition.h"

namespace penstock::kernels::cpu {
namespace {

constexpr int64_t kElements = 131072;

}  // namespace

void fill(Context& context, TensorView x, float value) {
  const Partition partition{x.elements(), kElements};
  context.parallel_for(partition.pieces(), [&](int64_t piece) {
    vectorised([&]() PENSTOCK_INLINE {
      float* to = x.f32() + partition.begin(piece);
      for_each_lanes(partition.length(piece), [&](const auto& lanes, int64_t i)
                                                  PENSTOCK_INLINE { lanes.store(to + i, broadcast(value)); });
    });
  });
}

void copy(Context& context, TensorView source, TensorView target) {
  expect_elements(target, source.elements(), "target", source.type());
  const int64_t element_bytes = size_bytes(source.type());
  const Partition partition{source.elements(), kElements};
  context.parallel_for(partition.pieces(), [&](int64_t piece) {
    const int64_t offset = partition.begin(piece) * element_bytes;
    std::memcpy(static_cast<char*>(target.data()) + offset, static_cast<const char*>(source.data()) + offset,
                static_cast<size_t>(partition.length(piece) * element_bytes));
  });
}

}  // namespace penstock::kernels::cpu
