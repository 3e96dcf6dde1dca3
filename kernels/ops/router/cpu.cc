#include <algorithm>
#include <type_traits>

#include "kernels/ops/cpu/context.h"
#include "kernels/ops/cpu/elements.h"
#include "kernels/ops/cpu/lanes.h"
#include "kernels/ops/cpu/partition.h"
#include "kernels/ops/linear/contract.h"
#include "kernels/ops/router/contract.h"
#include "kernels/ops/router/token_lanes.h"

namespace penstock::kernels::cpu {
namespace {

constexpr int64_t kTokens = 128;

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

// Scratch of sixteen tokens, a column for each expert (E) or choice (K).
struct TokenColumns {
  TokenColumns(const RouterShape& shape, float* memory)
      : probabilities(memory),
        gradient(probabilities + shape.experts * kLanes),
        weight(gradient + shape.experts * kLanes),
        weight_gradient(weight + shape.choices * kLanes),
        expert(reinterpret_cast<int32_t*>(weight_gradient + shape.choices * kLanes)) {}
  static int64_t floats(const RouterShape& shape) { return (2 * shape.experts + 3 * shape.choices) * kLanes; }

  float* probabilities;    // [E, 16]
  float* gradient;         // [E, 16]  in the forward what is left to choose from
  float* weight;           // [K, 16]
  float* weight_gradient;  // [K, 16]
  int32_t* expert;         // [K, 16]
};

// Rows of up to sixteen tokens.
struct RoutedTokens {
  int64_t count;
  float* probabilities;  // logits before
  float* log_sum_exp;
  int32_t* expert;
  float* weight;
};
RoutedTokens tokens_from(const Routing& routing, const RouterShape& shape, int64_t first, int64_t count) {
  return {count, routing.probabilities.f32() + first * shape.experts, routing.log_sum_exp.f32() + first,
          routing.expert.i32() + first * shape.choices, routing.weight.f32() + first * shape.choices};
}

template <typename Body>
PENSTOCK_INLINE inline void for_each_sixteen(int64_t first, int64_t count, const Body& body) {
  for (int64_t t = 0; t < count; t += kLanes) body(first + t, std::min(kLanes, count - t));
}

PENSTOCK_INLINE inline void store_tokens(const Lanes& values, int64_t count, float* to) {
  for_each_lanes(count, [&](const auto& lanes, int64_t) PENSTOCK_INLINE { lanes.store(to, values); });
}

PENSTOCK_INLINE inline void route(const RoutedTokens& tokens, const RouterShape& shape, bool normalise,
                                  const TokenColumns& columns) {
  to_columns(tokens.probabilities, shape.experts, tokens.count, columns.probabilities);
  store_tokens(softmax_of_columns(columns.probabilities, shape.experts), tokens.count, tokens.log_sum_exp);
  // Whatever the probabilities are, even no numbers, the choices are different experts.
  choose_largest(columns.probabilities, shape.experts, shape.choices, columns.gradient, columns.expert);
  Lanes total{};
  for (int64_t k = 0; k < shape.choices; ++k) {
    const Lanes chosen = values_at(columns.probabilities, shape.experts, load(columns.expert + k * kLanes));
    store(columns.weight + k * kLanes, chosen);
    total += chosen;
  }
  for (int64_t k = 0; k < shape.choices && normalise; ++k) {
    store(columns.weight + k * kLanes, load(columns.weight + k * kLanes) / total);
  }
  to_rows(columns.probabilities, shape.experts, tokens.count, tokens.probabilities);
  to_rows(columns.expert, shape.choices, tokens.count, tokens.expert);
  to_rows(columns.weight, shape.choices, tokens.count, tokens.weight);
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

// What router_gradient adds to the tokens of a sequence.
struct LossPull {
  const float* balance;  // by expert; null where the sequence does not count
  float z;               // 2 s_z
};

// Columns of the choices' weights and their gradients become those of the chosen probabilities.
PENSTOCK_INLINE inline void gradient_of_chosen(const TokenColumns& columns, const RouterShape& shape,
                                               bool normalise) {
  Lanes mean{};
  Lanes total = broadcast(normalise ? 0 : 1);
  for (int64_t k = 0; k < shape.choices && normalise; ++k) {
    total += values_at(columns.probabilities, shape.experts, load(columns.expert + k * kLanes));
    mean += load(columns.weight_gradient + k * kLanes) * load(columns.weight + k * kLanes);
  }
  for (int64_t k = 0; k < shape.choices; ++k) {
    float* const gradient = columns.weight_gradient + k * kLanes;
    store(gradient, (load(gradient) - mean) / total);
  }
}

PENSTOCK_INLINE inline void gradient_of_logits(const TokenColumns& columns, const RouterShape& shape,
                                               const float* balance_pull, const Lanes& z_pull) {
  for (int64_t e = 0; e < shape.experts; ++e) {
    Lanes of_expert = broadcast(balance_pull == nullptr ? 0 : balance_pull[e]);
    for (int64_t k = 0; k < shape.choices; ++k) {
      const IntLanes chosen = load(columns.expert + k * kLanes) == static_cast<int32_t>(e);
      of_expert = chosen ? of_expert + load(columns.weight_gradient + k * kLanes) : of_expert;
    }
    store(columns.gradient + e * kLanes, of_expert);
  }
  const Lanes shared = dot_of_columns(columns.probabilities, columns.gradient, shape.experts);
  for (int64_t e = 0; e < shape.experts; ++e) {
    float* const gradient = columns.gradient + e * kLanes;
    store(gradient, load(columns.probabilities + e * kLanes) * (load(gradient) - shared + z_pull));
  }
}

// Of up to sixteen tokens.
PENSTOCK_INLINE inline void route_backward(const RoutedTokens& tokens, const float* weight_gradient,
                                           const RouterShape& shape, bool normalise, const LossPull& pull,
                                           const TokenColumns& columns, float* logit_gradient) {
  to_columns(tokens.probabilities, shape.experts, tokens.count, columns.probabilities);
  to_columns(tokens.expert, shape.choices, tokens.count, columns.expert);
  to_columns(tokens.weight, shape.choices, tokens.count, columns.weight);
  to_columns(weight_gradient, shape.choices, tokens.count, columns.weight_gradient);
  Lanes z_pull{};
  if (pull.balance != nullptr) {
    for_each_lanes(tokens.count, [&](const auto& lanes, int64_t)
                                     PENSTOCK_INLINE { z_pull = pull.z * lanes.load(tokens.log_sum_exp); });
  }
  gradient_of_chosen(columns, shape, normalise);
  gradient_of_logits(columns, shape, pull.balance, z_pull);
  to_rows(columns.gradient, shape.experts, tokens.count, logit_gradient);
}

}  // namespace

void router(Context& context, TensorView x, TensorView weight, bool normalise, const Routing& routing) {
  const RouterShape shape = router_shape(routing);
  const int64_t hidden = x.size(1);
  expect_matrix(x, shape.tokens, hidden, "x", x.type());
  expect_matrix(weight, shape.experts, hidden, "router weight");
  const Partition partition{shape.tokens, kTokens};
  make_products(context, partition, [&](int64_t tokens) { return logits_product(tokens, weight); });
  context.reserve_per_thread(kTokens * hidden + TokenColumns::floats(shape));
  with_element(x.type(), [&](auto element) {
    using Element = decltype(element);
    context.parallel_for(partition.pieces(), [&](int64_t piece) {
      const int64_t first = partition.begin(piece);
      const int64_t count = partition.length(piece);
      float* const wide = context.thread_scratch();
      const TokenColumns columns(shape, wide + kTokens * hidden);
      context.made_product(logits_product(count, weight))
          .run(widened(data<Element>(x) + first * hidden, count * hidden, wide), weight.f32(),
               routing.probabilities.f32() + first * shape.experts);
      vectorised([&]() PENSTOCK_INLINE {
        for_each_sixteen(first, count, [&](int64_t t, int64_t tokens) PENSTOCK_INLINE {
          route(tokens_from(routing, shape, t, tokens), shape, normalise, columns);
        });
      });
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
  context.reserve_per_thread(shape.experts + TokenColumns::floats(shape));
  context.parallel_for(sequences.pieces(), [&](int64_t sequence) {
    const int64_t first = sequences.begin(sequence);
    const int64_t count = sequences.length(sequence);
    float* const of_balance = context.thread_scratch();
    const TokenColumns columns(shape, of_balance + shape.experts);
    load_shares(routing, shape, first, count, of_balance);
    for (int64_t e = 0; e < shape.experts; ++e) of_balance[e] *= balance;
    const LossPull pull{sequence < counted.sequences ? of_balance : nullptr,
                        2 * static_cast<float>(scales.z)};
    vectorised([&]() PENSTOCK_INLINE {
      for_each_sixteen(first, count, [&](int64_t t, int64_t tokens) PENSTOCK_INLINE {
        route_backward(tokens_from(routing, shape, t, tokens), weight_gradient.f32() + t * shape.choices,
                       shape, normalise, pull, columns, logit_gradient.f32() + t * shape.experts);
      });
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
