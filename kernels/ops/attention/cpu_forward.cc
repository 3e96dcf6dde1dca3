#include "base/ieee_math.h"
#include "kernels/ops/attention/contract.h"
#include "kernels/ops/attention/cpu.h"

namespace penstock::kernels::cpu {
namespace {

// Where a thread keeps its dense copies and its tile.
struct Places {
  explicit Places(const AttentionPlan& plan) {
    const int64_t keys = plan.all_keys();
    const int64_t rows = plan.largest_tile_rows();
    key = layout.add(keys * plan.shape.head_size);
    value = layout.add(keys * plan.shape.head_size);
    query = layout.add(rows * plan.shape.head_size);
    output = layout.add(rows * plan.shape.head_size);
    inverse_sums = layout.add(rows);
    scores = layout.add(rows * keys);
  }
  ScratchLayout layout;
  int64_t key, value, query, output, inverse_sums, scores;
};

struct Forward {
  const float* query;
  const float* key;
  const float* value;
  float* output;
  float* log_sum_exp;
  const int32_t* document_starts;  // null: one document a sequence
};

struct RowSum {
  float sum;
  float log_sum_exp;
};

// Turns the visible scores of a row into exp(scale (score - largest)) and the rest, up to `all`, into zeros.
PENSTOCK_INLINE inline RowSum exponentials(float* scores, const Visible& keys, int64_t all, float scale) {
  hide_scores(scores, keys);
  Lanes most = load(scores + keys.last());
  for (int64_t j = keys.first(); j < keys.last(); j += kLanes) most = larger(load(scores + j), most);
  const float offset = largest(most) * scale;
  Lanes sums{};
  for (int64_t j = keys.first(); j <= keys.last(); j += kLanes) {
    const Lanes value = exp(load(scores + j) * scale - offset);
    sums += value;
    store(scores + j, value);
  }
  zero_hidden(scores, keys, all);
  const float total = sum(sums);
  return {total, static_cast<float>(static_cast<double>(offset) + natural_log(static_cast<double>(total)))};
}

void forward_tile(Context& context, const AttentionPlan& plan, const Places& places, const Forward& tensors,
                  const AttentionPiece& piece, int64_t tile) {
  float* const scratch = context.thread_scratch();
  float* const scores = scratch + places.scores;
  float* const output = scratch + places.output;
  float* const inverse_sums = scratch + places.inverse_sums;
  const int64_t positions = plan.tiles.length(tile);
  const int64_t first = plan.tiles.begin(tile);
  const int64_t keys = plan.keys(tile);
  const int64_t width = plan.shape.head_size;

  gather_tile(plan, piece, tile, tensors.query, scratch + places.query);
  context.made_product(scores_product(plan, tile)).run(scratch + places.query, scratch + places.key, scores);
  vectorised([&]() PENSTOCK_INLINE {
    for (int64_t row = 0; row < plan.tile_rows(tile); ++row) {
      const int64_t member = row / positions;
      const int64_t position = first + row % positions;
      const Visible visible = visible_keys(plan, piece, tensors.document_starts, position);
      const RowSum sums = exponentials(scores + row * keys, visible, keys, plan.scale);
      inverse_sums[row] = 1.0f / sums.sum;
      tensors.log_sum_exp[piece.row_offset(plan, member, position)] = sums.log_sum_exp;
    }
  });
  context.made_product(over_keys_product(plan, tile)).run(scores, scratch + places.value, output);
  vectorised([&]() PENSTOCK_INLINE {
    for (int64_t row = 0; row < plan.tile_rows(tile); ++row) {
      float* values = output + row * width;
      const float scale = inverse_sums[row];
      for_each_lanes(width, [&](const auto& lanes, int64_t j)
                                PENSTOCK_INLINE { lanes.store(values + j, lanes.load(values + j) * scale); });
    }
  });
  scatter_tile(plan, piece, tile, output, tensors.output);
}

}  // namespace

void attention(Context& context, const AttentionShape& shape, TensorView query, TensorView key,
               TensorView value, TensorView output, TensorView log_sum_exp, TensorView document_starts) {
  expect_attention(shape, query, key);
  expect_attention(shape, output, value);
  expect_elements(log_sum_exp, shape.sequences * shape.query_heads * shape.sequence_length, "log_sum_exp");
  expect_document_starts(shape, document_starts);
  const AttentionPlan plan(shape);
  const Places places(plan);
  context.reserve_per_thread(places.layout.floats());
  for (int64_t tile = 0; tile < plan.tiles.pieces(); ++tile) {
    context.product(scores_product(plan, tile));
    context.product(over_keys_product(plan, tile));
  }
  const Forward tensors{query.f32(),       key.f32(),
                        value.f32(),       output.f32(),
                        log_sum_exp.f32(), document_starts.empty() ? nullptr : document_starts.i32()};
  context.parallel_for(plan.pieces(), [&](int64_t index) {
    const AttentionPiece piece(plan, index);
    gather_keys(plan, piece, tensors.key, context.thread_scratch() + places.key);
    gather_keys(plan, piece, tensors.value, context.thread_scratch() + places.value);
    for (int64_t tile = 0; tile < plan.tiles.pieces(); ++tile) {
      forward_tile(context, plan, places, tensors, piece, tile);
    }
  });
}

}  // namespace penstock::kernels::cpu
