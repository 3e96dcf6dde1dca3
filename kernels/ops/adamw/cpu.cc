#include <algorithm>
#include <cmath>

#include "kernels/ops/adamw/contract.h"
#include "kernels/ops/cpu/context.h"
#include "kernels/ops/cpu/lanes.h"
#include "kernels/ops/cpu/packing.h"
#include "kernels/ops/cpu/partition.h"

namespace penstock::kernels::cpu {
namespace {

constexpr int64_t kElements = 16384;
constexpr int64_t kRows = 32;  // of a packed parameter: whole groups where it begins on one

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

struct Elements {
  float* parameter;
  float* gradient;
  float* first_moment;
  float* second_moment;
};

template <bool kKeepsGradient>
PENSTOCK_INLINE inline void update(const Elements& at, int64_t count, const Coefficients& c) {
  for_each_lanes(count, [&](const auto& lanes, int64_t i) PENSTOCK_INLINE {
    const Lanes g = lanes.load(at.gradient + i) * c.scale;
    const Lanes m = lanes.load(at.first_moment + i) * c.keep_first + g * c.add_first;
    const Lanes v = lanes.load(at.second_moment + i) * c.keep_second + g * g * c.add_second;
    const Lanes root = square_root(v) * c.root_scale + c.epsilon;
    lanes.store(at.first_moment + i, m);
    lanes.store(at.second_moment + i, v);
    lanes.store(at.parameter + i, lanes.load(at.parameter + i) * c.keep_parameter - m / root * c.rate);
    if constexpr (!kKeepsGradient) lanes.store(at.gradient + i, Lanes{});
  });
}

// Rows of a piece: a parameter that is packed is cut between groups of rows.
Partition rows_of_pieces(const TensorView& parameter, const PackedRows& packed) {
  if (packed.weight.data == nullptr) return {parameter.elements(), kElements};
  return {parameter.size(0), std::max<int64_t>(kElements / parameter.size(1) / kRows, 1) * kRows};
}

void check_packed(const TensorView& parameter, const PackedRows& packed) {
  if (packed.weight.data == nullptr) return;
  PENSTOCK_CHECK(parameter.rank() == 2 && parameter.size(1) == packed.weight.in &&
                     packed.first_row + parameter.size(0) <= packed.weight.out,
                 "a parameter of {} elements packed from row {} of [{}, {}]", parameter.elements(),
                 packed.first_row, packed.weight.out, packed.weight.in);
}

}  // namespace

void adamw(Context& context, TensorView parameter, TensorView gradient, TensorView first_moment,
           TensorView second_moment, const AdamWStep& step, const PackedRows& packed) {
  PENSTOCK_CHECK(step.step >= 1, "step {} of AdamW, which counts from 1", step.step);
  for (const TensorView& each : {gradient, first_moment, second_moment}) {
    expect_elements(each, parameter.elements(), "tensor of adamw");
  }
  check_packed(parameter, packed);
  const Coefficients c(step);
  const Partition partition = rows_of_pieces(parameter, packed);
  const int64_t row = parameter.elements() / std::max<int64_t>(partition.total, 1);
  context.parallel_for(partition.pieces(), [&](int64_t piece) {
    const int64_t begin = partition.begin(piece);
    const int64_t rows = partition.length(piece);
    const int64_t offset = begin * row;
    vectorised([&]() PENSTOCK_INLINE {
      const Elements at{parameter.f32() + offset, gradient.f32() + offset, first_moment.f32() + offset,
                        second_moment.f32() + offset};
      step.keeps_gradient ? update<true>(at, rows * row, c) : update<false>(at, rows * row, c);
    });
    if (packed.weight.data == nullptr) return;
    pack_weight_rows(parameter.f32() + offset, packed.first_row + begin, rows, packed.weight);
  });
}

void pack(Context& context, TensorView weight, const PackedRows& packed) {
  check_packed(weight, packed);
  const Partition partition = rows_of_pieces(weight, packed);
  context.parallel_for(partition.pieces(), [&](int64_t piece) {
    const int64_t begin = partition.begin(piece);
    pack_weight_rows(weight.f32() + begin * packed.weight.in, packed.first_row + begin,
                     partition.length(piece), packed.weight);
  });
}

}  // namespace penstock::kernels::cpu
