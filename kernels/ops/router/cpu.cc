#include <cmath>
#include <type_traits>

#include "base/ieee_math.h"
#include "kernels/ops/cpu/context.h"
#include "kernels/ops/cpu/elements.h"
#include "kernels/ops/cpu/exponentials.h"
#include "kernels/ops/cpu/lanes.h"
#include "kernels/ops/cpu/partition.h"
#include "kernels/ops/linear/contract.h"
#include "kernels/ops/router/contract.h"

namespace penstock::kernels::cpu {
namespace {

constexpr int64_t kTokens = 128;
constexpr float kTaken = -1;  // no probability

template <typename From, typename To>
void convert(const From* from, int64_t count, To* to) {
  vectorised([&]() PENSTOCK_INLINE {
    for_each_lanes(count, [&](const auto& lanes, int64_t i)
                              PENSTOCK_INLINE { lanes.store(to + i, lanes.load(from + i)); });
  });
}

// Rows of activations as float32: themselves, or a copy in scratch.
const float* widened(const float* rows, int64_t, float*) {
  return rows;
}
const float* widened(const BFloat16* rows, int64_t count, float* scratch) {
  convert(rows, count, scratch);
  return scratch;
}

// Logits to probabilities, in place; returns their log-sum-exp.
PENSTOCK_INLINE inline float softmax(float* row, int64_t experts) {
  const Exponentials row_sum = exponentials(row, experts);
  for_each_lanes(experts, [&](const auto& lanes, int64_t e)
                              PENSTOCK_INLINE { lanes.store(row + e, lanes.load(row + e) / row_sum.sum); });
  return row_sum.largest + static_cast<float>(natural_log(static_cast<double>(row_sum.sum)));
}

// Whatever the probabilities are, even no numbers, the choices are different experts.
void choose(const float* probabilities, const RouterShape& shape, float* left, int32_t* expert) {
  for (int64_t e = 0; e < shape.experts; ++e) left[e] = probabilities[e];
  for (int64_t k = 0; k < shape.choices; ++k) {
    int64_t best = -1;
    for (int64_t e = 0; e < shape.experts; ++e) {
      if (left[e] != kTaken && (best < 0 || left[e] > left[best])) best = e;
    }
    expert[k] = static_cast<int32_t>(best);
    left[best] = kTaken;
  }
}

float chosen_sum(const float* probabilities, const int32_t* expert, int64_t choices) {
  float total = 0;
  for (int64_t k = 0; k < choices; ++k) total += probabilities[expert[k]];
  return total;
}

ProductShape logits_product(int64_t tokens, const TensorView& weight) {
  return {.rows = tokens, .columns = weight.size(0), .inner = weight.size(1), .right = Operand::Transposed};
}
ProductShape x_gradient_product(int64_t tokens, const TensorView& weight) {
  return {.rows = tokens, .columns = weight.size(1), .inner = weight.size(0)};
}

template <typename Make>
void make_products(Context& context, const Partition& partition, const Make& shape_of) {
  if (partition.total == 0) return;
  context.product(shape_of(partition.length(0)));
  context.product(shape_of(partition.length(partition.pieces() - 1)));
}

void check_counted(const RouterShape& shape, const RouterLossShape& counted) {
  PENSTOCK_CHECK(counted.sequences >= 0 && counted.sequence_length > 0 &&
                     counted.sequences * counted.sequence_length <= shape.tokens,
                 "{} sequences of {} tokens, of {} tokens", counted.sequences, counted.sequence_length,
                 shape.tokens);
}

// share[e] = f[e] of the tokens [first, first + count).
void load_shares(const Routing& routing, const RouterShape& shape, int64_t first, int64_t count,
                 float* share) {
  for (int64_t e = 0; e < shape.experts; ++e) share[e] = 0;
  const int32_t* expert = routing.expert.i32() + first * shape.choices;
  for (int64_t i = 0; i < count * shape.choices; ++i) share[expert[i]] += 1;  // exact up to 2^24
  const float factor =
      static_cast<float>(static_cast<double>(shape.experts) / static_cast<double>(shape.choices * count));
  for (int64_t e = 0; e < shape.experts; ++e) share[e] *= factor;
}

// One token of router_gradient.
struct TokenGradient {
  const float* probabilities;
  const int32_t* expert;
  const float* weight;
  const float* weight_gradient;
  bool normalise;
  const float* pull;  // of the balance loss, by expert; null where the token does not count
  float z_factor;     // 2 s_z log_sum_exp
};

PENSTOCK_INLINE inline void token_gradient(const TokenGradient& token, const RouterShape& shape, float* d,
                                           float* logit_gradient) {
  for (int64_t e = 0; e < shape.experts; ++e) d[e] = token.pull == nullptr ? 0 : token.pull[e];
  float mean = 0;
  float total = 1;
  if (token.normalise) {
    total = chosen_sum(token.probabilities, token.expert, shape.choices);
    for (int64_t k = 0; k < shape.choices; ++k) mean += token.weight_gradient[k] * token.weight[k];
  }
  for (int64_t k = 0; k < shape.choices; ++k) {
    d[token.expert[k]] += (token.weight_gradient[k] - mean) / total;
  }
  const float shared = dot(token.probabilities, d, shape.experts);
  for_each_lanes(shape.experts, [&](const auto& lanes, int64_t e) PENSTOCK_INLINE {
    const Lanes p = lanes.load(token.probabilities + e);
    lanes.store(logit_gradient + e, p * (lanes.load(d + e) - shared + token.z_factor));
  });
}

}  // namespace

void router(Context& context, TensorView x, TensorView weight, bool normalise, const Routing& routing) {
  const RouterShape shape = router_shape(routing);
  const int64_t hidden = x.size(1);
  expect_matrix(x, shape.tokens, hidden, "x", x.type());
  expect_matrix(weight, shape.experts, hidden, "router weight");
  const Partition partition{shape.tokens, kTokens};
  make_products(context, partition, [&](int64_t tokens) { return logits_product(tokens, weight); });
  context.reserve_per_thread(kTokens * hidden + shape.experts);
  with_element(x.type(), [&](auto element) {
    using Element = decltype(element);
    context.parallel_for(partition.pieces(), [&](int64_t piece) {
      const int64_t first = partition.begin(piece);
      const int64_t count = partition.length(piece);
      float* const wide = context.thread_scratch();
      float* const left = wide + kTokens * hidden;
      float* const rows = routing.probabilities.f32() + first * shape.experts;
      context.made_product(logits_product(count, weight))
          .run(widened(data<Element>(x) + first * hidden, count * hidden, wide), weight.f32(), rows);
      vectorised([&]() PENSTOCK_INLINE {
        for (int64_t t = 0; t < count; ++t) {
          routing.log_sum_exp.f32()[first + t] = softmax(rows + t * shape.experts, shape.experts);
        }
      });
      for (int64_t t = 0; t < count; ++t) {
        const float* probabilities = rows + t * shape.experts;
        int32_t* const expert = routing.expert.i32() + (first + t) * shape.choices;
        float* const chosen = routing.weight.f32() + (first + t) * shape.choices;
        choose(probabilities, shape, left, expert);
        const float total = normalise ? chosen_sum(probabilities, expert, shape.choices) : 1;
        for (int64_t k = 0; k < shape.choices; ++k) chosen[k] = probabilities[expert[k]] / total;
      }
    });
  });
}

RouterLosses router_losses(Context& context, const Routing& routing, const RouterLossShape& counted) {
  const RouterShape shape = router_shape(routing);
  check_counted(shape, counted);
  float* const share = context.reserve_shared(shape.experts);
  RouterLosses losses;
  for (int64_t s = 0; s < counted.sequences; ++s) {
    const int64_t first = s * counted.sequence_length;
    load_shares(routing, shape, first, counted.sequence_length, share);
    double balance = 0;
    for (int64_t t = first; t < first + counted.sequence_length; ++t) {
      const float* probabilities = routing.probabilities.f32() + t * shape.experts;
      for (int64_t e = 0; e < shape.experts; ++e) {
        balance += static_cast<double>(share[e]) * static_cast<double>(probabilities[e]);
      }
      const double log_sum_exp = routing.log_sum_exp.f32()[t];
      losses.z += log_sum_exp * log_sum_exp;
    }
    losses.balance += balance / static_cast<double>(counted.sequence_length);
  }
  return losses;
}

void router_gradient(Context& context, const Routing& routing, bool normalise, TensorView weight_gradient,
                     const RouterLossShape& counted, const RouterLossScales& scales,
                     TensorView logit_gradient) {
  const RouterShape shape = router_shape(routing);
  check_counted(shape, counted);
  expect_matrix(weight_gradient, shape.tokens, shape.choices, "gradient of the choices' weights");
  expect_matrix(logit_gradient, shape.tokens, shape.experts, "logit_gradient");
  const Partition sequences{shape.tokens, counted.sequence_length};
  const auto balance = static_cast<float>(scales.balance / static_cast<double>(counted.sequence_length));
  context.reserve_per_thread(2 * shape.experts);
  context.parallel_for(sequences.pieces(), [&](int64_t sequence) {
    const int64_t first = sequences.begin(sequence);
    const int64_t count = sequences.length(sequence);
    const bool counts = sequence < counted.sequences;
    float* const pull = context.thread_scratch();
    float* const d = pull + shape.experts;
    load_shares(routing, shape, first, count, pull);
    for (int64_t e = 0; e < shape.experts; ++e) pull[e] *= balance;
    vectorised([&]() PENSTOCK_INLINE {
      for (int64_t t = first; t < first + count; ++t) {
        token_gradient(
            {.probabilities = routing.probabilities.f32() + t * shape.experts,
             .expert = routing.expert.i32() + t * shape.choices,
             .weight = routing.weight.f32() + t * shape.choices,
             .weight_gradient = weight_gradient.f32() + t * shape.choices,
             .normalise = normalise,
             .pull = counts ? pull : nullptr,
             .z_factor = counts ? 2 * static_cast<float>(scales.z) * routing.log_sum_exp.f32()[t] : 0},
            shape, d, logit_gradient.f32() + t * shape.experts);
      }
    });
  });
}

void router_input_gradient(Context& context, TensorView logit_gradient, TensorView weight,
                           TensorView x_gradient) {
  const int64_t tokens = logit_gradient.size(0);
  const int64_t experts = weight.size(0);
  const int64_t hidden = weight.size(1);
  expect_matrix(logit_gradient, tokens, experts, "logit_gradient");
  expect_matrix(weight, experts, hidden, "router weight");
  expect_matrix(x_gradient, tokens, hidden, "x_gradient", x_gradient.type());
  const Partition partition{tokens, kTokens};
  make_products(context, partition, [&](int64_t count) { return x_gradient_product(count, weight); });
  context.reserve_per_thread(kTokens * hidden);
  with_element(x_gradient.type(), [&](auto element) {
    using Element = decltype(element);
    context.parallel_for(partition.pieces(), [&](int64_t piece) {
      const int64_t first = partition.begin(piece);
      const int64_t count = partition.length(piece);
      Element* const to = data<Element>(x_gradient) + first * hidden;
      constexpr bool kWide = std::is_same_v<Element, float>;
      float* const wide = kWide ? reinterpret_cast<float*>(to) : context.thread_scratch();
      context.made_product(x_gradient_product(count, weight))
          .run(logit_gradient.f32() + first * experts, weight.f32(), wide);
      if (!kWide) convert(wide, count * hidden, to);
    });
  });
}

void router_weight_gradient(Context& context, TensorView logit_gradient, TensorView x,
                            TensorView weight_gradient) {
  if (x.type() == DataType::Float32) {
    return linear_weight_gradient(context, logit_gradient, x, {&weight_gradient, 1});
  }
  const int64_t tokens = x.size(0);
  const int64_t hidden = x.size(1);
  expect_matrix(x, tokens, hidden, "x", DataType::BFloat16);
  float* const wide = context.reserve_shared(tokens * hidden, Shared::Widened);
  const Partition partition{tokens, kTokens};
  context.parallel_for(partition.pieces(), [&](int64_t piece) {
    const int64_t first = partition.begin(piece) * hidden;
    convert(x.bf16() + first, partition.length(piece) * hidden, wide + first);
  });
  linear_weight_gradient(context, logit_gradient, TensorView(wide, DataType::Float32, {tokens, hidden}),
                         {&weight_gradient, 1});
}

}  // namespace penstock::kernels::cpu
