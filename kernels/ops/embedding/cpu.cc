#include <cstring>

#include "kernels/ops/cpu/context.h"
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

}  // namespace

void embedding(Context& context, TensorView tokens, TensorView table, TensorView output) {
  const EmbeddingShape shape = embedding_shape(tokens, table, output);
  const int32_t* token = tokens.i32();
  check_tokens(token, shape);
  const float* from = table.f32();
  float* to = output.f32();
  const Partition partition{shape.tokens, kTokens};
  context.parallel_for(partition.pieces(), [&](int64_t piece) {
    const int64_t end = partition.begin(piece) + partition.length(piece);
    for (int64_t t = partition.begin(piece); t < end; ++t) {
      std::memcpy(to + t * shape.hidden, from + token[t] * shape.hidden, shape.hidden * sizeof(float));
    }
  });
}

void embedding_backward(Context& context, TensorView tokens, TensorView output_gradient,
                        TensorView table_gradient) {
  const EmbeddingShape shape = embedding_shape(tokens, table_gradient, output_gradient);
  const int32_t* token = tokens.i32();
  check_tokens(token, shape);
  const float* from = output_gradient.f32();
  float* to = table_gradient.f32();
  const Partition columns{shape.hidden, kColumns};
  context.parallel_for(columns.pieces(), [&](int64_t piece) {
    vectorised([&]() PENSTOCK_INLINE {
      const int64_t first = columns.begin(piece);
      for (int64_t t = 0; t < shape.tokens; ++t) {
        const float* added = from + t * shape.hidden + first;
        float* row = to + token[t] * shape.hidden + first;
        for_each_lanes(columns.length(piece), [&](const auto& lanes, int64_t i) PENSTOCK_INLINE {
          lanes.store(row + i, lanes.load(row + i) + lanes.load(added + i));
        });
      }
    });
  });
}

}  // namespace penstock::kernels::cpu
