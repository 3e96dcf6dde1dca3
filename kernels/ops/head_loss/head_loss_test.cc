#include <gtest/gtest.h>

#include "kernels/ops/testing/packed.h"
#include "kernels/ops/testing/reference.h"

namespace penstock::kernels::testing {
namespace {

struct Sizes {
  int64_t tokens, hidden, vocabulary;
};

struct Reference {
  double loss = 0;
  Doubles log_sum_exp;
};

Reference reference(const Sizes& s, const Doubles& x, const Doubles& w, const std::vector<int32_t>& targets) {
  Reference result;
  for (int64_t t = 0; t < s.tokens; ++t) {
    Doubles logits(s.vocabulary);
    for (int64_t v = 0; v < s.vocabulary; ++v) {
      for (int64_t h = 0; h < s.hidden; ++h) logits[v] += x[t * s.hidden + h] * w[v * s.hidden + h];
    }
    const double largest = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (double each : logits) sum += std::exp(each - largest);
    result.log_sum_exp.push_back(largest + std::log(sum));
    if (targets[t] != kNoTarget) result.loss += result.log_sum_exp.back() - logits[targets[t]];
  }
  return result;
}

struct Case {
  Case(const Sizes& of, uint32_t seed) : sizes(of) {
    Random random(seed);
    x = random.normal(sizes.tokens * sizes.hidden);
    w = random.normal(sizes.vocabulary * sizes.hidden, 0.3f);
    targets = random.below(static_cast<int32_t>(sizes.vocabulary), sizes.tokens);
    dx = Floats(x.size(), NAN);
    dw = Floats(w.size(), 0);
  }

  TensorView rows(Floats& values) const { return view(values, {sizes.tokens, sizes.hidden}); }
  TensorView weights(Floats& values) const { return view(values, {sizes.vocabulary, sizes.hidden}); }

  Sizes sizes;
  Floats x, w, dx, dw;
  std::vector<int32_t> targets;
};

// The same in one of the types of activations.
struct TypedCase {
  TypedCase(Case& of, DataType type)
      : c(of), narrow_x(of.x), narrow_dx(static_cast<int64_t>(of.x.size())), type_(type) {
    Halves rounds(c.w);
  }

  double run(Operators& ops, double scale) {
    const Packed packed(ops, {c.weights(c.w)}, type_);
    const double loss =
        ops.head_loss_and_gradients(x(), packed.weight(), view(c.targets), scale, dx(), c.weights(c.dw));
    EXPECT_EQ(ops.head_loss(x(), packed.weight(), view(c.targets)), loss);
    return loss;
  }
  TensorView x() { return narrow() ? narrow_x.view({c.sizes.tokens, c.sizes.hidden}) : c.rows(c.x); }
  TensorView dx() { return narrow() ? narrow_dx.view({c.sizes.tokens, c.sizes.hidden}) : c.rows(c.dx); }
  Floats x_gradient() const { return narrow() ? narrow_dx.widened() : c.dx; }
  bool narrow() const { return type_ == DataType::BFloat16; }

  Case& c;
  Halves narrow_x, narrow_dx;

