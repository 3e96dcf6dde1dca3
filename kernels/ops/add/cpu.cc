#include "kernels/ops/add/contract.h"
#include "kernels/ops/cpu/context.h"
#include "kernels/ops/cpu/lanes.h"
#include "kernels/ops/cpu/partition.h"

namespace penstock::kernels::cpu {
namespace {

constexpr int64_t kElements = 65536;

}  // namespace

void add(Context& context, TensorView a, TensorView b, TensorView output) {
  expect_elements(b, a.elements(), "b");
  expect_elements(output, a.elements(), "output");
  const Partition partition{a.elements(), kElements};
  context.parallel_for(partition.pieces(), [&](int64_t piece) {
    vectorised([&]() PENSTOCK_INLINE {
      const float* left = a.f32() + partition.begin(piece);
      const float* right = b.f32() + partition.begin(piece);
      float* to = output.f32() + partition.begin(piece);
      for_each_lanes(partition.length(piece), [&](const auto& lanes, int64_t i) PENSTOCK_INLINE {
        lanes.store(to + i, lanes.load(left + i) + lanes.load(right + i));
      });
    });
  });
}

}  // namespace penstock::kernels::cpu
