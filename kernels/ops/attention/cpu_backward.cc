#include "kernels/ops/attention/contract.h"
#include "kernels/ops/attention/cpu.h"

namespace penstock::kernels::cpu {
namespace {

// Where a thread keeps its dense copies, the gradients of its keys and values, and its tile.
struct Places {
  explicit Places(const AttentionPlan& plan) {
    const int64_t keys = plan.all_keys();
    const int64_t rows = plan.largest_tile_rows();
    for (int64_t* of_keys : {&key, &value, &key_gradient, &value_gradient}) {
      *of_keys = layout.add(keys * plan.shape.head_size);
    }
    for (int64_t* of_tile : {&query, &output, &output_gradient, &query_gradient}) {
      *of_tile = layout.add(rows * plan.shape.head_size);
    }
    probabilities = layout.add(rows * keys);
    score_gradient = layout.add(rows * keys);
  }
  ScratchLayout layout;
  int64_t key, value, key_gradient, value_gradient;
  int64_t query, output, output_gradient, query_gradient;
  int64_t probabilities, score_gradient;
};

struct Backward {
  const float* query;
  const float* key;
  const float* value;
  const float* output;
  const float* log_sum_exp;
  const float* output_gradient;
  float* query_gradient;
  float* key_gradient;
  float* value_gradient;
  const int32_t* document_starts;  // null: one document a sequence
};

// One row of scores: the scores become probabilities, the gradients of the probabilities those of the scores.
// What the mask hides becomes zero in both.
struct ScoreRow {
  float* scores;
  float* gradients;
  Visible keys;
  int64_t all;  // keys of the row
  float log_sum_exp;
  float delta;  // output gradient . output
};

PENSTOCK_INLINE inline void row_backward(const ScoreRow& row, float scale) {
  hide_scores(row.scores, row.keys);
  for (int64_t j = row.keys.first(); j <= row.keys.last(); j += kLanes) {
    const Lanes p = exp(load(row.scores + j) * scale - row.log_sum_exp);
    const Lanes gradient = p * (load(row.gradients + j) - row.delta) * scale;
    store(row.scores + j, p);
    store(row.gradients + j, gradient);
  }
  zero_hidden(row.scores, row.keys, row.all);
  zero_hidden(row.gradients, row.keys, row.all);
}

void backward_tile(Context& context, const AttentionPlan& plan, const Places& places, const Backward& tensors,
                   const AttentionPiece& piece, int64_t tile) {
  float* const scratch = context.thread_scratch();
  float* const query = scratch + places.query;
  float* const output = scratch + places.output;
  float* const output_gradient = scratch + places.output_gradient;
  float* const probabilities = scratch + places.probabilities;
  float* const score_gradient = scratch + places.score_gradient;
  const int64_t positions = plan.tiles.length(tile);
  const int64_t keys = plan.keys(tile);
  const int64_t width = plan.shape.head_size;

  gather_tile(plan, piece, tile, tensors.query, query);
  gather_tile(plan, piece, tile, tensors.output, output);
  gather_tile(plan, piece, tile, tensors.output_gradient, output_gradient);
  MatrixProduct& scores_of = context.made_product(scores_product(plan, tile));
  scores_of.run(query, scratch + places.key, probabilities);
  scores_of.run(output_gradient, scratch + places.value, score_gradient);
  vectorised([&]() PENSTOCK_INLINE {
    for (int64_t row = 0; row < plan.tile_rows(tile); ++row) {
      const int64_t member = row / positions;
      const int64_t position = plan.tiles.begin(tile) + row % positions;
      row_backward({.scores = probabilities + row * keys,
                    .gradients = score_gradient + row * keys,
                    .keys = visible_keys(plan, piece, tensors.document_starts, position),
                    .all = keys,
                    .log_sum_exp = tensors.log_sum_exp[piece.row_offset(plan, member, position)],
                    .delta = dot(output_gradient + row * width, output + row * width, width)},
                   plan.scale);
    }
  });
  MatrixProduct& over_queries = context.made_product(over_queries_product(plan, tile));
  over_queries.run(probabilities, output_gradient, scratch + places.value_gradient);
  over_queries.run(score_gradient, query, scratch + places.key_gradient);
  context.made_product(over_keys_product(plan, tile))
      .run(score_gradient, scratch + places.key, scratch + places.query_gradient);
  scatter_tile(plan, piece, tile, scratch + places.query_gradient, tensors.query_gradient);
}

void backward_piece(Context& context, const AttentionPlan& plan, const Places& places,
                    const Backward& tensors, const AttentionPiece& piece) {
  float* const scratch = context.thread_scratch();
  const size_t key_bytes = static_cast<size_t>(plan.all_keys() * plan.shape.head_size) * sizeof(float);
  gather_keys(plan, piece, tensors.key, scratch + places.key);
  gather_keys(plan, piece, tensors.value, scratch + places.value);
  std::memset(scratch + places.key_gradient, 0, key_bytes);
  std::memset(scratch + places.value_gradient, 0, key_bytes);
  for (int64_t tile = 0; tile < plan.tiles.pieces(); ++tile) {
    backward_tile(context, plan, places, tensors, piece, tile);
  }
  scatter_keys(plan, piece, scratch + places.key_gradient, tensors.key_gradient);
  scatter_keys(plan, piece, scratch + places.value_gradient, tensors.value_gradient);
}

}  // namespace

void attention_backward(Context& context, const AttentionShape& shape, TensorView query, TensorView key,
                        TensorView value, TensorView output, TensorView log_sum_exp,
                        TensorView output_gradient, TensorView query_gradient, TensorView key_gradient,
                        TensorView value_gradient, TensorView document_starts) {
  expect_attention(shape, query, key);
  expect_attention(shape, output, value);
  expect_attention(shape, output_gradient, key_gradient);
  expect_attention(shape, query_gradient, value_gradient);
  expect_elements(log_sum_exp, shape.sequences * shape.query_heads * shape.sequence_length, "log_sum_exp");
  expect_document_starts(shape, document_starts);
  const AttentionPlan plan(shape);
  const Places places(plan);
  context.reserve_per_thread(places.layout.floats());
  for (int64_t tile = 0; tile < plan.tiles.pieces(); ++tile) {
    context.product(scores_product(plan, tile));
    context.product(over_queries_product(plan, tile));
    context.product(over_keys_product(plan, tile));
  }
  const Backward tensors{query.f32(),          key.f32(),
                         value.f32(),          output.f32(),
                         log_sum_exp.f32(),    output_gradient.f32(),
                         query_gradient.f32(), key_gradient.f32(),
                         value_gradient.f32(), document_starts.empty() ? nullptr : document_starts.i32()};
  context.parallel_for(plan.pieces(), [&](int64_t index) {
    backward_piece(context, plan, places, tensors, AttentionPiece(plan, index));
  });
}

}  // namespace penstock::kernels::cpu
