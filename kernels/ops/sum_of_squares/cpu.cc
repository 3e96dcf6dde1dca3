#include "kernels/ops/cpu/context.h"
#include "kernels/ops/cpu/lanes.h"
#include "kernels/ops/cpu/partition.h"
#include "kernels/ops/sum_of_squares/contract.h"

namespace penstock::kernels::cpu {
namespace {

constexpr int64_t kElements = 65536;

PENSTOCK_INLINE inline double block_sum(const float* x, int64_t count) {
  DoubleLanes lower{};
  DoubleLanes upper{};
  for_each_lanes(count, [&](const auto& lanes, int64_t i) PENSTOCK_INLINE {
    const Lanes value = lanes.load(x + i);
    const DoubleLanes a = lower_doubles(value);
    const DoubleLanes b = upper_doubles(value);
    lower += a * a;
    upper += b * b;
  });
  return sum(lower + upper);
}

}  // namespace

double sum_of_squares(Context& context, TensorView x) {
  const Partition partition{x.elements(), kElements};
  double* sums = reinterpret_cast<double*>(context.reserve_shared(2 * partition.pieces()));
  context.parallel_for(partition.pieces(), [&](int64_t piece) {
    vectorised([&]() PENSTOCK_INLINE {
      sums[piece] = block_sum(x.f32() + partition.begin(piece), partition.length(piece));
    });
  });
  double total = 0;
  for (int64_t piece = 0; piece < partition.pieces(); ++piece) total += sums[piece];
  return total;
}

}  // namespace penstock::kernels::cpu
