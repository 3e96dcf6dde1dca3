#include <gtest/gtest.h>

#include "kernels/ops/testing/reference.h"

namespace penstock::kernels::testing {
namespace {

constexpr double kEpsilon = 1e-5;

struct Sizes {
  int64_t tokens, hidden;
};
constexpr Sizes kSizes[] = {{1, 8}, {3, 5}, {64, 16}, {65, 128}, {130, 100}, {7, 300}};

Doubles reference(const Sizes& s, const Doubles& x, const Doubles& w) {
  Doubles y(x.size());
  for (int64_t t = 0; t < s.tokens; ++t) {
    double squares = 0;
    for (int64_t j = 0; j < s.hidden; ++j) squares += x[t * s.hidden + j] * x[t * s.hidden + j];
    const double rms = std::sqrt(squares / static_cast<double>(s.hidden) + kEpsilon);
    for (int64_t j = 0; j < s.hidden; ++j) y[t * s.hidden + j] = x[t * s.hidden + j] / rms * w[j];
  }
  return y;
}

struct Case {
  Case(const Sizes& of, uint32_t seed) : sizes(of) {
    Random random(seed);
    x = random.normal(sizes.tokens * sizes.hidden, 2);
    w = random.normal(sizes.hidden, 0.5f, 1);
    dy = random.normal(sizes.tokens * sizes.hidden);
    y = dx = Floats(x.size(), NAN);
    inverse_rms = Floats(sizes.tokens, NAN);
    dw = Floats(sizes.hidden, 0);
  }
  TensorView rows(Floats& values) const { return view(values, {sizes.tokens, sizes.hidden}); }
  void run(Operators& ops) {
    ops.rms_norm(rows(x), view(w, {sizes.hidden}), kEpsilon, rows(y), view(inverse_rms, {sizes.tokens}));
    ops.rms_norm_backward(rows(x), view(w, {sizes.hidden}), view(inverse_rms, {sizes.tokens}), rows(dy),
                          rows(dx), view(dw, {sizes.hidden}));
  }

