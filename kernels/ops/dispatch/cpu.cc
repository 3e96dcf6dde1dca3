#include <algorithm>
#include <cstring>

#include "kernels/ops/cpu/context.h"
#include "kernels/ops/cpu/elements.h"
#include "kernels/ops/cpu/lanes.h"
#include "kernels/ops/cpu/partition.h"
#include "kernels/ops/dispatch/contract.h"

namespace penstock::kernels::cpu {
namespace {

constexpr int64_t kRows = 64;
constexpr int64_t kTokens = 16;

// row [choices] = kDropped where the expert is full, offsets[e + 1] = the rows of e. Returns what was dropped.
int64_t count_rows(const int32_t* expert, int64_t choices, int64_t experts, int64_t capacity, int32_t* row,
                   int32_t* offsets) {
  std::fill(offsets, offsets + experts + 1, 0);
  int64_t dropped = 0;
  for (int64_t c = 0; c < choices; ++c) {
    PENSTOCK_CHECK(expert[c] >= 0 && expert[c] < experts, "choice {} is expert {} of {}", c, expert[c],
                   experts);
    int32_t& count = offsets[expert[c] + 1];
    const bool full = capacity > 0 && count >= capacity;
    row[c] = full ? kDropped : 0;
    full ? ++dropped : ++count;
  }
  return dropped;
}

// Of one token: where its choices stand, their weights or null.
template <typename Element>
struct Combined {
  const Element* rows;
  int64_t width;
  const int32_t* row;
  const float* weight;
  int64_t choices;
  const Element* added;
  Element* output;
};

template <typename Element>
PENSTOCK_INLINE inline void combine_token(const Combined<Element>& token) {
  for_each_lanes(token.width, [&](const auto& lanes, int64_t i) PENSTOCK_INLINE {
    Lanes total{};
    for (int64_t k = 0; k < token.choices; ++k) {
      if (token.row[k] == kDropped) continue;
      const Lanes value = lanes.load(token.rows + token.row[k] * token.width + i);
      total += token.weight == nullptr ? value : value * token.weight[k];
    }
    lanes.store(token.output + i, token.added == nullptr ? total : lanes.load(token.added + i) + total);
  });
}

}  // namespace

int64_t plan_dispatch(TensorView expert, int64_t capacity, const Dispatch& dispatch) {
  const DispatchShape shape = dispatch_shape(dispatch);
  expect_matrix(expert, shape.tokens, shape.choices, "expert", DataType::Int32);
  const int64_t choices = shape.tokens * shape.choices;
  int32_t* const row = dispatch.row.i32();
  int32_t* const offsets = dispatch.offsets.i32();
  const int64_t dropped = count_rows(expert.i32(), choices, shape.experts, capacity, row, offsets);
  for (int64_t e = 0; e < shape.experts; ++e) offsets[e + 1] += offsets[e];
  PENSTOCK_CHECK(offsets[shape.experts] <= shape.most_rows, "{} rows, place for {}", offsets[shape.experts],
                 shape.most_rows);
  // Each offset runs through its expert's rows and ends where the next one's begin.
  for (int64_t c = 0; c < choices; ++c) {
    if (row[c] == kDropped) continue;
    row[c] = offsets[expert.i32()[c]]++;
    dispatch.source.i32()[row[c]] = static_cast<int32_t>(c);
  }
  for (int64_t e = shape.experts; e > 0; --e) offsets[e] = offsets[e - 1];
  offsets[0] = 0;
  return dropped;
}

void gather_rows(Context& context, TensorView x, const Dispatch& dispatch, TensorView rows) {
  const DispatchShape shape = dispatch_shape(dispatch);
  expect_matrix(x, shape.tokens, x.size(1), "x", x.type());
  expect_matrix(rows, shape.most_rows, x.size(1), "rows of the experts", x.type());
  const auto* const from = static_cast<const char*>(x.data());
  auto* const to = static_cast<char*>(rows.data());
  const int64_t bytes = x.size(1) * size_bytes(x.type());
  const Partition partition{rows_in_use(dispatch), kRows};
  context.parallel_for(partition.pieces(), [&](int64_t piece) {
    const int64_t end = partition.begin(piece) + partition.length(piece);
    for (int64_t r = partition.begin(piece); r < end; ++r) {
      std::memcpy(to + r * bytes, from + dispatch.source.i32()[r] / shape.choices * bytes,
                  static_cast<size_t>(bytes));
    }
  });
}

void combine_rows(Context& context, TensorView rows, const Dispatch& dispatch, TensorView weight,
                  TensorView added, TensorView output) {
  const DispatchShape shape = dispatch_shape(dispatch);
  const int64_t width = output.size(1);
  expect_matrix(rows, shape.most_rows, width, "rows of the experts", output.type());
  expect_matrix(output, shape.tokens, width, "output", output.type());
  if (!weight.empty()) expect_matrix(weight, shape.tokens, shape.choices, "weight of the choices");
  if (!added.empty()) expect_matrix(added, shape.tokens, width, "added", output.type());
  const Partition partition{shape.tokens, kTokens};
  with_element(output.type(), [&](auto element) {
    using Element = decltype(element);
    context.parallel_for(partition.pieces(), [&](int64_t piece) {
      vectorised([&]() PENSTOCK_INLINE {
        const int64_t end = partition.begin(piece) + partition.length(piece);
        for (int64_t t = partition.begin(piece); t < end; ++t) {
          combine_token<Element>({.rows = data<Element>(rows),
                                  .width = width,
                                  .row = dispatch.row.i32() + t * shape.choices,
                                  .weight = weight.empty() ? nullptr : weight.f32() + t * shape.choices,
                                  .choices = shape.choices,
                                  .added = added.empty() ? nullptr : data<Element>(added) + t * width,
                                  .output = data<Element>(output) + t * width});
        }
      });
    });
  });
}

void gather_choices(TensorView values, const Dispatch& dispatch, TensorView of_rows) {
  const DispatchShape shape = dispatch_shape(dispatch);
  expect_matrix(values, shape.tokens, shape.choices, "values of the choices");
  expect_elements(of_rows, shape.most_rows, "values of the rows");
  for (int64_t r = 0; r < rows_in_use(dispatch); ++r) {
    of_rows.f32()[r] = values.f32()[dispatch.source.i32()[r]];
  }
}

void return_choices(TensorView of_rows, const Dispatch& dispatch, TensorView values) {
  const DispatchShape shape = dispatch_shape(dispatch);
  expect_matrix(values, shape.tokens, shape.choices, "values of the choices");
  expect_elements(of_rows, shape.most_rows, "values of the rows");
  for (int64_t c = 0; c < shape.tokens * shape.choices; ++c) {
    const int32_t row = dispatch.row.i32()[c];
    values.f32()[c] = row == kDropped ? 0 : of_rows.f32()[row];
  }
}

}  // namespace penstock::kernels::cpu
