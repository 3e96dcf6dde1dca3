#include <gtest/gtest.h>

#include "kernels/ops/testing/reference.h"

namespace penstock::kernels::testing {
namespace {

// y[t, o] = sum_i x[t, i] w[o, i]
Doubles reference(const Doubles& x, const Doubles& w, int64_t tokens, int64_t in, int64_t out) {
  Doubles y(tokens * out);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t o = 0; o < out; ++o) {
      for (int64_t i = 0; i < in; ++i) y[t * out + o] += x[t * in + i] * w[o * in + i];
    }
  }
  return y;
}

struct Sizes {
  int64_t tokens, in, out;
};

// Below, at and above a piece of 128, and odd ones.
constexpr Sizes kSizes[] = {{1, 1, 1},      {3, 5, 7},      {128, 16, 8},    {129, 33, 128},
                            {257, 24, 131}, {100, 64, 352}, {300, 128, 257}, {512, 17, 384}};

TEST(Linear, output_is_the_product) {
  Rig rig;
  Random random(1);
  for (const auto& [tokens, in, out] : kSizes) {
    Floats x = random.normal(tokens * in);
    Floats w = random.normal(out * in);
    Floats y(tokens * out, NAN);
    rig->linear(view(x, {tokens, in}), view(w, {out, in}), view(y, {tokens, out}));
    expect_close(y, reference(widen(x), widen(w), tokens, in, out), 1e-5, "output");
  }
}

TEST(Linear, gradients_are_those_of_the_reference) {
  Rig rig;
  Random random(2);
  for (const auto& [tokens, in, out] : kSizes) {
    if (tokens * in * out > 2'000'000) continue;  // the differences cost a reference product each
    Floats x = random.normal(tokens * in);
    Floats w = random.normal(out * in);
    Floats dy = random.normal(tokens * out);
    Floats dx(tokens * in, NAN);
    Floats dw(out * in, 0);
    rig->linear_input_gradient(view(dy, {tokens, out}), view(w, {out, in}), view(dx, {tokens, in}),
                               Operators::Accumulate::No);
    rig->linear_weight_gradient(view(dy, {tokens, out}), view(x, {tokens, in}), view(dw, {out, in}));
    Doubles wide_x = widen(x);
    Doubles wide_w = widen(w);
    const auto loss = [&] { return dot(reference(wide_x, wide_w, tokens, in, out), dy); };
    expect_gradient(loss, wide_x, dx, "x_gradient");
    expect_gradient(loss, wide_w, dw, "weight_gradient");
  }
}

TEST(Linear, weight_gradient_is_exact_sum_at_every_element) {
  // The columns are copied block by block: a wrong block shows in a few elements only.
  Rig rig;
  Random random(3);
  for (const auto& [tokens, in, out] : kSizes) {
    Floats x = random.normal(tokens * in);
    Floats dy = random.normal(tokens * out);
    Floats dw(out * in, 0);
    rig->linear_weight_gradient(view(dy, {tokens, out}), view(x, {tokens, in}), view(dw, {out, in}));
    Doubles expected(out * in);
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t o = 0; o < out; ++o) {
        for (int64_t i = 0; i < in; ++i) {
          expected[o * in + i] += static_cast<double>(dy[t * out + o]) * x[t * in + i];
        }
      }
    }
    expect_close(dw, expected, 1e-5, "weight_gradient");
  }
}

TEST(Linear, gradients_add_to_what_is_there) {
  // Weight gradients accumulate over microbatches: the product must be formed first and added once.
  Rig rig;
  Random random(4);
  const int64_t tokens = 200, in = 48, out = 150;
  Floats x = random.normal(tokens * in);
  Floats w = random.normal(out * in);
  Floats dy = random.normal(tokens * out);
  Floats dx_before = random.normal(tokens * in);
  Floats dw_before = random.normal(out * in);
  Floats dx(tokens * in);
  Floats dw(out * in, 0);
  rig->linear_input_gradient(view(dy, {tokens, out}), view(w, {out, in}), view(dx, {tokens, in}),
                             Operators::Accumulate::No);
  rig->linear_weight_gradient(view(dy, {tokens, out}), view(x, {tokens, in}), view(dw, {out, in}));
  Floats dx_added = dx_before;
  Floats dw_added = dw_before;
  rig->linear_input_gradient(view(dy, {tokens, out}), view(w, {out, in}), view(dx_added, {tokens, in}),
                             Operators::Accumulate::Yes);
  rig->linear_weight_gradient(view(dy, {tokens, out}), view(x, {tokens, in}), view(dw_added, {out, in}));
  expect_added(dx_before, dx, dx_added);
  expect_added(dw_before, dw, dw_added);
}

TEST(Linear, bits_do_not_depend_on_threads) {
  Random random(5);
  const int64_t tokens = 333, in = 96, out = 352;
  Floats x = random.normal(tokens * in);
  Floats w = random.normal(out * in);
  Floats dy = random.normal(tokens * out);
  expect_same_bits_for_any_thread_count([&](Operators& ops) {
    Floats y(tokens * out);
    Floats dx(tokens * in);
    Floats dw(out * in, 0.5f);
    ops.linear(view(x, {tokens, in}), view(w, {out, in}), view(y, {tokens, out}));
    ops.linear_input_gradient(view(dy, {tokens, out}), view(w, {out, in}), view(dx, {tokens, in}),
                              Operators::Accumulate::No);
    ops.linear_weight_gradient(view(dy, {tokens, out}), view(x, {tokens, in}), view(dw, {out, in}));
    return std::vector<Floats>{y, dx, dw};
  });
}

}  // namespace
}  // namespace penstock::kernels::testing
