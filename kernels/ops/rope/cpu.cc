#include "kernels/ops/cpu/context.h"
#include "kernels/ops/cpu/lanes.h"
#include "kernels/ops/cpu/partition.h"
#include "kernels/ops/rope/contract.h"

namespace penstock::kernels::cpu {
namespace {

constexpr int64_t kTokens = 64;

PENSTOCK_INLINE inline void rotate_head(float* head, const float* cosine, const float* sine, int64_t half,
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

}  // namespace

void rope(Context& context, const RopeTable& table, TensorView x, int64_t sequence_length, int64_t head_size,
          Rotation rotation) {
  const RopeShape shape = rope_shape(x, sequence_length, head_size);
  const int64_t half = head_size / 2;
  const float direction = rotation == Rotation::Forward ? 1.0f : -1.0f;
  const Partition partition{shape.tokens, kTokens};
  context.parallel_for(partition.pieces(), [&](int64_t piece) {
    vectorised([&]() PENSTOCK_INLINE {
      const int64_t end = partition.begin(piece) + partition.length(piece);
      for (int64_t t = partition.begin(piece); t < end; ++t) {
        const int64_t entry = t % sequence_length * half;
        float* row = x.f32() + t * shape.heads * head_size;
        for (int64_t h = 0; h < shape.heads; ++h) {
          rotate_head(row + h * head_size, table.cosine.data() + entry, table.sine.data() + entry, half,
                      direction);
        }
      }
    });
  });
}

}  // namespace penstock::kernels::cpu
