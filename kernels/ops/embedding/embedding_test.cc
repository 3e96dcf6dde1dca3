#include <gtest/gtest.h>

#include "kernels/ops/testing/reference.h"

namespace penstock::kernels::testing {
namespace {

TEST(Embedding, rows_are_looked_up) {
  Rig rig;
  Random random(500);
  const int64_t tokens = 131, vocabulary = 19, hidden = 37;
  Floats table = random.normal(vocabulary * hidden);
  std::vector<int32_t> token = random.below(vocabulary, tokens);
  Floats y(tokens * hidden, NAN);
  rig->embedding(view(token), view(table, {vocabulary, hidden}), view(y, {tokens, hidden}));
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t h = 0; h < hidden; ++h) ASSERT_EQ(y[t * hidden + h], table[token[t] * hidden + h]);
  }
}

TEST(Embedding, gradients_are_added_in_token_order) {
  // A byte vocabulary repeats each token many times: the order of the additions is part of the bits.
  Rig rig;
  Random random(510);
  for (int64_t hidden : {1, 16, 130, 300}) {
    const int64_t tokens = 200, vocabulary = 11;
    std::vector<int32_t> token = random.below(vocabulary, tokens);
    Floats dy = random.normal(tokens * hidden);
    Floats gradient = random.normal(vocabulary * hidden);
    Floats expected = gradient;
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t h = 0; h < hidden; ++h) expected[token[t] * hidden + h] += dy[t * hidden + h];
    }
    rig->embedding_backward(view(token), view(dy, {tokens, hidden}), view(gradient, {vocabulary, hidden}));
    EXPECT_EQ(gradient, expected);
  }
}

TEST(Embedding, bfloat16_rows_are_rounded_and_their_gradients_added_in_float32) {
  Rig rig;
  Random random(530);
  const int64_t tokens = 70, vocabulary = 9, hidden = 37;
  Floats table = random.normal(vocabulary * hidden);
  std::vector<int32_t> token = random.below(vocabulary, tokens);
  Halves y(tokens * hidden);
  rig->embedding(view(token), view(table, {vocabulary, hidden}), y.view({tokens, hidden}));
  Floats dy = random.normal(tokens * hidden);
  Halves narrow(dy);
  Floats gradient(vocabulary * hidden, 0), expected(vocabulary * hidden, 0);
  rig->embedding_backward(view(token), narrow.view({tokens, hidden}), view(gradient, {vocabulary, hidden}));
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t h = 0; h < hidden; ++h) {
      ASSERT_EQ(y.widened()[t * hidden + h], rounded_to_bfloat16(table[token[t] * hidden + h]));
      expected[token[t] * hidden + h] += dy[t * hidden + h];
    }
  }
  EXPECT_EQ(gradient, expected);
}

TEST(Embedding, bits_do_not_depend_on_threads) {
  Random random(520);
  Floats dy = random.normal(300 * 400);
  std::vector<int32_t> token = random.below(5, 300);
  expect_same_bits_for_any_thread_count([&](Operators& ops) {
    Floats gradient(5 * 400, 1);
    ops.embedding_backward(view(token), view(dy, {300, 400}), view(gradient, {5, 400}));
    return std::vector<Floats>{gradient};
  });
}

TEST(EmbeddingDeathTest, token_outside_the_table_stops_the_process) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  std::vector<int32_t> token = {0, 3, -1};
  Floats table(4 * 2);
  Floats y(3 * 2);
  EXPECT_DEATH(
      {
        Rig rig(1);
        rig->embedding(view(token), view(table, {4, 2}), view(y, {3, 2}));
      },
      "token -1 at 2, vocabulary of 4");
}

}  // namespace
}  // namespace penstock::kernels::testing
