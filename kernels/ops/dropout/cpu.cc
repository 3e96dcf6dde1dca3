#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "kernels/ops/cpu/context.h"
#include "kernels/ops/cpu/partition.h"
#include "kernels/ops/dropout/contract.h"

namespace penstock::kernels::cpu {
namespace {

constexpr int64_t kElements = 16384;  // of a piece; whole blocks of four
constexpr int64_t kOfBlock = 4;

}  // namespace

void dropout(Context& context, TensorView x, double probability, uint64_t key, TensorView output) {
  PENSTOCK_CHECK(probability >= 0 && probability < 1, "dropout with probability {}", probability);
  expect_elements(output, x.elements(), "output");
  const auto dropped_below = static_cast<uint64_t>(std::llround(probability * 0x1p32));
  const auto scale = static_cast<float>(1 / (1 - probability));
  const Partition partition{x.elements(), kElements};
  context.parallel_for(partition.pieces(), [&](int64_t piece) {
    const int64_t begin = partition.begin(piece);
    const int64_t end = begin + partition.length(piece);
    for (int64_t first = begin; first < end; first += kOfBlock) {
      const std::array<uint32_t, kOfBlock> bits = philox(key, static_cast<uint64_t>(first / kOfBlock));
      for (int64_t i = first; i < std::min(first + kOfBlock, end); ++i) {
        const bool kept = bits[static_cast<size_t>(i - first)] >= dropped_below;
        output.f32()[i] = kept ? x.f32()[i] * scale : 0.0f;
      }
    }
  });
}

}  // namespace penstock::kernels::cpu
