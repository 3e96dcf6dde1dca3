#include <gtest/gtest.h>

#include <numeric>

#include "kernels/ops/testing/experts.h"

namespace penstock::kernels::testing {
namespace {

// Every token's choices are different experts.
Ints random_choices(Random& random, int64_t tokens, int64_t choices, int32_t experts) {
  Ints all;
  for (int64_t t = 0; t < tokens; ++t) {
    Ints order(experts);
    std::iota(order.begin(), order.end(), 0);
    for (int64_t k = 0; k < choices; ++k) std::swap(order[k], order[random.between(k, experts - 1)]);
    all.insert(all.end(), order.begin(), order.begin() + choices);
  }
  return all;
}

TEST(Dispatch, rows_stand_by_expert_then_token_then_choice) {
  Rig rig;
  Ints expert = {2, 0, 1, 2, 2, 1, 0, 2};  // four tokens, two choices each
  DispatchStorage d(4, 2, 4);
  EXPECT_EQ(rig->plan_dispatch(view(expert, {4, 2}), 0, d.views()), 0);
  EXPECT_EQ(d.offsets, (Ints{0, 2, 4, 8, 8}));
  EXPECT_EQ(d.source, (Ints{1, 6, 2, 5, 0, 3, 4, 7}));
  EXPECT_EQ(d.row, (Ints{4, 0, 2, 5, 6, 3, 1, 7}));
}

TEST(Dispatch, a_full_expert_drops_what_comes_later) {
  Rig rig;
  Ints expert = {2, 0, 1, 2, 2, 1, 0, 2};
  DispatchStorage d(4, 2, 3, 6);  // room for exactly what two an expert leave
  EXPECT_EQ(rig->plan_dispatch(view(expert, {4, 2}), 2, d.views()), 2);
  EXPECT_EQ(d.offsets, (Ints{0, 2, 4, 6}));
  EXPECT_EQ(d.row, (Ints{4, 0, 2, 5, kDropped, 3, 1, kDropped}));
  EXPECT_EQ(d.source, (Ints{1, 6, 2, 5, 0, 3}));
}

TEST(Dispatch, random_plans_are_a_stable_sort_of_the_choices) {
  Rig rig;
  Random random(1600);
  for (int repetition = 0; repetition < 50; ++repetition) {
    const int64_t tokens = random.between(1, 70);
    const auto experts = static_cast<int32_t>(random.between(1, 12));
    const int64_t choices = random.between(1, experts);
    const int64_t capacity = random.between(0, 1) == 0 ? 0 : random.between(1, 20);
    Ints expert = random_choices(random, tokens, choices, experts);
    Ints kept;
    Ints taken(experts);
    for (int32_t c = 0; c < tokens * choices; ++c) {
      if (capacity == 0 || taken[expert[c]]++ < capacity) kept.push_back(c);
    }
    std::stable_sort(kept.begin(), kept.end(), [&](int a, int b) { return expert[a] < expert[b]; });
    DispatchStorage d(tokens, choices, experts);
    const int64_t dropped = rig->plan_dispatch(view(expert, {tokens, choices}), capacity, d.views());
    ASSERT_EQ(dropped, tokens * choices - static_cast<int64_t>(kept.size()));
    ASSERT_EQ(d.offsets.back(), static_cast<int32_t>(kept.size()));
    d.source.resize(kept.size());
    ASSERT_EQ(d.source, kept);
    for (size_t r = 0; r < kept.size(); ++r) ASSERT_EQ(d.row[kept[r]], static_cast<int32_t>(r));
  }
}

struct Case {
  Case(uint32_t seed, int64_t capacity) : random(seed), d(kTokens, kChoices, kExperts) {
    expert = random_choices(random, kTokens, kChoices, kExperts);
    Rig rig;
    rig->plan_dispatch(view(expert, {kTokens, kChoices}), capacity, d.views());
  }
  static constexpr int64_t kTokens = 150, kChoices = 3, kExperts = 6, kWidth = 37;
  Random random;
  Ints expert;
  DispatchStorage d;
};

class DispatchRows : public ::testing::TestWithParam<DataType> {};

TEST_P(DispatchRows, gather_and_combine_are_those_of_a_plain_loop) {
  for (int64_t capacity : {0, 40}) {
    Rig rig;
    Case c(1610, capacity);
    const int64_t rows = c.d.offsets.back();
    Matrix x(c.random.normal(Case::kTokens * Case::kWidth), Case::kWidth, GetParam());
    Floats zeros(Case::kTokens * Case::kChoices * Case::kWidth);
    Matrix gathered(zeros, Case::kWidth, GetParam());
    rig->gather_rows(x.view(), c.d.views(), gathered.view());
    const Floats xs = x.values();
    Floats ys = gathered.values();
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < Case::kWidth; ++i)
        ASSERT_EQ(ys[r * Case::kWidth + i], xs[c.d.source[r] / Case::kChoices * Case::kWidth + i]);
    }