 private:
  DataType type_;
};

class HeadLoss : public ::testing::TestWithParam<DataType> {};

TEST_P(HeadLoss, loss_and_gradients_are_those_of_the_reference) {
  Rig rig;
  const bool narrow = GetParam() == DataType::BFloat16;
  uint32_t seed = 190;
  for (const Sizes& sizes : {Sizes{1, 4, 2}, {7, 8, 13}, {130, 16, 50}, {129, 6, 257}, {1030, 4, 16}}) {
    Case c(sizes, ++seed);
    for (size_t t = 2; t < c.targets.size(); t += 5) c.targets[t] = kNoTarget;
    TypedCase packed(c, GetParam());
    const double scale = 1.0 / 64;
    const double loss = packed.run(*rig.ops, scale);
    Doubles x = widen(c.x);
    Doubles w = widen(c.w);
    const double expected = reference(sizes, x, w, c.targets).loss;
    EXPECT_NEAR(loss, expected, 1e-6 * expected);  // of float32 logits in both types
    const auto differences = [&] { return scale * reference(sizes, x, w, c.targets).loss; };
    expect_gradient(differences, x, packed.x_gradient(), "x_gradient", narrow ? 2 * kHalfUlp : 2e-5);
    expect_gradient(differences, w, c.dw, "weight_gradient", narrow ? 2 * kHalfUlp : 2e-5);
    for (int64_t t = 2; t < sizes.tokens; t += 5) {
      for (int64_t h = 0; h < sizes.hidden; ++h) ASSERT_EQ(packed.x_gradient()[t * sizes.hidden + h], 0);
    }
  }
}

TEST_P(HeadLoss, bits_do_not_depend_on_threads) {
  const Case original({1100, 24, 300}, 196);
  expect_same_bits_for_any_thread_count([&](Operators& ops) {
    Case c = original;
    TypedCase packed(c, GetParam());
    const double loss = packed.run(ops, 0.125);
    Floats loss_bits(2);
    std::memcpy(loss_bits.data(), &loss, sizeof(loss));
    return std::vector<Floats>{loss_bits, packed.x_gradient(), c.dw};
  });
}

TEST_P(HeadLoss, a_vocabulary_above_a_chunk_s_limit_takes_several_chunks) {
  // The gradients of the logits of all 300 tokens would exceed 64 MiB.
  Rig rig;
  Case c({300, 4, 150000}, 197);
  TypedCase packed(c, GetParam());
  const double loss = packed.run(*rig.ops, 1.0);
  const Reference expected = reference(c.sizes, widen(c.x), widen(c.w), c.targets);
  EXPECT_NEAR(loss, expected.loss, 1e-6 * expected.loss);
  for (const int64_t t : {0, 150, 299}) {
    Doubles dx(4);
    for (int64_t v = 0; v < c.sizes.vocabulary; ++v) {
      double logit = 0;
      for (int64_t h = 0; h < 4; ++h) logit += static_cast<double>(c.x[t * 4 + h]) * c.w[v * 4 + h];
      const double d = std::exp(logit - expected.log_sum_exp[t]) - (v == c.targets[t] ? 1 : 0);
      for (int64_t h = 0; h < 4; ++h) dx[h] += d * c.w[v * 4 + h];
    }
    const Floats found = packed.x_gradient();
    expect_close(Floats(&found[t * 4], &found[t * 4] + 4), dx, 4 * kHalfUlp, "x_gradient");
  }
}

TEST_P(HeadLoss, weight_gradient_adds_to_what_is_there) {
  Rig rig;
  Case c({200, 12, 40}, 140);
  Case again = c;
  TypedCase(c, GetParam()).run(*rig.ops, 1.0);
  std::fill(again.dw.begin(), again.dw.end(), 2.0f);
  TypedCase(again, GetParam()).run(*rig.ops, 1.0);
  expect_added(Floats(c.dw.size(), 2.0f), c.dw, again.dw);
}

TEST_P(HeadLoss, not_a_number_reaches_the_loss) {
  Rig rig;
  Case c({130, 8, 20}, 198);
  c.x[129 * 8] = NAN;
  TypedCase packed(c, GetParam());
  const Packed weight(*rig.ops, {c.weights(c.w)}, GetParam());
  EXPECT_TRUE(std::isnan(rig->head_loss(packed.x(), weight.weight(), view(c.targets))));
}

TEST(HeadLossDeathTest, target_outside_the_vocabulary_stops_the_process) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Case c({4, 4, 10}, 180);
  c.targets[2] = 10;
  EXPECT_DEATH(
      {
        Rig rig(1);
        TypedCase(c, DataType::Float32).run(*rig.ops, 1.0);
      },
      "target 10 at 2, vocabulary of 10");
}

INSTANTIATE_TEST_SUITE_P(Types, HeadLoss, ::testing::Values(DataType::Float32, DataType::BFloat16),
                         [](const auto& instance) {
                           return instance.param == DataType::BFloat16 ? "bfloat16" : "float32";
                         });

}  // namespace
}  // namespace penstock::kernels::testing
