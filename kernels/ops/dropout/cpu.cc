#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "kernels/ops/cpu/context.h"
#include "kernels/ops/cpu/elements.h"
#include "kernels/ops/cpu/partition.h"
#include "kernels/ops/dropout/contract.h"

namespace penstock::kernels::cpu {
namespace {

constexpr int64_t kElements = 16384;  // of a piece; whole blocks of four
constexpr int64_t kOfBlock = 4;

float value_of(float x) {
  return x;
}
float value_of(BFloat16 x) {
  return to_float(x);
}
void put(float value, float& to) {
  to = value;
}
void put(float value, BFloat16& to) {
  to = to_bfloat16(value);
}

// `first` .. `end` of the elements; `first` begins a block.
template <typename Element>
void drop(uint64_t key, uint64_t dropped_below, float scale, int64_t first, int64_t end, const Element* x,
          Element* output) {
  for (; first < end; first += kOfBlock) {
    const std::array<uint32_t, kOfBlock> bits = philox(key, static_cast<uint64_t>(first / kOfBlock));
    for (int64_t i = first; i < std::min(first + kOfBlock, end); ++i) {
      const bool kept = bits[static_cast<size_t>(i - first)] >= dropped_below;
      put(kept ? value_of(x[i]) * scale : 0.0f, output[i]);
    }
  }
}

}  // namespace

void dropout(Context& context, TensorView x, double probability, uint64_t key, TensorView output) {
  PENSTOCK_CHECK(probability >= 0 && probability < 1, "dropout with probability {}", probability);
  expect_elements(output, x.elements(), "output", x.type());
  const auto dropped_below = static_cast<uint64_t>(std::llround(probability * 0x1p32));
  const auto scale = static_cast<float>(1 / (1 - probability));
  const Partition partition{x.elements(), kElements};
  with_element(x.type(), [&](auto element) {
    using Element = decltype(element);
    context.parallel_for(partition.pieces(), [&](int64_t piece) {
      const int64_t begin = partition.begin(piece);
      drop(key, dropped_below, scale, begin, begin + partition.length(piece), data<Element>(x),
           data<Element>(output));
    });
  });
}

}  // namespace penstock::kernels::cpu
