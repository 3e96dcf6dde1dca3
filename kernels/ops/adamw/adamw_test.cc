#include <gtest/gtest.h>

#include "kernels/ops/testing/packed.h"
#include "kernels/ops/testing/reference.h"

namespace penstock::kernels::testing {
namespace {

struct State {
  Doubles parameter, first, second;
};

void reference_step(State& state, const Doubles& gradient, const AdamWStep& s) {
  for (size_t i = 0; i < gradient.size(); ++i) {
    const double g = gradient[i] * s.gradient_scale;
    state.first[i] = s.beta1 * state.first[i] + (1 - s.beta1) * g;
    state.second[i] = s.beta2 * state.second[i] + (1 - s.beta2) * g * g;
    const double step = static_cast<double>(s.step);
    const double m = state.first[i] / (1 - std::pow(s.beta1, step));
    const double v = state.second[i] / (1 - std::pow(s.beta2, step));
    state.parameter[i] -= s.learning_rate * s.weight_decay * state.parameter[i];
    state.parameter[i] -= s.learning_rate * m / (std::sqrt(v) + s.epsilon);
  }
}

TEST(AdamW, twenty_steps_follow_the_reference) {
  Rig rig;
  Random random(600);
  for (int64_t count : {1, 17, 1000, 40000}) {
    Floats parameter = random.normal(count);
    Floats first(count, 0), second(count, 0);
    State expected{widen(parameter), Doubles(count), Doubles(count)};
    for (int64_t k = 1; k <= 20; ++k) {
      Floats gradient = random.normal(count);
      const Doubles of_reference = widen(gradient);
      const AdamWStep step{.learning_rate = 1e-2, .weight_decay = 0.1, .gradient_scale = 0.7, .step = k};
      rig->adamw(view(parameter, {count}), view(gradient, {count}), view(first, {count}),
                 view(second, {count}), step);
      reference_step(expected, of_reference, step);
    }
    expect_close(parameter, expected.parameter, 1e-6, "parameter");
    expect_close(first, expected.first, 1e-6, "first moment");
    expect_close(second, expected.second, 1e-6, "second moment");
  }
}

TEST(AdamW, without_gradient_only_decay_moves_a_parameter) {
  Rig rig;
  Floats parameter = {2, -4};
  Floats gradient(2, 0), first(2, 0), second(2, 0);
  const auto step = [&](double decay) {
    rig->adamw(view(parameter, {2}), view(gradient, {2}), view(first, {2}), view(second, {2}),
               {.learning_rate = 0.5, .weight_decay = decay});
  };
  step(0);
  EXPECT_EQ(parameter, (Floats{2, -4}));
  step(0.5);
  EXPECT_EQ(parameter, (Floats{1.5, -3}));
}

TEST(AdamW, the_gradient_becomes_zero_and_the_packed_rows_are_renewed) {
  Rig rig;
  Random random(620);
  for (const DataType type : {DataType::Float32, DataType::BFloat16}) {
    Floats first = random.normal(70 * 40), second = random.normal(33 * 40);
    Packed stepped(*rig.ops, {view(first, {70, 40}), view(second, {33, 40})}, type);
    Floats gradient = random.normal(33 * 40), m(33 * 40, 0.1f), v(33 * 40, 0.2f);
    rig->adamw(view(second, {33, 40}), view(gradient, {33, 40}), view(m, {33, 40}), view(v, {33, 40}),
               {.learning_rate = 1e-2}, {stepped.weight(), 70});
    EXPECT_EQ(gradient, Floats(33 * 40, 0));
    Packed anew(*rig.ops, {view(first, {70, 40}), view(second, {33, 40})}, type);
    EXPECT_EQ(std::memcmp(stepped.weight().data, anew.weight().data, anew.memory().bytes()), 0);
  }
}

TEST(AdamW, step_that_keeps_the_gradient_does_the_same_to_all_else) {
  Rig rig;
  Random random(621);
  const Floats parameter = random.normal(1003), gradient = random.normal(1003);
  Floats p = parameter, g = gradient, m(1003, 0.1f), v(1003, 0.2f);
  rig->adamw(view(p, {1003}), view(g, {1003}), view(m, {1003}), view(v, {1003}),
             {.learning_rate = 1e-2, .step = 3, .keeps_gradient = true});
  EXPECT_EQ(g, gradient);
  Floats same_p = parameter, same_m(1003, 0.1f), same_v(1003, 0.2f);
  rig->adamw(view(same_p, {1003}), view(g, {1003}), view(same_m, {1003}), view(same_v, {1003}),
             {.learning_rate = 1e-2, .step = 3});
  EXPECT_EQ(p, same_p);
  EXPECT_EQ(m, same_m);
  EXPECT_EQ(v, same_v);
  EXPECT_EQ(g, Floats(1003, 0));
}

TEST(AdamW, bits_do_not_depend_on_threads) {
  Random random(610);
  const Floats parameter = random.normal(70003);
  const Floats gradients = random.normal(70003);
  expect_same_bits_for_any_thread_count([&](Operators& ops) {
    Floats p = parameter;
    Floats gradient = gradients;
    Floats m(70003, 0.1f), v(70003, 0.2f);
    ops.adamw(view(p, {70003}), view(gradient, {70003}), view(m, {70003}), view(v, {70003}),
              {.learning_rate = 1e-3, .step = 9});
    return std::vector<Floats>{p, m, v};
  });
}

}  // namespace
}  // namespace penstock::kernels::testing
