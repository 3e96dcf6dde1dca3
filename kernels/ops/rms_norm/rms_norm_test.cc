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
