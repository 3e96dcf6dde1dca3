// Embedding: a row of the table for each token.
//
//   output[t] = table[tokens[t]], rounded to the output's type
//   backward: table_gradient[tokens[t]] += output_gradient[t], in token order
//
// Order: one token after the other in each column, so a token that occurs twice adds its gradients in that
// order. A token outside the table stops the process: the data reader has checked them.
#pragma once

#include "kernels/ops/expect.h"

namespace penstock::kernels {

struct EmbeddingShape {
  int64_t tokens = 0;
  int64_t vocabulary = 0;
  int64_t hidden = 0;
};

// tokens [T] i32, table (or its gradient) [vocabulary, hidden], rows (output or its gradient) [T, hidden].
inline EmbeddingShape embedding_shape(const TensorView& tokens, const TensorView& table,
                                      const TensorView& rows) {
  const EmbeddingShape shape{tokens.elements(), table.size(0), table.size(1)};
  expect_elements(tokens, shape.tokens, "tokens", DataType::Int32);
  expect_matrix(table, shape.vocabulary, shape.hidden, "table");
  expect_matrix(rows, shape.tokens, shape.hidden, "rows of the embedding", rows.type());
  return shape;
}

namespace cpu {
class Context;
void embedding(Context& context, TensorView tokens, TensorView table, TensorView output);
void embedding_backward(Context& context, TensorView tokens, TensorView output_gradient,
                        TensorView table_gradient);
}  // namespace cpu

}  // namespace penstock::kernels
