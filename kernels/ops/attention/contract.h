// Causal grouped-query attention; query head h reads key/value head h / group, group = query_heads /
// key_value_heads.
//
//   s[i, j] = q[i] . k[j] / sqrt(head_size) for document_start[i] <= j <= i in the same sequence
//   log_sum_exp[i] = log sum_j exp(s[i, j]);  p[i, j] = exp(s[i, j] - log_sum_exp[i])
//   output[i] = sum_j p[i, j] v[j]
//   backward, with dp[i, j] = do[i] . v[j] and delta[i] = do[i] . output[i]:
//     ds[i, j] = p[i, j] (dp[i, j] - delta[i]) / sqrt(head_size)
//     dq[i] = sum_j ds[i, j] k[j],  dk[j] = sum_i ds[i, j] q[i],  dv[j] = sum_i p[i, j] do[i]
//
// Source: Dao et al., FlashAttention (2022): probabilities are computed again from log_sum_exp. Scores exist
// for a tile of queries at a time, never for all. Order: one piece is one (sequence, key/value head); in it
// the tiles of queries are taken in order, each with all the query heads of the group, so that dk and dv are
// sums in a fixed order. With bfloat16 the scores, their softmax and all sums are float32; p and ds are rounded
// for the products that read them. A document start outside 0 .. i stops the process: the data reader has made them.
#pragma once

#include "kernels/ops/expect.h"
#include "kernels/ops/operators.h"

namespace penstock::kernels {

// query (output, their gradients) [T, query_heads x head_size], key (value) [T, key_value_heads x head_size], each
// perhaps some columns of a wider matrix, all of one type; log_sum_exp [sequences, query_heads, sequence_length].
inline void expect_attention(const AttentionShape& shape, const TensorView& query, const TensorView& key) {
  PENSTOCK_CHECK(shape.key_value_heads > 0 && shape.query_heads % shape.key_value_heads == 0,
                 "{} query heads over {} key/value heads", shape.query_heads, shape.key_value_heads);
  const int64_t tokens = shape.sequences * shape.sequence_length;
  expect_columns(query, tokens, shape.query_heads * shape.head_size, "query", query.type());
  expect_columns(key, tokens, shape.key_value_heads * shape.head_size, "key or value", query.type());
}

// [T] i32, each at most its token's own position; or empty.
inline void expect_document_starts(const AttentionShape& shape, const TensorView& starts) {
  if (starts.empty()) return;
  expect_elements(starts, shape.sequences * shape.sequence_length, "document_starts", DataType::Int32);
  for (int64_t t = 0; t < starts.elements(); ++t) {
    const int64_t position = t % shape.sequence_length;
    PENSTOCK_CHECK(starts.i32()[t] >= 0 && starts.i32()[t] <= position,
                   "document start {} of token {}, position {}", starts.i32()[t], t, position);
  }
}

namespace cpu {
class Context;
void attention(Context& context, const AttentionShape& shape, TensorView query, TensorView key,
               TensorView value, TensorView output, TensorView log_sum_exp, TensorView document_starts);
void attention_backward(Context& context, const AttentionShape& shape, TensorView query, TensorView key,
                        TensorView value, TensorView output, TensorView log_sum_exp,
                        TensorView output_gradient, TensorView query_gradient, TensorView key_gradient,
                        TensorView value_gradient, TensorView document_starts);
}  // namespace cpu

}  // namespace penstock::kernels
