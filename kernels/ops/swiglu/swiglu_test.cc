#include <gtest/gtest.h>

#include "kernels/ops/testing/reference.h"

namespace penstock::kernels::testing {
namespace {

Doubles reference(const Doubles& gate, const Doubles& up) {
  Doubles y(gate.size());
  for (size_t i = 0; i < gate.size(); ++i) y[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
  return y;
}

TEST(SwiGlu, output_and_gradients_are_those_of_the_reference) {
  Rig rig;
  Random random(400);
  for (int64_t count : {1, 15, 16, 17, 1000, 20000}) {
    Floats gate = random.normal(count, 3);
    Floats up = random.normal(count);
    Floats dy = random.normal(count);
    Floats y(count, NAN);
    Floats dgate(count, NAN);
    Floats dup(count, NAN);
    rig->swiglu(view(gate, {count}), view(up, {count}), view(y, {count}));
    rig->swiglu_backward(view(gate, {count}), view(up, {count}), view(dy, {count}), view(dgate, {count}),
                         view(dup, {count}));
    Doubles wide_gate = widen(gate);
    Doubles wide_up = widen(up);
    expect_close(y, reference(wide_gate, wide_up), 1e-6, "output");
    const auto loss = [&] { return dot(reference(wide_gate, wide_up), dy); };
    expect_gradient(loss, wide_gate, dgate, "gate_gradient");
    expect_gradient(loss, wide_up, dup, "up_gradient");
  }
}

TEST(SwiGlu, far_gates_stay_finite_and_not_a_number_passes) {
  Rig rig;
  Floats gate = {-1000, -100, -88, 88, 100, 1000, NAN};
  Floats up(7, 1);
  Floats dy(7, 1);
  Floats y(7), dgate(7), dup(7);
  rig->swiglu(view(gate, {7}), view(up, {7}), view(y, {7}));
  rig->swiglu_backward(view(gate, {7}), view(up, {7}), view(dy, {7}), view(dgate, {7}), view(dup, {7}));
  for (int i = 0; i < 3; ++i) {
    EXPECT_NEAR(y[i], 0, 1e-30);
    EXPECT_NEAR(dgate[i], 0, 1e-30);
  }
  for (int i = 3; i < 6; ++i) {
    EXPECT_EQ(y[i], gate[i]);
    EXPECT_EQ(dgate[i], 1);
  }
  EXPECT_TRUE(std::isnan(y[6]) && std::isnan(dgate[6]) && std::isnan(dup[6]));
}

TEST(SwiGlu, gradients_may_overwrite_their_inputs) {
  Rig rig;
  Random random(410);
  Floats gate = random.normal(100);
  Floats up = random.normal(100);
  Floats dy = random.normal(100);
  Floats dgate(100), dup(100);
  rig->swiglu_backward(view(gate, {100}), view(up, {100}), view(dy, {100}), view(dgate, {100}),
                       view(dup, {100}));
  rig->swiglu_backward(view(gate, {100}), view(up, {100}), view(dy, {100}), view(gate, {100}),
                       view(up, {100}));
  EXPECT_EQ(gate, dgate);
  EXPECT_EQ(up, dup);
}

TEST(SwiGlu, bits_do_not_depend_on_threads) {
  Random random(420);
  Floats gate = random.normal(70001);
  Floats up = random.normal(70001);
  Floats dy = random.normal(70001);
  expect_same_bits_for_any_thread_count([&](Operators& ops) {
    Floats y(70001), dgate(70001), dup(70001);
    ops.swiglu(view(gate, {70001}), view(up, {70001}), view(y, {70001}));
    ops.swiglu_backward(view(gate, {70001}), view(up, {70001}), view(dy, {70001}), view(dgate, {70001}),
                        view(dup, {70001}));
    return std::vector<Floats>{y, dgate, dup};
  });
}

}  // namespace
}  // namespace penstock::kernels::testing