  Sizes sizes;
  Floats x, w, dy, y, dx, inverse_rms, dw;
};

TEST(RmsNorm, output_and_gradients_are_those_of_the_reference) {
  Rig rig;
  uint32_t seed = 200;
  for (const Sizes& sizes : kSizes) {
    Case c(sizes, ++seed);
    c.run(*rig.ops);
    Doubles x = widen(c.x);
    Doubles w = widen(c.w);
    expect_close(c.y, reference(sizes, x, w), 1e-6, "output");
    const auto loss = [&] { return dot(reference(sizes, x, w), c.dy); };
    expect_gradient(loss, x, c.dx, "x_gradient");
    expect_gradient(loss, w, c.dw, "weight_gradient");
  }
}

TEST(RmsNorm, weight_gradient_adds_to_what_is_there) {
  Rig rig;
  Case c({150, 40}, 220);
  c.run(*rig.ops);
  Case again = c;
  std::fill(again.dw.begin(), again.dw.end(), 3.0f);
  again.run(*rig.ops);
  for (size_t j = 0; j < c.dw.size(); ++j) EXPECT_EQ(again.dw[j], 3.0f + c.dw[j]);
}

TEST(RmsNorm, backward_adds_the_residual_and_writes_the_output_again) {
  Rig rig;
  Case c({70, 33}, 250);
  c.run(*rig.ops);
  Random random(251);
  Floats residual = random.normal(c.x.size());
  Floats dx(c.x.size(), NAN), y(c.x.size(), NAN), dw(33, 0);
  rig->rms_norm_backward(c.rows(c.x), view(c.w, {33}), view(c.inverse_rms, {70}), c.rows(c.dy), c.rows(dx),
                         view(dw, {33}), c.rows(residual), c.rows(y));
  for (size_t i = 0; i < dx.size(); ++i) ASSERT_EQ(dx[i], residual[i] + c.dx[i]);
  EXPECT_EQ(y, c.y);
  EXPECT_EQ(dw, c.dw);
}

TEST(RmsNorm, backward_may_write_over_x) {
  // The gradient over x, or the output over x: what a backward in place leaves for the weight gradient.
  Rig rig;
  Case c({70, 33}, 252);
  c.run(*rig.ops);
  Floats x = c.x, dw(33, 0);
  rig->rms_norm_backward(c.rows(x), view(c.w, {33}), view(c.inverse_rms, {70}), c.rows(c.dy), c.rows(x),
                         view(dw, {33}));
  EXPECT_EQ(x, c.dx);
  EXPECT_EQ(dw, c.dw);
  x = c.x;
  Floats dx(c.x.size(), NAN);
  rig->rms_norm_backward(c.rows(x), view(c.w, {33}), view(c.inverse_rms, {70}), c.rows(c.dy), c.rows(dx),
                         view(dw, {33}), {}, c.rows(x));
  EXPECT_EQ(x, c.y);
  EXPECT_EQ(dx, c.dx);
}

TEST(RmsNorm, a_token_of_several_rows_is_normalised_row_by_row) {
  // QK-norm: heads are rows; here as the middle columns of a wider matrix.
  Rig rig;
  Case c({6 * 3, 16}, 260);
  c.run(*rig.ops);
  Floats wide(6 * 100, 7), wide_dy(6 * 100, 7), wide_y(6 * 100, 7), wide_dx(6 * 100, 7);
  for (int64_t t = 0; t < 6; ++t) {
    std::copy_n(&c.x[t * 48], 48, &wide[t * 100 + 20]);
    std::copy_n(&c.dy[t * 48], 48, &wide_dy[t * 100 + 20]);
  }
  const auto heads = [](Floats& values) { return view(values, {6, 100}).columns(20, 48); };
  Floats inverse_rms(18), dw(16, 0);
  rig->rms_norm(heads(wide), view(c.w, {16}), kEpsilon, heads(wide_y), view(inverse_rms, {18}));
  rig->rms_norm_backward(heads(wide), view(c.w, {16}), view(inverse_rms, {18}), heads(wide_dy),
                         heads(wide_dx), view(dw, {16}));
  EXPECT_EQ(inverse_rms, c.inverse_rms);
  EXPECT_EQ(dw, c.dw);
  for (int64_t t = 0; t < 6; ++t) {
    EXPECT_TRUE(std::equal(&c.y[t * 48], &c.y[t * 48] + 48, &wide_y[t * 100 + 20]));
    EXPECT_TRUE(std::equal(&c.dx[t * 48], &c.dx[t * 48] + 48, &wide_dx[t * 100 + 20]));
    for (int64_t i : {0, 19, 68, 99}) EXPECT_EQ(wide_y[t * 100 + i], 7);
  }
}

TEST(RmsNorm, bfloat16_rows_are_those_of_the_reference) {
  Rig rig;
  Case c({130, 100}, 270);
  Halves x(c.x), dy(c.dy), y(c.x.size()), dx(c.x.size());
  rig->rms_norm(x.view({130, 100}), view(c.w, {100}), kEpsilon, y.view({130, 100}),
                view(c.inverse_rms, {130}));
  rig->rms_norm_backward(x.view({130, 100}), view(c.w, {100}), view(c.inverse_rms, {130}),
                         dy.view({130, 100}), dx.view({130, 100}), view(c.dw, {100}));
  Doubles wide_x = widen(c.x);
  Doubles wide_w = widen(c.w);
  expect_close(y.widened(), reference(c.sizes, wide_x, wide_w), kHalfUlp, "output");
  const auto loss = [&] { return dot(reference(c.sizes, wide_x, wide_w), c.dy); };
  expect_gradient(loss, wide_x, dx.widened(), "x_gradient", kHalfUlp);
  expect_gradient(loss, wide_w, c.dw, "weight_gradient");  // float32: statistics and sums are not rounded
}

TEST(RmsNorm, a_row_of_zeros_gives_zeros) {
  Rig rig;
  Case c({2, 24}, 230);
  std::fill(c.x.begin(), c.x.begin() + 24, 0.0f);
  c.run(*rig.ops);
  for (int64_t j = 0; j < 24; ++j) EXPECT_EQ(c.y[j], 0.0f);
}

TEST(RmsNorm, bits_do_not_depend_on_threads) {
  const Case original({333, 96}, 240);
  expect_same_bits_for_any_thread_count([&](Operators& ops) {
    Case c = original;
    c.run(ops);
    return std::vector<Floats>{c.y, c.inverse_rms, c.dx, c.dw};
  });
}

}  // namespace
}  // namespace penstock::kernels::testing