    Matrix y(c.random.normal(Case::kTokens * Case::kChoices * Case::kWidth), Case::kWidth, GetParam());
    ys = y.values();
    Floats weight = c.random.normal(Case::kTokens * Case::kChoices);
    for (bool weighted : {false, true}) {
      for (bool with_added : {false, true}) {
        Matrix output(Case::kTokens, Case::kWidth, GetParam());
        rig->combine_rows(y.view(), c.d.views(),
                          weighted ? view(weight, {Case::kTokens, Case::kChoices}) : TensorView(),
                          with_added ? x.view() : TensorView(), output.view());
        Doubles expected(Case::kTokens * Case::kWidth);
        for (int64_t t = 0; t < Case::kTokens; ++t) {
          for (int64_t i = 0; i < Case::kWidth; ++i) {
            double& to = expected[t * Case::kWidth + i];
            if (with_added) to = xs[t * Case::kWidth + i];
            for (int64_t k = 0; k < Case::kChoices; ++k) {
              const int32_t row = c.d.row[t * Case::kChoices + k];
              if (row == kDropped) continue;
              to += static_cast<double>(ys[row * Case::kWidth + i]) *
                    (weighted ? static_cast<double>(weight[t * Case::kChoices + k]) : 1);
            }
          }
        }
        expect_close(output.values(), expected, GetParam() == DataType::BFloat16 ? kHalfUlp : 1e-6, "output");
      }
    }
  }
}

TEST_P(DispatchRows, bits_do_not_depend_on_threads) {
  Case c(1620, 50);
  const Floats values = c.random.normal(Case::kTokens * Case::kChoices * Case::kWidth);
  Floats weight = c.random.normal(Case::kTokens * Case::kChoices);
  expect_same_bits_for_any_thread_count([&](Operators& ops) {
    Matrix y(values, Case::kWidth, GetParam());
    Matrix output(Case::kTokens, Case::kWidth, GetParam());
    Matrix again(Floats(values.size()), Case::kWidth, GetParam());
    ops.combine_rows(y.view(), c.d.views(), view(weight, {Case::kTokens, Case::kChoices}), {}, output.view());
    ops.gather_rows(output.view(), c.d.views(), again.view());
    return std::vector<Floats>{output.values(), again.values()};
  });
}

TEST(DispatchChoices, go_to_their_rows_and_come_back) {
  Rig rig;
  Case c(1630, 40);
  Floats values = c.random.normal(Case::kTokens * Case::kChoices);
  Floats of_rows(values.size(), NAN), back(values.size(), NAN);
  rig->gather_choices(view(values, {Case::kTokens, Case::kChoices}), c.d.views(),
                      view(of_rows, {static_cast<int64_t>(of_rows.size())}));
  rig->return_choices(view(of_rows, {static_cast<int64_t>(of_rows.size())}), c.d.views(),
                      view(back, {Case::kTokens, Case::kChoices}));
  int dropped = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (c.d.row[i] == kDropped) ++dropped;
    ASSERT_EQ(back[i], c.d.row[i] == kDropped ? 0 : values[i]);
  }
  EXPECT_GT(dropped, 0);
}

INSTANTIATE_TEST_SUITE_P(Types, DispatchRows, ::testing::Values(DataType::Float32, DataType::BFloat16),
                         [](const auto& instance) {
                           return instance.param == DataType::BFloat16 ? "bfloat16" : "float32";
                         });

}  // namespace
}  // namespace penstock::kernels::testing
