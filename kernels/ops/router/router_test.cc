#include <gtest/gtest.h>

#include <numeric>

#include "kernels/ops/testing/experts.h"

namespace penstock::kernels::testing {
namespace {

struct Sizes {
  int64_t tokens, hidden, experts, choices;
};
// More than one piece of tokens, experts that end inside a register, every expert chosen.
constexpr Sizes kSizes[] = {{1, 4, 1, 1}, {6, 16, 5, 2}, {130, 33, 8, 2}, {257, 24, 40, 8}, {12, 16, 4, 4}};

struct Reference {
  Doubles probabilities, log_sum_exp;
};
Reference softmax_of(const Doubles& logits, int64_t tokens, int64_t experts) {
  Reference r{Doubles(logits.size()), Doubles(tokens)};
  for (int64_t t = 0; t < tokens; ++t) {
    double total = 0;
    for (int64_t e = 0; e < experts; ++e) total += std::exp(logits[t * experts + e]);
    for (int64_t e = 0; e < experts; ++e)
      r.probabilities[t * experts + e] = std::exp(logits[t * experts + e]) / total;
    r.log_sum_exp[t] = std::log(total);
  }
  return r;
}
Doubles logits_of(const Floats& x, const Floats& weight, const Sizes& s) {
  Doubles logits(s.tokens * s.experts);
  for (int64_t t = 0; t < s.tokens; ++t) {
    for (int64_t e = 0; e < s.experts; ++e) {
      for (int64_t i = 0; i < s.hidden; ++i)
        logits[t * s.experts + e] +=
            static_cast<double>(x[t * s.hidden + i]) * static_cast<double>(weight[e * s.hidden + i]);
    }
  }
  return logits;
}

class Router : public ::testing::TestWithParam<DataType> {
 protected:
  double rounding() const { return GetParam() == DataType::BFloat16 ? kHalfUlp : 2e-6; }
};

TEST_P(Router, probabilities_choices_and_weights_are_those_of_the_reference) {
  Rig rig;
  Random random(1500);
  for (const Sizes& s : kSizes) {
    Matrix x(random.normal(s.tokens * s.hidden), s.hidden, GetParam());
    Floats weight = random.normal(s.experts * s.hidden, 0.3f);
    const Reference expected = softmax_of(logits_of(x.values(), weight, s), s.tokens, s.experts);
    for (bool normalise : {false, true}) {
      RoutingStorage routing(s.tokens, s.experts, s.choices);
      rig->router(x.view(), view(weight, {s.experts, s.hidden}), normalise, routing.views());
      expect_close(routing.probabilities, expected.probabilities, 2e-6, "probabilities");
      expect_close(routing.log_sum_exp, expected.log_sum_exp, 2e-6, "log_sum_exp");
      for (int64_t t = 0; t < s.tokens; ++t) {
        const float* p = &routing.probabilities[t * s.experts];
        std::vector<int32_t> order(s.experts);
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return p[a] > p[b]; });
        double total = 0;
        for (int64_t k = 0; k < s.choices; ++k) total += static_cast<double>(p[order[k]]);
        for (int64_t k = 0; k < s.choices; ++k) {
          ASSERT_EQ(routing.expert[t * s.choices + k], order[k]) << "token " << t << " choice " << k;
          const double chosen = static_cast<double>(p[order[k]]) / (normalise ? total : 1);
          ASSERT_NEAR(routing.weight[t * s.choices + k], chosen, 1e-6);
        }
      }
    }
  }
}

TEST(RouterChoices, equal_probabilities_are_chosen_by_index) {
  // Otherwise a draw would be decided by how a sort happens to run.
  Rig rig;
  Floats x(3 * 8, 0.5f);
  Floats weight(6 * 8, 0.25f);  // all logits equal
  RoutingStorage routing(3, 6, 4);
  rig->router(view(x, {3, 8}), view(weight, {6, 8}), false, routing.views());
  EXPECT_EQ(routing.expert, (Ints{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3}));
}

TEST(RouterChoices, values_that_are_no_numbers_still_choose_different_experts) {
  // A diverged run must end with its loss, not in a read past the rows.
  Rig rig;
  Floats x = {NAN, 1, 1, INFINITY};
  Floats weight(5 * 4, 1);
  RoutingStorage routing(1, 5, 3);
  rig->router(view(x, {1, 4}), view(weight, {5, 4}), true, routing.views());
  EXPECT_EQ(routing.expert, (Ints{0, 1, 2}));
}

