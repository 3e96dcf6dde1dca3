#include <cmath>

#include "kernels/ops/cpu/context.h"
#include "kernels/ops/cpu/lanes.h"
#include "kernels/ops/cpu/partition.h"
#include "kernels/ops/rms_norm/contract.h"

namespace penstock::kernels::cpu {
namespace {

constexpr int64_t kTokens = 64;
constexpr int64_t kColumns = 256;

struct Backward {
  const float* x;                // [T, hidden]
  const float* weight;           // [hidden]
  const float* inverse_rms;      // [T]
  const float* output_gradient;  // [T, hidden]
  float* x_gradient;             // [T, hidden]
};

// One token: its x_gradient, and what it adds to the sum over the tokens of its piece.
PENSTOCK_INLINE inline void token_backward(const Backward& tensors, int64_t t, int64_t hidden,
                                           float* weight_sum) {
  const float* x = tensors.x + t * hidden;
  const float* dy = tensors.output_gradient + t * hidden;
  float* dx = tensors.x_gradient + t * hidden;
  const float inverse = tensors.inverse_rms[t];
  Lanes products{};
  for_each_lanes(hidden, [&](const auto& lanes, int64_t j) PENSTOCK_INLINE {
    products += lanes.load(dy + j) * lanes.load(tensors.weight + j) * lanes.load(x + j);
  });
  const float pull = inverse * inverse * inverse * (sum(products) / static_cast<float>(hidden));
  for_each_lanes(hidden, [&](const auto& lanes, int64_t j) PENSTOCK_INLINE {
    const Lanes value = lanes.load(x + j);
    const Lanes gradient = lanes.load(dy + j);
    lanes.store(weight_sum + j, lanes.load(weight_sum + j) + gradient * (value * inverse));
    lanes.store(dx + j, gradient * lanes.load(tensors.weight + j) * inverse - value * pull);
  });
}

}  // namespace

void rms_norm(Context& context, TensorView x, TensorView weight, double epsilon, TensorView output,
              TensorView inverse_rms) {
  const RmsNormShape shape = rms_norm_shape(x, weight, inverse_rms);
  expect_matrix(output, shape.tokens, shape.hidden, "output");
  const float* scale = weight.f32();
  float* saved = inverse_rms.f32();
  const Partition partition{shape.tokens, kTokens};
  context.parallel_for(partition.pieces(), [&](int64_t piece) {
    vectorised([&]() PENSTOCK_INLINE {
      const int64_t end = partition.begin(piece) + partition.length(piece);
      for (int64_t t = partition.begin(piece); t < end; ++t) {
        const float* row = x.f32() + t * shape.hidden;
        float* to = output.f32() + t * shape.hidden;
        const float mean_square = dot(row, row, shape.hidden) / static_cast<float>(shape.hidden);
        const float inverse = 1.0f / std::sqrt(mean_square + static_cast<float>(epsilon));
        saved[t] = inverse;
        for_each_lanes(shape.hidden, [&](const auto& lanes, int64_t j) PENSTOCK_INLINE {
          lanes.store(to + j, lanes.load(row + j) * inverse * lanes.load(scale + j));
        });
      }
    });
  });
}

void rms_norm_backward(Context& context, TensorView x, TensorView weight, TensorView inverse_rms,
                       TensorView output_gradient, TensorView x_gradient, TensorView weight_gradient) {
  const RmsNormShape shape = rms_norm_shape(x, weight, inverse_rms);
  expect_matrix(output_gradient, shape.tokens, shape.hidden, "output_gradient");
  expect_matrix(x_gradient, shape.tokens, shape.hidden, "x_gradient");
  expect_elements(weight_gradient, shape.hidden, "weight_gradient");
  const int64_t hidden = shape.hidden;
  const Partition partition{shape.tokens, kTokens};
  float* sums = context.reserve_shared(partition.pieces() * hidden);  // [pieces, hidden]
  const Backward tensors{x.f32(), weight.f32(), inverse_rms.f32(), output_gradient.f32(), x_gradient.f32()};
  context.parallel_for(partition.pieces(), [&](int64_t piece) {
    float* weight_sum = sums + piece * hidden;
    vectorised([&]() PENSTOCK_INLINE {
      for (int64_t j = 0; j < hidden; ++j) weight_sum[j] = 0;
      const int64_t end = partition.begin(piece) + partition.length(piece);
      for (int64_t t = partition.begin(piece); t < end; ++t) token_backward(tensors, t, hidden, weight_sum);
    });
  });

  const Partition columns{hidden, kColumns};
  context.parallel_for(columns.pieces(), [&](int64_t piece) {
    vectorised([&]() PENSTOCK_INLINE {
      const int64_t first = columns.begin(piece);
      float* target = weight_gradient.f32() + first;
      for_each_lanes(columns.length(piece), [&](const auto& lanes, int64_t j) PENSTOCK_INLINE {
        Lanes total{};
        for (int64_t p = 0; p < partition.pieces(); ++p) total += lanes.load(sums + p * hidden + first + j);
        lanes.store(target + j, lanes.load(target + j) + total);
      });
    });
  });
}

}  // namespace penstock::kernels::cpu
