#include "kernels/ops/cpu/context.h"
#include "kernels/ops/cpu/elements.h"
#include "kernels/ops/cpu/lanes.h"
#include "kernels/ops/cpu/partition.h"
#include "kernels/ops/embedding/contract.h"

namespace penstock::kernels::cpu {
namespace {

constexpr int64_t kTokens = 64;    // forward: a piece is some tokens
constexpr int64_t kColumns = 128;  // backward: a piece is some columns of all tokens

void check_tokens(const int32_t* tokens, const EmbeddingShape& shape) {
  for (int64_t t = 0; t < shape.tokens; ++t) {
    PENSTOCK_CHECK(tokens[t] >= 0 && tokens[t] < shape.vocabulary, "token {} at {}, vocabulary of {}",
                   tokens[t], t, shape.vocabulary);
  }
}

template <typename Element>
void lookup(Context& context, const EmbeddingShape& shape, const int32_t* token, const float* table,
            Element* output) {
  const Partition partition{shape.tokens, kTokens};
  context.parallel_for(partition.pieces(), [&](int64_t piece) {
    vectorised([&]() PENSTOCK_INLINE {
      const int64_t end = partition.begin(piece) + partition.length(piece);
      for (int64_t t = partition.begin(piece); t < end; ++t) {
        const float* from = table + token[t] * shape.hidden;
        Element* to = output + t * shape.hidden;
        for_each_lanes(shape.hidden, [&](const auto& lanes, int64_t i)
                                         PENSTOCK_INLINE { lanes.store(to + i, lanes.load(from + i)); });
      }
    });
  });
}

template <typename Element>
void add_rows(Context& context, const EmbeddingShape& shape, const int32_t* token,
              const Element* output_gradient, float* table_gradient) {
  const Partition columns{shape.hidden, kColumns};
  context.parallel_for(columns.pieces(), [&](int64_t piece) {
    vectorised([&]() PENSTOCK_INLINE {
      const int64_t first = columns.begin(piece);
      for (int64_t t = 0; t < shape.tokens; ++t) {
        const Element* added = output_gradient + t * shape.hidden + first;
        float* row = table_gradient + token[t] * shape.hidden + first;
        for_each_lanes(columns.length(piece), [&](const auto& lanes, int64_t i) PENSTOCK_INLINE {
          lanes.store(row + i, lanes.load(row + i) + lanes.load(added + i));
        });
      }
    });
  });
}

}  // namespace

void embedding(Context& context, TensorView tokens, TensorView table, TensorView output) {
  const EmbeddingShape shape = embedding_shape(tokens, table, output);
  check_tokens(tokens.i32(), shape);
  with_element(output.type(), [&](auto element) {
    lookup(context, shape, tokens.i32(), table.f32(), data<decltype(element)>(output));
  });
}

void embedding_backward(Context& context, TensorView tokens, TensorView output_gradient,
                        TensorView table_gradient) {
  const EmbeddingShape shape = embedding_shape(tokens, table_gradient, output_gradient);
  check_tokens(tokens.i32(), shape);
  with_element(output_gradient.type(), [&](auto element) {
    add_rows(context, shape, tokens.i32(), data<decltype(element)>(output_gradient), table_gradient.f32());
  });
}

}  // namespace penstock::kernels::cpu
