#include <gtest/gtest.h>

#include "kernels/ops/testing/reference.h"

namespace penstock::kernels::testing {
namespace {

struct Reference {
  Doubles output;
  Doubles log_sum_exp;
};

// Head by head, query by query, with all scores of a query at once. `starts` [T], or empty.
Reference reference(const AttentionShape& s, const Doubles& q, const Doubles& k, const Doubles& v,
                    const std::vector<int32_t>& starts = {}) {
  const int64_t width = s.head_size;
  Reference result{Doubles(q.size()), Doubles(s.sequences * s.query_heads * s.sequence_length)};
  for (int64_t b = 0; b < s.sequences; ++b) {
    for (int64_t h = 0; h < s.query_heads; ++h) {
      const int64_t kv = h / (s.query_heads / s.key_value_heads);
      for (int64_t i = 0; i < s.sequence_length; ++i) {
        const int64_t row = ((b * s.sequence_length + i) * s.query_heads + h) * width;
        const int64_t start = starts.empty() ? 0 : starts[b * s.sequence_length + i];
        Doubles score(i + 1);
        double largest = -INFINITY;
        for (int64_t j = start; j <= i; ++j) {
          const int64_t key = ((b * s.sequence_length + j) * s.key_value_heads + kv) * width;
          for (int64_t d = 0; d < width; ++d) score[j] += q[row + d] * k[key + d];
          score[j] /= std::sqrt(static_cast<double>(width));
          largest = std::max(largest, score[j]);
        }
        double sum = 0;
        for (int64_t j = start; j <= i; ++j) sum += std::exp(score[j] - largest);
        const double log_sum_exp = largest + std::log(sum);
        result.log_sum_exp[(b * s.query_heads + h) * s.sequence_length + i] = log_sum_exp;
        for (int64_t j = start; j <= i; ++j) {
          const int64_t key = ((b * s.sequence_length + j) * s.key_value_heads + kv) * width;
          for (int64_t d = 0; d < width; ++d) {
            result.output[row + d] += std::exp(score[j] - log_sum_exp) * v[key + d];
          }
        }
      }
    }
  }
  return result;
}

// One call forward and backward on random tensors.
struct Case {
  Case(const AttentionShape& of, uint32_t seed, float scale = 1)
      : shape(of), tokens(of.sequences * of.sequence_length) {
    Random random(seed);
    const int64_t query_elements = tokens * shape.query_heads * shape.head_size;
    const int64_t key_elements = tokens * shape.key_value_heads * shape.head_size;
    q = random.normal(query_elements, scale);
    k = random.normal(key_elements, scale);
    v = random.normal(key_elements);
    dy = random.normal(query_elements);
    y = dq = Floats(query_elements, NAN);
    dk = dv = Floats(key_elements, NAN);
    log_sum_exp = Floats(shape.sequences * shape.query_heads * shape.sequence_length, NAN);
  }

  TensorView queries(Floats& values) const {
    return view(values, {tokens, shape.query_heads * shape.head_size});
  }
  TensorView keys(Floats& values) const {
    return view(values, {tokens, shape.key_value_heads * shape.head_size});
  }

  void forward(Operators& ops) {
    ops.attention(shape, queries(q), keys(k), keys(v), queries(y),
                  view(log_sum_exp, {shape.sequences * shape.query_heads * shape.sequence_length}),
                  document_starts());
  }
  void backward(Operators& ops) {
    ops.attention_backward(shape, queries(q), keys(k), keys(v), queries(y),
                           view(log_sum_exp, {shape.sequences * shape.query_heads * shape.sequence_length}),
                           queries(dy), queries(dq), keys(dk), keys(dv), document_starts());
  }
  TensorView document_starts() { return starts.empty() ? TensorView() : view(starts); }

