#include "kernels/ops/cpu/context.h"
#include "kernels/ops/cpu/lanes.h"
#include "kernels/ops/cpu/partition.h"
#include "kernels/ops/swiglu/contract.h"

namespace penstock::kernels::cpu {
namespace {

constexpr int64_t kElements = 16384;

PENSTOCK_INLINE inline Lanes sigmoid(const Lanes& x) {
  return 1.0f / (1.0f + exp(-x));
}

}  // namespace

void swiglu(Context& context, TensorView gate, TensorView up, TensorView output) {
  expect_elements(up, gate.elements(), "up");
  expect_elements(output, gate.elements(), "output");
  const Partition partition{gate.elements(), kElements};
  context.parallel_for(partition.pieces(), [&](int64_t piece) {
    vectorised([&]() PENSTOCK_INLINE {
      const float* gates = gate.f32() + partition.begin(piece);
      const float* ups = up.f32() + partition.begin(piece);
      float* to = output.f32() + partition.begin(piece);
      for_each_lanes(partition.length(piece), [&](const auto& lanes, int64_t i) PENSTOCK_INLINE {
        const Lanes g = lanes.load(gates + i);
        lanes.store(to + i, g * sigmoid(g) * lanes.load(ups + i));
      });
    });
  });
}

void swiglu_backward(Context& context, TensorView gate, TensorView up, TensorView output_gradient,
                     TensorView gate_gradient, TensorView up_gradient) {
  for (const TensorView& each : {up, output_gradient, gate_gradient, up_gradient}) {
    expect_elements(each, gate.elements(), "tensor of swiglu");
  }
  const Partition partition{gate.elements(), kElements};
  context.parallel_for(partition.pieces(), [&](int64_t piece) {
    vectorised([&]() PENSTOCK_INLINE {
      const int64_t begin = partition.begin(piece);
      const float* gates = gate.f32() + begin;
      const float* ups = up.f32() + begin;
      const float* gradients = output_gradient.f32() + begin;
      float* gate_to = gate_gradient.f32() + begin;
      float* up_to = up_gradient.f32() + begin;
      for_each_lanes(partition.length(piece), [&](const auto& lanes, int64_t i) PENSTOCK_INLINE {
        const Lanes g = lanes.load(gates + i);
        const Lanes u = lanes.load(ups + i);
        const Lanes dy = lanes.load(gradients + i);
        const Lanes s = sigmoid(g);
        lanes.store(up_to + i, dy * (g * s));
        lanes.store(gate_to + i, dy * u * s * (1.0f + g * (1.0f - s)));
      });
    });
  });
}

}  // namespace penstock::kernels::cpu
