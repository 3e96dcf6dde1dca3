#include <cmath>

#include "kernels/ops/cpu/context.h"
#include "kernels/ops/cpu/elements.h"
#include "kernels/ops/cpu/lanes.h"
#include "kernels/ops/cpu/partition.h"
#include "kernels/ops/rms_norm/contract.h"

namespace penstock::kernels::cpu {
namespace {

constexpr int64_t kTokens = 64;
constexpr int64_t kColumns = 256;

// The rows of a tensor [T, groups x width]; null where an optional one is left out.
template <typename Element>
struct Rows {
  explicit Rows(const TensorView& view)
      : first(view.empty() ? nullptr : data<Element>(view)), stride(view.empty() ? 0 : view.row_stride()) {}
  Element* of(int64_t token, int64_t column) const {
    return first == nullptr ? nullptr : first + token * stride + column;
  }

  Element* first;
  int64_t stride;
};

template <typename Element>
PENSTOCK_INLINE inline void normalise(const Element* x, const float* weight, float inverse, int64_t width,
                                      Element* output) {
  for_each_lanes(width, [&](const auto& lanes, int64_t j) PENSTOCK_INLINE {
    lanes.store(output + j, lanes.load(x + j) * inverse * lanes.load(weight + j));
  });
}

template <typename Element>
void forward(Context& context, const RmsNormShape& shape, Rows<Element> x, const float* weight, float epsilon,
             Rows<Element> output, float* inverse_rms) {
  const Partition partition{shape.tokens, kTokens};
  context.parallel_for(partition.pieces(), [&](int64_t piece) {
    vectorised([&]() PENSTOCK_INLINE {
      const int64_t end = partition.begin(piece) + partition.length(piece);
      for (int64_t t = partition.begin(piece); t < end; ++t) {
        for (int64_t g = 0; g < shape.groups; ++g) {
          const Element* row = x.of(t, g * shape.width);
          const float mean_square = dot(row, row, shape.width) / static_cast<float>(shape.width);
          const float inverse = 1.0f / std::sqrt(mean_square + epsilon);
          inverse_rms[t * shape.groups + g] = inverse;
          normalise(row, weight, inverse, shape.width, output.of(t, g * shape.width));
        }
      }
    });
  });
}

template <typename Element>
struct BackwardRow {
  const Element* x;
  const float* weight;
  float inverse_rms;
  const Element* output_gradient;
  const Element* added;  // or null
  Element* x_gradient;
  Element* output;  // or null
};

// One row: its x_gradient, and what it adds to the sum over the rows of its piece.
template <typename Element>
PENSTOCK_INLINE inline void row_backward(const BackwardRow<Element>& row, int64_t width, float* weight_sum) {
  const float inverse = row.inverse_rms;
  Lanes products{};
  for_each_lanes(width, [&](const auto& lanes, int64_t j) PENSTOCK_INLINE {
    products += lanes.load(row.output_gradient + j) * lanes.load(row.weight + j) * lanes.load(row.x + j);
  });
  const float pull = inverse * inverse * inverse * (sum(products) / static_cast<float>(width));
  for_each_lanes(width, [&](const auto& lanes, int64_t j) PENSTOCK_INLINE {
    const Lanes value = lanes.load(row.x + j);
    const Lanes gradient = lanes.load(row.output_gradient + j);
    const Lanes weight = lanes.load(row.weight + j);
    const Lanes normed = value * inverse;
    lanes.store(weight_sum + j, lanes.load(weight_sum + j) + gradient * normed);
    const Lanes own = gradient * weight * inverse - value * pull;
    lanes.store(row.x_gradient + j, row.added == nullptr ? own : lanes.load(row.added + j) + own);
    if (row.output != nullptr) lanes.store(row.output + j, normed * weight);
  });
}

template <typename Element>
struct Backward {
  Rows<Element> x;
  const float* weight;
  const float* inverse_rms;
  Rows<Element> output_gradient;
  Rows<Element> added;
  Rows<Element> x_gradient;
  Rows<Element> output;
};

// sums [pieces, width]: of each piece's rows.
template <typename Element>
void backward_rows(Context& context, const RmsNormShape& shape, const Partition& partition,
                   const Backward<Element>& tensors, float* sums) {
  context.parallel_for(partition.pieces(), [&](int64_t piece) {
    float* weight_sum = sums + piece * shape.width;
    vectorised([&]() PENSTOCK_INLINE {
      for (int64_t j = 0; j < shape.width; ++j) weight_sum[j] = 0;
      const int64_t end = partition.begin(piece) + partition.length(piece);
      for (int64_t t = partition.begin(piece); t < end; ++t) {
        for (int64_t g = 0; g < shape.groups; ++g) {
          const int64_t column = g * shape.width;
          row_backward<Element>({.x = tensors.x.of(t, column),
                                 .weight = tensors.weight,
                                 .inverse_rms = tensors.inverse_rms[t * shape.groups + g],
                                 .output_gradient = tensors.output_gradient.of(t, column),
                                 .added = tensors.added.of(t, column),
                                 .x_gradient = tensors.x_gradient.of(t, column),
                                 .output = tensors.output.of(t, column)},
                                shape.width, weight_sum);
        }
      }
    });
  });
}

void add_sums(Context& context, const Partition& partition, int64_t width, const float* sums,
              float* weight_gradient) {
  const Partition columns{width, kColumns};
  context.parallel_for(columns.pieces(), [&](int64_t piece) {
    vectorised([&]() PENSTOCK_INLINE {
      const int64_t first = columns.begin(piece);
      float* target = weight_gradient + first;
      for_each_lanes(columns.length(piece), [&](const auto& lanes, int64_t j) PENSTOCK_INLINE {
        Lanes total{};
        for (int64_t p = 0; p < partition.pieces(); ++p) total += lanes.load(sums + p * width + first + j);
        lanes.store(target + j, lanes.load(target + j) + total);
      });
    });
  });
}

}  // namespace

void rms_norm(Context& context, TensorView x, TensorView weight, double epsilon, TensorView output,
              TensorView inverse_rms) {
  const RmsNormShape shape = rms_norm_shape(x, weight, inverse_rms);
  expect_columns(output, shape.tokens, x.size(1), "output", x.type());
  with_element(x.type(), [&](auto element) {
    using Element = decltype(element);
    forward(context, shape, Rows<Element>(x), weight.f32(), static_cast<float>(epsilon),
            Rows<Element>(output), inverse_rms.f32());
  });
}

void rms_norm_backward(Context& context, TensorView x, TensorView weight, TensorView inverse_rms,
                       TensorView output_gradient, TensorView x_gradient, TensorView weight_gradient,
                       TensorView added, TensorView output) {
  const RmsNormShape shape = rms_norm_shape(x, weight, inverse_rms);
  expect_elements(weight_gradient, shape.width, "weight_gradient");
  expect_columns(output_gradient, shape.tokens, x.size(1), "output_gradient", x.type());
  expect_columns(x_gradient, shape.tokens, x.size(1), "x_gradient", x.type());
  if (!added.empty()) expect_columns(added, shape.tokens, x.size(1), "added", x.type());
  if (!output.empty()) expect_columns(output, shape.tokens, x.size(1), "output", x.type());
  const Partition partition{shape.tokens, kTokens};
  float* sums = context.reserve_shared(partition.pieces() * shape.width);
  with_element(x.type(), [&](auto element) {
    using Element = decltype(element);
    backward_rows<Element>(context, shape, partition,
                           {.x = Rows<Element>(x),
                            .weight = weight.f32(),
                            .inverse_rms = inverse_rms.f32(),
                            .output_gradient = Rows<Element>(output_gradient),
                            .added = Rows<Element>(added),
                            .x_gradient = Rows<Element>(x_gradient),
                            .output = Rows<Element>(output)},
                           sums);
  });
  add_sums(context, partition, shape.width, sums, weight_gradient.f32());
}

}  // namespace penstock::kernels::cpu
