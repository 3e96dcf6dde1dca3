#include <gtest/gtest.h>

#include "kernels/ops/testing/reference.h"

namespace penstock::kernels::testing {
namespace {

constexpr double kTheta = 10000;

struct Sizes {
  int64_t sequences, sequence_length, heads, head_size;
  int64_t tokens() const { return sequences * sequence_length; }
  int64_t elements() const { return tokens() * heads * head_size; }
};
constexpr Sizes kSizes[] = {{1, 1, 1, 2}, {2, 5, 3, 4}, {1, 70, 2, 32}, {3, 33, 1, 12}, {2, 64, 4, 64}};

// Hugging Face's rotate_half: x cos + rotate_half(x) sin, rotate_half = (-second half, first half).
Doubles reference(const Sizes& s, const Doubles& x) {
  Doubles y(x.size());
  const int64_t half = s.head_size / 2;
  for (int64_t t = 0; t < s.tokens(); ++t) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const int64_t row = (t * s.heads + h) * s.head_size;
      for (int64_t i = 0; i < s.head_size; ++i) {
        const double exponent = 2.0 * static_cast<double>(i % half) / static_cast<double>(s.head_size);
        const double angle = static_cast<double>(t % s.sequence_length) * std::pow(kTheta, -exponent);
        const double rotated = i < half ? -x[row + half + i] : x[row + i - half];
        y[row + i] = x[row + i] * std::cos(angle) + rotated * std::sin(angle);
      }
    }
  }
  return y;
}

TEST(Rope, rotation_is_that_of_the_reference) {
  Rig rig;
  Random random(300);
  for (const Sizes& sizes : kSizes) {
    Floats x = random.normal(sizes.elements());
    const Doubles expected = reference(sizes, widen(x));
    rig->rope(view(x, {sizes.tokens(), sizes.heads * sizes.head_size}), sizes.sequence_length,
              sizes.head_size, kTheta);
    expect_close(x, expected, 1e-5, "rotated");
  }
}

TEST(Rope, backward_is_the_gradient_of_the_reference) {
  Rig rig;
  Random random(310);
  for (const Sizes& sizes : kSizes) {
    Doubles x = widen(random.normal(sizes.elements()));
    const Floats dy = random.normal(sizes.elements());
    Floats dx = dy;
    rig->rope_backward(view(dx, {sizes.tokens(), sizes.heads * sizes.head_size}), sizes.sequence_length,
                       sizes.head_size, kTheta);
    expect_gradient([&] { return dot(reference(sizes, x), dy); }, x, dx, "x_gradient");
  }
}

TEST(Rope, bfloat16_columns_of_a_wider_matrix_are_rotated) {
  Rig rig;
  Random random(340);
  const Sizes sizes{2, 33, 3, 20};
  Floats x = random.normal(sizes.elements());
  Floats wide(sizes.tokens() * 90, 5);
  for (int64_t t = 0; t < sizes.tokens(); ++t) std::copy_n(&x[t * 60], 60, &wide[t * 90 + 30]);
  Halves narrow(wide);
  for (float& each : x) each = rounded_to_bfloat16(each);
  rig->rope(narrow.view({sizes.tokens(), 90}).columns(30, 60), 33, 20, kTheta);
  const Floats rotated = narrow.widened();
  Floats y;
  for (int64_t t = 0; t < sizes.tokens(); ++t) {
    for (int64_t i = 0; i < 30; ++i) ASSERT_EQ(rotated[t * 90 + i], 5);
    y.insert(y.end(), &rotated[t * 90 + 30], &rotated[t * 90 + 30] + 60);
  }
  expect_close(y, reference(sizes, widen(x)), kHalfUlp, "rotated");
}

TEST(Rope, each_theta_has_its_own_angles) {
  // Tables are kept: a second theta must not read the first one's.
  Rig rig;
  Random random(320);
  Floats x = random.normal(8 * 4);
  Floats first = x;
  Floats second = x;
  rig->rope(view(first, {8, 4}), 8, 4, 10000);
  rig->rope(view(second, {8, 4}), 8, 4, 500000);
  EXPECT_NE(first, second);
  rig->rope_backward(view(first, {8, 4}), 8, 4, 10000);
  expect_close(first, widen(x), 1e-6, "rotated forth and back");
}

TEST(Rope, bits_do_not_depend_on_threads) {
  Random random(330);
  const Floats x = random.normal(300 * 64);
  expect_same_bits_for_any_thread_count([&](Operators& ops) {
    Floats rotated = x;
    Floats back = x;
    ops.rope(view(rotated, {300, 64}), 100, 32, kTheta);
    ops.rope_backward(view(back, {300, 64}), 100, 32, kTheta);
    return std::vector<Floats>{rotated, back};
  });
}

}  // namespace
}  // namespace penstock::kernels::testing
