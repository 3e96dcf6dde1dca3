#include <gtest/gtest.h>

#include "kernels/ops/testing/packed.h"
#include "kernels/ops/testing/reference.h"

namespace penstock::kernels::testing {
namespace {

struct Sizes {
  int64_t tokens, in, out, second;  // a second weight that reads the same x; 0: none
};

// Odd ones, some that end inside a block or a group, more than one piece and more than one sum of tokens.
constexpr Sizes kSizes[] = {{1, 1, 1, 0},      {3, 5, 7, 2},      {128, 16, 8, 8},     {129, 33, 128, 65},
                            {257, 24, 131, 3}, {100, 64, 352, 0}, {700, 128, 160, 96}, {513, 70, 64, 64}};

// A row-major product left [rows, inner] x right [inner, columns] in float64.
Doubles product(const Doubles& left, const Doubles& right, int64_t rows, int64_t inner, int64_t columns) {
  Doubles result(rows * columns);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < inner; ++k) {
      for (int64_t c = 0; c < columns; ++c)
        result[r * columns + c] += left[r * inner + k] * right[k * columns + c];
    }
  }
  return result;
}
Doubles transposed(const Doubles& x, int64_t rows, int64_t columns) {
  Doubles result(x.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) result[c * rows + r] = x[r * columns + c];
  }
  return result;
}

// Inputs of both element types, holding the same values: those that bfloat16 has.
struct Case {
  Case(const Sizes& of, uint32_t seed) : sizes(of), out(of.out + of.second) {
    Random random(seed);
    x = random.normal(sizes.tokens * sizes.in);
    dy = random.normal(sizes.tokens * out);
    added = random.normal(sizes.tokens * out);
    first = random.normal(sizes.out * sizes.in);
    second = random.normal(sizes.second * sizes.in);
    for (Floats* each : {&x, &dy, &added, &first, &second}) Halves rounds(*each);
  }

  Packed pack(Operators& ops, DataType type) {
    if (sizes.second == 0) return Packed(ops, {view(first, {sizes.out, sizes.in})}, type);
    return Packed(ops, {view(first, {sizes.out, sizes.in}), view(second, {sizes.second, sizes.in})}, type);
  }
  Doubles weight() const {
    Doubles both = widen(first);
    both.insert(both.end(), second.begin(), second.end());
    return both;
  }

  Sizes sizes;
  int64_t out;
  Floats x, dy, added, first, second;
};

// What the three products of a layer give, widened where they are bfloat16.
struct Results {
  Floats y, with_added, dx, first_gradient, second_gradient;
};

Results run(Operators& ops, Case& c, DataType type) {
  const auto& [tokens, in, out, second] = c.sizes;
  const Packed packed = c.pack(ops, type);
  Results r{{}, {}, {}, Floats(out * in, 0.5f), Floats(second * in, -0.5f)};
  Halves x(c.x), dy(c.dy), added(c.added), y(tokens * c.out), with_added(tokens * c.out), dx(tokens * in);
  Floats wide_y(tokens * c.out), wide_added(tokens * c.out), wide_dx(tokens * in);
  const bool narrow = type == DataType::BFloat16;
  const auto rows = [&](Halves& halves, Floats& floats, int64_t columns) {
    return narrow ? halves.view({tokens, columns}) : view(floats, {tokens, columns});
  };
  const TensorView xs = rows(x, c.x, in);
  const TensorView dys = rows(dy, c.dy, c.out);
  ops.linear(xs, packed.weight(), rows(y, wide_y, c.out));
  ops.linear(xs, packed.weight(), rows(with_added, wide_added, c.out), rows(added, c.added, c.out));
  ops.linear_input_gradient(dys, packed.weight(), rows(dx, wide_dx, in));
  const TensorView gradients[] = {view(r.first_gradient, {out, in}),
                                  second == 0 ? TensorView() : view(r.second_gradient, {second, in})};
  ops.linear_weight_gradient(dys, xs, {gradients, second == 0 ? 1u : 2u});
  r.y = narrow ? y.widened() : wide_y;
  r.with_added = narrow ? with_added.widened() : wide_added;
  r.dx = narrow ? dx.widened() : wide_dx;
  return r;
}

class Linear : public ::testing::TestWithParam<DataType> {
 protected:
  double rounding() const { return GetParam() == DataType::BFloat16 ? kHalfUlp : 1e-5; }
};

TEST_P(Linear, the_three_products_are_those_of_the_reference) {
  Rig rig;
  uint32_t seed = 900;
  for (const Sizes& sizes : kSizes) {
    Case c(sizes, ++seed);
    const Results r = run(*rig.ops, c, GetParam());
    const auto& [tokens, in, out, second] = sizes;
    const Doubles x = widen(c.x);
    const Doubles dy = widen(c.dy);
    Doubles y = product(x, transposed(c.weight(), c.out, in), tokens, in, c.out);
    expect_close(r.y, y, rounding(), "output");
    for (size_t i = 0; i < y.size(); ++i) y[i] += c.added[i];
    expect_close(r.with_added, y, rounding(), "output and what is added");
    expect_close(r.dx, product(dy, c.weight(), tokens, c.out, in), rounding(), "x_gradient");
    const Doubles dw = product(transposed(dy, tokens, c.out), x, c.out, tokens, in);
    Doubles first(dw.begin(), dw.begin() + out * in);
    Doubles rest(dw.begin() + out * in, dw.end());
    for (double& each : first) each += 0.5;
    for (double& each : rest) each -= 0.5;
    expect_close(r.first_gradient, first, 1e-5, "first weight gradient");  // float32 in both types
    expect_close(r.second_gradient, rest, 1e-5, "second weight gradient");
  }
}

TEST_P(Linear, bits_do_not_depend_on_threads) {
  const Case original({700, 96, 200, 152}, 940);
  expect_same_bits_for_any_thread_count([&](Operators& ops) {
    Case c = original;
    const Results r = run(ops, c, GetParam());
    return std::vector<Floats>{r.y, r.with_added, r.dx, r.first_gradient, r.second_gradient};
  });
}

TEST_P(Linear, a_layer_apart_has_the_bits_of_the_one_that_shares_its_product) {
  // One packed weight for several layers is a matter of speed: it must not move a bit.
  if (!cpu::has_packed_products(GetParam())) return;
  Rig rig;
  Case both({300, 40, 96, 64}, 950);
  Case apart = both;
  apart.sizes.second = 0;
  apart.out = 96;
  apart.dy.clear();
  apart.added.clear();
  for (int64_t t = 0; t < 300; ++t) {
    apart.dy.insert(apart.dy.end(), &both.dy[t * 160], &both.dy[t * 160] + 96);
    apart.added.insert(apart.added.end(), &both.added[t * 160], &both.added[t * 160] + 96);
  }
  const Results together = run(*rig.ops, both, GetParam());
  const Results alone = run(*rig.ops, apart, GetParam());
  EXPECT_EQ(alone.first_gradient, together.first_gradient);
  for (int64_t t = 0; t < 300; ++t) {
    ASSERT_TRUE(std::equal(&alone.y[t * 96], &alone.y[t * 96] + 96, &together.y[t * 160]));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Linear, ::testing::Values(DataType::Float32, DataType::BFloat16),
                         [](const auto& instance) {
                           return instance.param == DataType::BFloat16 ? "bfloat16" : "float32";
                         });

}  // namespace
}  // namespace penstock::kernels::testing
