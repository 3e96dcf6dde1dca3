// Brings the rows of tokens to their experts and back.
//
//   plan      counts the choices of each expert and gives each a row: expert after expert, by token, then by choice.
//             Where an expert has a capacity, its choices after the first `capacity` are dropped.
//   gather    rows[r] = x[source[r] / K]: the payload, and in the backward the gradients of the experts' outputs
//   combine   output[t] = added[t] + sum_k weight[t, k] rows[row[t, k]], in float32, in the order of the choices,
//             rounded once; dropped choices add nothing. Without weights it is the backward of gather.
//   gather_choices, return_choices   the same with one float32 of each choice; a dropped one gets 0.
//
// Every row and every token is written by one piece and sums have the token's own order: the bits depend on neither
// the threads nor the other tokens. Rows after the last one in use keep what they hold.
#pragma once

#include "kernels/ops/expect.h"
#include "kernels/ops/routing.h"

namespace penstock::kernels {

struct DispatchShape {
  int64_t tokens = 0;
  int64_t choices = 0;
  int64_t experts = 0;
  int64_t most_rows = 0;
};
inline DispatchShape dispatch_shape(const Dispatch& dispatch) {
  const DispatchShape shape{dispatch.row.size(0), dispatch.row.size(1), dispatch.offsets.elements() - 1,
                            dispatch.source.elements()};
  expect_matrix(dispatch.row, shape.tokens, shape.choices, "row of the choices", DataType::Int32);
  expect_elements(dispatch.source, shape.most_rows, "source of the rows", DataType::Int32);
  expect_elements(dispatch.offsets, shape.experts + 1, "offsets of the experts", DataType::Int32);
  return shape;
}
// Of a planned dispatch.
inline int64_t rows_in_use(const Dispatch& dispatch) {
  return dispatch.offsets.i32()[dispatch.offsets.elements() - 1];
}

namespace cpu {
class Context;
int64_t plan_dispatch(TensorView expert, int64_t capacity, const Dispatch& dispatch);
void gather_rows(Context& context, TensorView x, const Dispatch& dispatch, TensorView rows);
void combine_rows(Context& context, TensorView rows, const Dispatch& dispatch, TensorView weight,
                  TensorView added, TensorView output);
void gather_choices(TensorView values, const Dispatch& dispatch, TensorView of_rows);
void return_choices(TensorView of_rows, const Dispatch& dispatch, TensorView values);
}  // namespace cpu

}  // namespace penstock::kernels