// The losses in float64, choices given.
double balance_of(const Doubles& p, const Ints& expert, const Sizes& s, int64_t first, int64_t length) {
  Doubles f(s.experts), mean(s.experts);
  for (int64_t t = first; t < first + length; ++t) {
    for (int64_t k = 0; k < s.choices; ++k) f[expert[t * s.choices + k]] += 1;
    for (int64_t e = 0; e < s.experts; ++e) mean[e] += p[t * s.experts + e] / static_cast<double>(length);
  }
  double loss = 0;
  for (int64_t e = 0; e < s.experts; ++e) {
    loss += f[e] * mean[e] * static_cast<double>(s.experts) / static_cast<double>(s.choices * length);
  }
  return loss;
}

TEST_P(Router, losses_and_all_gradients_are_those_of_the_reference) {
  Rig rig;
  Random random(1510);
  const Sizes s{3 * 50, 20, 7, 3};
  const RouterLossShape counted{2, 50};  // the third sequence fills up the microbatch
  const RouterLossScales scales{0.7, 0.02};
  Matrix x(random.normal(s.tokens * s.hidden), s.hidden, GetParam());
  Floats weight = random.normal(s.experts * s.hidden, 0.3f);
  Floats dw = random.normal(s.tokens * s.choices, 0.1f);
  for (bool normalise : {false, true}) {
    RoutingStorage routing(s.tokens, s.experts, s.choices);
    const Routing views = routing.views();
    rig->router(x.view(), view(weight, {s.experts, s.hidden}), normalise, views);
    Doubles logits = logits_of(x.values(), weight, s);
    RouterLosses losses;
    // Of the logits, with the choices as they are.
    const auto loss = [&] {
      const Reference r = softmax_of(logits, s.tokens, s.experts);
      double total = 0;
      for (int64_t t = 0; t < s.tokens; ++t) {
        double chosen = 0;
        for (int64_t k = 0; k < s.choices; ++k)
          chosen += r.probabilities[t * s.experts + routing.expert[t * s.choices + k]];
        for (int64_t k = 0; k < s.choices; ++k) {
          const double p = r.probabilities[t * s.experts + routing.expert[t * s.choices + k]];
          total += static_cast<double>(dw[t * s.choices + k]) * p / (normalise ? chosen : 1);
        }
      }
      losses = {};
      for (int64_t sequence = 0; sequence < counted.sequences; ++sequence)
        losses.balance += balance_of(r.probabilities, routing.expert, s, sequence * 50, 50);
      for (int64_t t = 0; t < 100; ++t) losses.z += r.log_sum_exp[t] * r.log_sum_exp[t];
      return total + scales.balance * losses.balance + scales.z * losses.z;
    };
    loss();
    const RouterLosses actual = rig->router_losses(views, counted);
    EXPECT_NEAR(actual.balance, losses.balance, 1e-5 * losses.balance);
    EXPECT_NEAR(actual.z, losses.z, 1e-5 * losses.z);

    Floats dlogits(s.tokens * s.experts, NAN);
    const TensorView logit_gradient = view(dlogits, {s.tokens, s.experts});
    rig->router_gradient(views, normalise, view(dw, {s.tokens, s.choices}), counted, scales, logit_gradient);
    expect_gradient(loss, logits, dlogits, "logit_gradient");

    Matrix dx(s.tokens, s.hidden, GetParam());
    Floats weight_gradient(s.experts * s.hidden, 0.5f);
    rig->router_input_gradient(logit_gradient, view(weight, {s.experts, s.hidden}), dx.view());
    rig->router_weight_gradient(logit_gradient, x.view(), view(weight_gradient, {s.experts, s.hidden}));
    const Floats xs = x.values();
    Doubles expected_dx(s.tokens * s.hidden), expected_dweight(s.experts * s.hidden, 0.5);
    for (int64_t t = 0; t < s.tokens; ++t) {
      for (int64_t e = 0; e < s.experts; ++e) {
        const double d = dlogits[t * s.experts + e];
        for (int64_t i = 0; i < s.hidden; ++i) {
          expected_dx[t * s.hidden + i] += d * static_cast<double>(weight[e * s.hidden + i]);
          expected_dweight[e * s.hidden + i] += d * static_cast<double>(xs[t * s.hidden + i]);
        }
      }
    }
    expect_close(dx.values(), expected_dx, rounding(), "x_gradient");
    expect_close(weight_gradient, expected_dweight, 2e-6, "weight_gradient");

    // The gradient may overwrite the probabilities.
    Routing in_place = views;
    rig->router_gradient(views, normalise, view(dw, {s.tokens, s.choices}), counted, scales,
                         in_place.probabilities);
    EXPECT_EQ(routing.probabilities, dlogits);
  }
}