  AttentionShape shape;
  int64_t tokens;
  Floats q, k, v, y, log_sum_exp, dy, dq, dk, dv;
  std::vector<int32_t> starts;  // empty: one document a sequence
};

// sequences, sequence length, query heads, key/value heads, head size: one tile, some tiles, a ragged last
// tile, groups of 1, 2, 3, 4 and 8, head sizes below and off the width of a register.
constexpr AttentionShape kShapes[] = {{1, 1, 1, 1, 2},   {2, 5, 2, 1, 4},   {1, 64, 2, 2, 32},
                                      {2, 65, 4, 2, 8},  {1, 130, 2, 2, 6}, {1, 97, 6, 2, 16},
                                      {2, 33, 4, 1, 12}, {1, 70, 8, 1, 20}, {3, 17, 3, 3, 64}};

TEST(Attention, output_and_log_sum_exp_are_those_of_the_reference) {
  Rig rig;
  uint32_t seed = 10;
  for (const AttentionShape& shape : kShapes) {
    Case c(shape, ++seed);
    c.forward(*rig.ops);
    const Reference expected = reference(shape, widen(c.q), widen(c.k), widen(c.v));
    expect_close(c.y, expected.output, 1e-5, "output");
    expect_close(c.log_sum_exp, expected.log_sum_exp, 1e-5, "log_sum_exp");
  }
}

TEST(Attention, gradients_are_those_of_the_reference) {
  Rig rig;
  uint32_t seed = 30;
  for (const AttentionShape& shape : kShapes) {
    Case c(shape, ++seed);
    c.forward(*rig.ops);
    c.backward(*rig.ops);
    Doubles q = widen(c.q);
    Doubles k = widen(c.k);
    Doubles v = widen(c.v);
    const auto loss = [&] { return dot(reference(shape, q, k, v).output, c.dy); };
    expect_gradient(loss, q, c.dq, "query_gradient");
    expect_gradient(loss, k, c.dk, "key_gradient");
    expect_gradient(loss, v, c.dv, "value_gradient");
  }
}

TEST(Attention, gradients_may_overwrite_their_inputs) {
  Rig rig;
  uint32_t seed = 60;
  for (const AttentionShape& shape : kShapes) {
    Case c(shape, ++seed);
    c.forward(*rig.ops);
    c.backward(*rig.ops);
    Floats q = c.q, k = c.k, v = c.v;
    rig->attention_backward(
        shape, c.queries(q), c.keys(k), c.keys(v), c.queries(c.y),
        view(c.log_sum_exp, {shape.sequences * shape.query_heads * shape.sequence_length}), c.queries(c.dy),
        c.queries(q), c.keys(k), c.keys(v));
    EXPECT_EQ(q, c.dq);
    EXPECT_EQ(k, c.dk);
    EXPECT_EQ(v, c.dv);
  }
}

TEST(Attention, bfloat16_columns_of_one_matrix_are_those_of_the_reference) {
  // Query, key and value are the columns of one product's output, and so are their gradients.
  Rig rig;
  const AttentionShape shape{2, 97, 6, 2, 16};
  Case c(shape, 90);
  const int64_t wide = (6 + 2 + 2) * 16;
  Floats together(c.tokens * wide);
  const auto place = [&](Floats& values, int64_t first, int64_t width) {
    Halves rounds(values);
    for (int64_t t = 0; t < c.tokens; ++t)
      std::copy_n(&values[t * width], width, &together[t * wide + first]);
  };
  place(c.q, 0, 96);
  place(c.k, 96, 32);
  place(c.v, 128, 32);
  Halves in(together), gradients(c.tokens * wide), y(c.tokens * 96), dy(c.dy);
  const auto columns = [&](Halves& of, int64_t first, int64_t width) {
    return of.view({c.tokens, wide}).columns(first, width);
  };
  const TensorView sums = view(c.log_sum_exp, {2 * 6 * 97});
  rig->attention(shape, columns(in, 0, 96), columns(in, 96, 32), columns(in, 128, 32), y.view({c.tokens, 96}),
                 sums);
  rig->attention_backward(shape, columns(in, 0, 96), columns(in, 96, 32), columns(in, 128, 32),
                          y.view({c.tokens, 96}), sums, dy.view({c.tokens, 96}), columns(gradients, 0, 96),
                          columns(gradients, 96, 32), columns(gradients, 128, 32));
  Doubles q = widen(c.q), k = widen(c.k), v = widen(c.v);
  const Reference expected = reference(shape, q, k, v);
  expect_close(y.widened(), expected.output, 2 * kHalfUlp, "output");
  expect_close(c.log_sum_exp, expected.log_sum_exp, 1e-5, "log_sum_exp");  // of float32 scores
  const Floats all = gradients.widened();
  const auto part = [&](int64_t first, int64_t width) {
    Floats values;
    for (int64_t t = 0; t < c.tokens; ++t) {
      values.insert(values.end(), &all[t * wide + first], &all[t * wide + first] + width);
    }
    return values;
  };
  const auto loss = [&] { return dot(reference(shape, q, k, v).output, c.dy); };
  expect_gradient(loss, q, part(0, 96), "query_gradient", 4 * kHalfUlp);
  expect_gradient(loss, k, part(96, 32), "key_gradient", 4 * kHalfUlp);
  expect_gradient(loss, v, part(128, 32), "value_gradient", 4 * kHalfUlp);
}

// Documents of 1 to 40 tokens, so that they begin off the edges of registers and tiles.
std::vector<int32_t> random_documents(const AttentionShape& shape, uint32_t seed) {
  Random random(seed);
  std::vector<int32_t> starts;
  for (int64_t s = 0; s < shape.sequences; ++s) {
    int64_t left = 0;
    int32_t start = 0;
    for (int32_t i = 0; i < shape.sequence_length; ++i, --left) {
      if (left == 0) {
        start = i;
        left = random.between(1, 40);
      }
      starts.push_back(start);
    }
  }
  return starts;
}

TEST(Attention, with_documents_output_and_gradients_are_those_of_the_reference) {
  Rig rig;
  uint32_t seed = 80;
  for (const AttentionShape& shape : kShapes) {
    Case c(shape, ++seed);
    c.starts = random_documents(shape, seed);
    c.forward(*rig.ops);
    c.backward(*rig.ops);
    Doubles q = widen(c.q);
    Doubles k = widen(c.k);
    Doubles v = widen(c.v);
    const Reference expected = reference(shape, q, k, v, c.starts);
    expect_close(c.y, expected.output, 1e-5, "output");
    expect_close(c.log_sum_exp, expected.log_sum_exp, 1e-5, "log_sum_exp");
    const auto loss = [&] { return dot(reference(shape, q, k, v, c.starts).output, c.dy); };
    expect_gradient(loss, q, c.dq, "query_gradient");
    expect_gradient(loss, k, c.dk, "key_gradient");
    expect_gradient(loss, v, c.dv, "value_gradient");
  }
}

TEST(Attention, a_token_sees_nothing_of_the_document_before) {
  // Packed documents must not leak into each other, in neither direction.
  Rig rig;
  Case c({1, 90, 2, 1, 8}, 95);
  c.starts.assign(90, 0);
  const int64_t second = 37;
  for (int64_t i = second; i < 90; ++i) c.starts[i] = second;
  c.forward(*rig.ops);
  c.backward(*rig.ops);
  Case changed = c;
  for (int64_t i = 0; i < second * 8; ++i) changed.k[i] = changed.v[i] = 1e30f;
  changed.forward(*rig.ops);
  EXPECT_EQ(std::memcmp(&c.y[second * 16], &changed.y[second * 16], (90 - second) * 16 * sizeof(float)), 0);
  changed = c;
  for (int64_t i = second * 16; i < 90 * 16; ++i) changed.dy[i] += 3;
  changed.backward(*rig.ops);
  EXPECT_EQ(std::memcmp(c.dk.data(), changed.dk.data(), second * 8 * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(c.dv.data(), changed.dv.data(), second * 8 * sizeof(float)), 0);
}

TEST(Attention, one_document_a_sequence_is_the_same_as_no_documents) {
  Rig rig;
  Case plain({2, 70, 2, 1, 8}, 97);
  Case documents = plain;
  documents.starts.assign(140, 0);
  for (Case* each : {&plain, &documents}) {
    each->forward(*rig.ops);
    each->backward(*rig.ops);
  }
  EXPECT_EQ(plain.y, documents.y);
  EXPECT_EQ(plain.dq, documents.dq);
  EXPECT_EQ(plain.dk, documents.dk);
  EXPECT_EQ(plain.dv, documents.dv);
}

TEST(AttentionDeathTest, a_document_that_starts_after_its_token_stops_the_process) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Case c({1, 3, 1, 1, 4}, 98);
  c.starts = {0, 2, 2};
  EXPECT_DEATH(
      {
        Rig rig(1);
        c.forward(*rig.ops);
      },
      "document start 2 of token 1, position 1");
}

TEST(Attention, large_scores_stay_finite) {
  // Scores of several hundred overflow exp() unless the largest is taken off first.
  Rig rig;
  Case c({1, 80, 2, 1, 16}, 50, 12);
  c.forward(*rig.ops);
  c.backward(*rig.ops);
  const Reference expected = reference(c.shape, widen(c.q), widen(c.k), widen(c.v));
  expect_close(c.y, expected.output, 1e-4, "output");
  for (const Floats* each : {&c.dq, &c.dk, &c.dv}) {
    for (float value : *each) ASSERT_TRUE(std::isfinite(value));
  }
}

TEST(Attention, a_token_sees_no_later_one_and_no_other_sequence) {
  // A leak from the future makes the loss look good and the model useless.
  Rig rig;
  Case c({2, 70, 2, 1, 8}, 60);
  c.forward(*rig.ops);
  Case changed = c;
  const int64_t first_changed = 40;  // in the first of two sequences; the second changes whole
  for (int64_t i = first_changed * 8; i < c.tokens * 8; ++i) {
    changed.k[i] += 1;
    changed.v[i] -= 5;
  }
  changed.forward(*rig.ops);
  EXPECT_EQ(std::memcmp(c.y.data(), changed.y.data(), first_changed * 16 * sizeof(float)), 0);
  for (int64_t i = first_changed * 16; i < c.tokens * 16; ++i) EXPECT_NE(c.y[i], changed.y[i]) << i;
}

TEST(Attention, bits_do_not_depend_on_threads_or_on_the_other_sequences) {
  // Microbatches of another size must give a sequence the same bits.
  Case four({4, 75, 4, 2, 16}, 70);
  expect_same_bits_for_any_thread_count([&](Operators& ops) {
    Case c = four;
    c.forward(ops);
    c.backward(ops);
    return std::vector<Floats>{c.y, c.log_sum_exp, c.dq, c.dk, c.dv};
  });

  Rig rig;
  four.forward(*rig.ops);
  four.backward(*rig.ops);
  Case last({1, 75, 4, 2, 16}, 71);
  for (auto [whole, part] :
       {std::pair(&four.q, &last.q), {&four.k, &last.k}, {&four.v, &last.v}, {&four.dy, &last.dy}}) {
    std::copy(whole->end() - static_cast<int64_t>(part->size()), whole->end(), part->begin());
  }
  last.forward(*rig.ops);
  last.backward(*rig.ops);
  for (auto [whole, part] :
       {std::pair(&four.y, &last.y), {&four.dq, &last.dq}, {&four.dk, &last.dk}, {&four.dv, &last.dv}}) {
    EXPECT_TRUE(std::equal(part->begin(), part->end(), whole->end() - static_cast<int64_t>(part->size())));
  }
}

}  // namespace
}  // namespace penstock::kernels::testing
