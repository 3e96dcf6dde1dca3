#include "kernels/ops/cpu/context.h"
#include "kernels/ops/cpu/elements.h"
#include "kernels/ops/cpu/lanes.h"
#include "kernels/ops/cpu/partition.h"
#include "kernels/ops/rope/contract.h"

namespace penstock::kernels::cpu {
namespace {

constexpr int64_t kTokens = 64;

template <typename Element>
PENSTOCK_INLINE inline void rotate_head(Element* head, const float* cosine, const float* sine, int64_t half,
                                        float direction) {
  for_each_lanes(half, [&](const auto& lanes, int64_t i) PENSTOCK_INLINE {
    const Lanes first = lanes.load(head + i);
    const Lanes second = lanes.load(head + half + i);
    const Lanes c = lanes.load(cosine + i);
    const Lanes s = lanes.load(sine + i) * direction;
    lanes.store(head + i, first * c - second * s);
    lanes.store(head + half + i, second * c + first * s);
  });
}

template <typename Element>
void rotate(Context& context, const RopeTable& table, const RopeShape& shape, Element* x, int64_t stride,
            float direction) {
  const int64_t half = shape.head_size / 2;
  const Partition partition{shape.tokens, kTokens};
  context.parallel_for(partition.pieces(), [&](int64_t piece) {
    vectorised([&]() PENSTOCK_INLINE {
      const int64_t end = partition.begin(piece) + partition.length(piece);
      for (int64_t t = partition.begin(piece); t < end; ++t) {
        const int64_t entry = t % shape.sequence_length * half;
        for (int64_t h = 0; h < shape.heads; ++h) {
          rotate_head(x + t * stride + h * shape.head_size, table.cosine.data() + entry,
                      table.sine.data() + entry, half, direction);
        }
      }
    });
  });
}

}  // namespace

void rope(Context& context, const RopeTable& table, TensorView x, int64_t sequence_length, int64_t head_size,
          Rotation rotation) {
  const RopeShape shape = rope_shape(x, sequence_length, head_size);
  with_element(x.type(), [&](auto element) {
    rotate(context, table, shape, data<decltype(element)>(x), x.row_stride(),
           rotation == Rotation::Forward ? 1.0f : -1.0f);
  });
}

}  // namespace penstock::kernels::cpu