TEST(RouterLoss, balance_is_one_when_balanced_and_the_number_of_experts_when_all_go_to_one) {
  Rig rig;
  RoutingStorage even(8, 4, 1);
  std::fill(even.probabilities.begin(), even.probabilities.end(), 0.25f);
  even.log_sum_exp.assign(8, 0);
  even.expert = {0, 1, 2, 3, 3, 2, 1, 0};
  EXPECT_DOUBLE_EQ(rig->router_losses(even.views(), {1, 8}).balance, 1);
  RoutingStorage one(8, 4, 1);
  one.log_sum_exp.assign(8, 0);
  one.expert.assign(8, 2);
  one.probabilities.assign(32, 0);
  for (int64_t t = 0; t < 8; ++t) one.probabilities[t * 4 + 2] = 1;
  EXPECT_DOUBLE_EQ(rig->router_losses(one.views(), {1, 8}).balance, 4);
}

TEST(RouterLoss, no_cut_into_microbatches_moves_losses_or_gradients) {
  Rig rig;
  Random random(1530);
  // Sequences as long as the pieces of the product: CPUs whose products depend on their rows' number see one number.
  const int64_t experts = 6, choices = 2, length = 128;
  Floats x = random.normal(2 * length * 16), weight = random.normal(experts * 16),
         dw = random.normal(2 * length * choices);
  RoutingStorage both(2 * length, experts, choices);
  rig->router(view(x, {2 * length, 16}), view(weight, {experts, 16}), false, both.views());
  Floats together(2 * length * experts);
  rig->router_gradient(both.views(), false, view(dw, {2 * length, choices}), {2, length}, {0.5, 0.1},
                       view(together, {2 * length, experts}));
  const RouterLosses all = rig->router_losses(both.views(), {2, length});
  RouterLosses apart;
  Floats one_by_one;
  for (int64_t s = 0; s < 2; ++s) {
    RoutingStorage one(length, experts, choices);
    const TensorView rows = view(x, {2 * length, 16}).rows(s * length, length);
    rig->router(rows, view(weight, {experts, 16}), false, one.views());
    Floats gradient(length * experts);
    rig->router_gradient(one.views(), false, view(dw, {2 * length, choices}).rows(s * length, length),
                         {1, length}, {0.5, 0.1}, view(gradient, {length, experts}));
    one_by_one.insert(one_by_one.end(), gradient.begin(), gradient.end());
    apart.balance += rig->router_losses(one.views(), {1, length}).balance;
  }
  EXPECT_EQ(one_by_one, together);
  EXPECT_DOUBLE_EQ(apart.balance, all.balance);
}

TEST_P(Router, bits_do_not_depend_on_threads) {
  Random random(1540);
  const Sizes s{700, 48, 12, 3};
  const Floats values = random.normal(s.tokens * s.hidden);
  Floats weight = random.normal(s.experts * s.hidden);
  Floats dw = random.normal(s.tokens * s.choices);
  expect_same_bits_for_any_thread_count([&](Operators& ops) {
    Matrix x(values, s.hidden, GetParam());
    RoutingStorage routing(s.tokens, s.experts, s.choices);
    Floats dlogits(s.tokens * s.experts), weight_gradient(s.experts * s.hidden);
    Matrix dx(s.tokens, s.hidden, GetParam());
    const TensorView logit_gradient = view(dlogits, {s.tokens, s.experts});
    ops.router(x.view(), view(weight, {s.experts, s.hidden}), true, routing.views());
    ops.router_gradient(routing.views(), true, view(dw, {s.tokens, s.choices}), {7, 100}, {1, 0.1},
                        logit_gradient);
    ops.router_input_gradient(logit_gradient, view(weight, {s.experts, s.hidden}), dx.view());
    ops.router_weight_gradient(logit_gradient, x.view(), view(weight_gradient, {s.experts, s.hidden}));
    return std::vector<Floats>{routing.probabilities, routing.weight, dlogits, dx.values(), weight_gradient};
  });
}

INSTANTIATE_TEST_SUITE_P(Types, Router, ::testing::Values(DataType::Float32, DataType::BFloat16),
                         [](const auto& instance) {
                           return instance.param == DataType::BFloat16 ? "bfloat16" : "float32";
                         });

}  // namespace
}  // namespace penstock::kernels::testing
