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
    rig->swiglu(view(gate, {1, count}), view(up, {1, count}), view(y, {1, count}));
    rig->swiglu_backward(view(gate, {1, count}), view(up, {1, count}), view(dy, {1, count}),
                         view(dgate, {1, count}), view(dup, {1, count}));
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
  rig->swiglu(view(gate, {1, 7}), view(up, {1, 7}), view(y, {1, 7}));
  rig->swiglu_backward(view(gate, {1, 7}), view(up, {1, 7}), view(dy, {1, 7}), view(dgate, {1, 7}),
                       view(dup, {1, 7}));
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
  rig->swiglu_backward(view(gate, {4, 25}), view(up, {4, 25}), view(dy, {4, 25}), view(dgate, {4, 25}),
                       view(dup, {4, 25}));
  rig->swiglu_backward(view(gate, {4, 25}), view(up, {4, 25}), view(dy, {4, 25}), view(gate, {4, 25}),
                       view(up, {4, 25}));
  EXPECT_EQ(gate, dgate);
  EXPECT_EQ(up, dup);
}

TEST(SwiGlu, backward_writes_the_output_again_where_it_is_asked_for) {
  Rig rig;
  Random random(430);
  Floats gate = random.normal(7 * 33), up = random.normal(7 * 33), dy = random.normal(7 * 33);
  Floats y(7 * 33), again(7 * 33, NAN), dgate(7 * 33), dup(7 * 33);
  rig->swiglu(view(gate, {7, 33}), view(up, {7, 33}), view(y, {7, 33}));
  rig->swiglu_backward(view(gate, {7, 33}), view(up, {7, 33}), view(dy, {7, 33}), view(dgate, {7, 33}),
                       view(dup, {7, 33}), view(again, {7, 33}));
  EXPECT_EQ(again, y);
}

TEST(SwiGlu, bfloat16_columns_of_one_matrix_are_those_of_the_reference) {
  // Gate and up are the two halves of one product's output, and so are their gradients.
  Rig rig;
  Random random(440);
  const int64_t tokens = 37, width = 50;
  Floats both = random.normal(tokens * 2 * width, 2);
  Floats dy = random.normal(tokens * width);
  Halves narrow_both(both);
  Halves narrow_dy(dy);
  Halves y(tokens * width);
  Halves gradients(tokens * 2 * width);
  const TensorView in = narrow_both.view({tokens, 2 * width});
  const TensorView out = gradients.view({tokens, 2 * width});
  rig->swiglu(in.columns(0, width), in.columns(width, width), y.view({tokens, width}));
  rig->swiglu_backward(in.columns(0, width), in.columns(width, width), narrow_dy.view({tokens, width}),
                       out.columns(0, width), out.columns(width, width));
  Doubles expected_y, expected_gradients(both.size());
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < width; ++i) {
      const double g = both[t * 2 * width + i];
      const double u = both[t * 2 * width + width + i];
      const double s = 1 / (1 + std::exp(-g));
      const double d = dy[t * width + i];
      expected_y.push_back(g * s * u);
      expected_gradients[t * 2 * width + i] = d * u * s * (1 + g * (1 - s));
      expected_gradients[t * 2 * width + width + i] = d * g * s;
    }
  }
  expect_close(y.widened(), expected_y, kHalfUlp, "output");
  expect_close(gradients.widened(), expected_gradients, kHalfUlp, "gradients");
}

TEST(SwiGlu, bits_do_not_depend_on_threads) {
  Random random(420);
  Floats gate = random.normal(70070);
  Floats up = random.normal(70070);
  Floats dy = random.normal(70070);
  expect_same_bits_for_any_thread_count([&](Operators& ops) {
    Floats y(70070), dgate(70070), dup(70070);
    ops.swiglu(view(gate, {1001, 70}), view(up, {1001, 70}), view(y, {1001, 70}));
    ops.swiglu_backward(view(gate, {1001, 70}), view(up, {1001, 70}), view(dy, {1001, 70}),
                        view(dgate, {1001, 70}), view(dup, {1001, 70}));
    return std::vector<Floats>{y, dgate, dup};
  });
}

}  // namespace
}  // namespace penstock::kernels::testing
