#include <cmath>

#include "kernels/ops/adamw/contract.h"
#include "kernels/ops/cpu/context.h"
#include "kernels/ops/cpu/lanes.h"
#include "kernels/ops/cpu/partition.h"

namespace penstock::kernels::cpu {
namespace {

constexpr int64_t kElements = 16384;

// base^exponent by squaring: the same bits with every mathematics library.
double power(double base, int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent >>= 1, base *= base) {
    if (exponent & 1) result *= base;
  }
  return result;
}

struct Coefficients {
  explicit Coefficients(const AdamWStep& step)
      : scale(static_cast<float>(step.gradient_scale)),
        keep_first(static_cast<float>(step.beta1)),
        add_first(static_cast<float>(1 - step.beta1)),
        keep_second(static_cast<float>(step.beta2)),
        add_second(static_cast<float>(1 - step.beta2)),
        keep_parameter(static_cast<float>(1 - step.learning_rate * step.weight_decay)),
        rate(static_cast<float>(step.learning_rate / (1 - power(step.beta1, step.step)))),
        root_scale(static_cast<float>(1 / std::sqrt(1 - power(step.beta2, step.step)))),
        epsilon(static_cast<float>(step.epsilon)) {}

  float scale, keep_first, add_first, keep_second, add_second, keep_parameter, rate, root_scale, epsilon;
};

}  // namespace

void adamw(Context& context, TensorView parameter, TensorView gradient, TensorView first_moment,
           TensorView second_moment, const AdamWStep& step) {
  PENSTOCK_CHECK(step.step >= 1, "step {} of AdamW, which counts from 1", step.step);
  for (const TensorView& each : {gradient, first_moment, second_moment}) {
    expect_elements(each, parameter.elements(), "tensor of adamw");
  }
  const Coefficients c(step);
  const Partition partition{parameter.elements(), kElements};
  context.parallel_for(partition.pieces(), [&](int64_t piece) {
    vectorised([&]() PENSTOCK_INLINE {
      const int64_t begin = partition.begin(piece);
      float* parameters = parameter.f32() + begin;
      const float* gradients = gradient.f32() + begin;
      float* firsts = first_moment.f32() + begin;
      float* seconds = second_moment.f32() + begin;
      for_each_lanes(partition.length(piece), [&](const auto& lanes, int64_t i) PENSTOCK_INLINE {
        const Lanes g = lanes.load(gradients + i) * c.scale;
        const Lanes m = lanes.load(firsts + i) * c.keep_first + g * c.add_first;
        const Lanes v = lanes.load(seconds + i) * c.keep_second + g * g * c.add_second;
        const Lanes root = square_root(v) * c.root_scale + c.epsilon;
        lanes.store(firsts + i, m);
        lanes.store(seconds + i, v);
        lanes.store(parameters + i, lanes.load(parameters + i) * c.keep_parameter - m / root * c.rate);
      });
    });
  });
}

}  // namespace penstock::kernels::cpu
