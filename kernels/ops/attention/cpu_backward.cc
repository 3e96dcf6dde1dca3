#include <type_traits>

#include "kernels/ops/attention/contract.h"
#include "kernels/ops/attention/cpu.h"

namespace penstock::kernels::cpu {
namespace {

// Where a thread keeps its dense copies, the gradients of its keys and values, and its tile.
template <typename Element>
struct Places {
  explicit Places(const AttentionPlan& plan) {
    constexpr bool kInPlace = std::is_same_v<Element, float>;
    const int64_t keys = plan.all_keys();
    const int64_t rows = plan.largest_tile_rows();
    for (int64_t* of_keys : {&key, &value}) *of_keys = layout.add<Element>(keys * plan.shape.head_size);
    for (int64_t* of_keys : {&key_gradient, &value_gradient}) {
      *of_keys = layout.add(keys * plan.shape.head_size);
    }
    for (int64_t* of_tile : {&query, &output_gradient}) {
      *of_tile = layout.add<Element>(rows * plan.shape.head_size);
    }
    query_gradient = layout.add(rows * plan.shape.head_size);
    scores = layout.add(rows * keys);
    gradients = layout.add(rows * keys);
    probabilities = kInPlace ? scores : layout.add<Element>(rows * keys);
    score_gradient = kInPlace ? gradients : layout.add<Element>(rows * keys);
  }
  ScratchLayout layout;
  int64_t key, value, key_gradient, value_gradient;
  int64_t query, output_gradient, query_gradient;
  int64_t scores, gradients;              // float32: of the scores, and of the probabilities
  int64_t probabilities, score_gradient;  // as the products read them
};

template <typename Element>
struct Backward {
  HeadRows<Element> query, key, value, output, output_gradient;
  HeadRows<Element> query_gradient, key_gradient, value_gradient;
  const float* log_sum_exp;
  const int32_t* document_starts;  // null: one document a sequence
};

// One row: from the scores and the gradients of the probabilities to the probabilities and the gradients of
// the scores. What the mask hides becomes zero in both.
template <typename Element>
struct ScoreRow {
  float* scores;
  const float* gradients;
  Element* probabilities;
  Element* score_gradient;
  Visible keys;
  int64_t all;  // keys of the row
  float log_sum_exp;
  float delta;  // output gradient . output
};

template <typename Element>
PENSTOCK_INLINE inline void row_backward(const ScoreRow<Element>& row, float scale) {
  hide_scores(row.scores, row.keys);
  for (int64_t j = row.keys.first(); j <= row.keys.last(); j += kLanes) {
    const Lanes p = exp(load(row.scores + j) * scale - row.log_sum_exp);
    const Lanes gradient = p * (load(row.gradients + j) - row.delta) * scale;
    store(row.probabilities + j, p);
    store(row.score_gradient + j, gradient);
  }
  zero_hidden(row.probabilities, row.keys, row.all);
  zero_hidden(row.score_gradient, row.keys, row.all);
}

template <typename Element>
void backward_tile(Context& context, const AttentionPlan& plan, const Places<Element>& places,
                   const Backward<Element>& tensors, const AttentionPiece& piece, int64_t tile) {
  float* const scratch = context.thread_scratch();
  auto* const query = reinterpret_cast<Element*>(scratch + places.query);
  auto* const output_gradient = reinterpret_cast<Element*>(scratch + places.output_gradient);
  auto* const probabilities = reinterpret_cast<Element*>(scratch + places.probabilities);
  auto* const score_gradient = reinterpret_cast<Element*>(scratch + places.score_gradient);
  float* const scores = scratch + places.scores;
  float* const gradients = scratch + places.gradients;
  float* const query_gradient = scratch + places.query_gradient;
  const int64_t keys = plan.keys(tile);
  const int64_t width = plan.shape.head_size;

  gather_tile(plan, piece, tile, tensors.query, query);
  gather_tile(plan, piece, tile, tensors.output_gradient, output_gradient);
  MatrixProduct& scores_of = context.made_product(scores_product(plan, tile));
  scores_of.run(query, scratch + places.key, scores);
  scores_of.run(output_gradient, scratch + places.value, gradients);
  vectorised([&]() PENSTOCK_INLINE {
    for (int64_t row = 0; row < plan.tile_rows(tile); ++row) {
      const TileRow at(plan, tile, row);
      const Element* output = piece.query(plan, tensors.output, at.member, at.position);
      row_backward<Element>(
          {.scores = scores + row * keys,
           .gradients = gradients + row * keys,
           .probabilities = probabilities + row * keys,
           .score_gradient = score_gradient + row * keys,
           .keys = visible_keys(plan, piece, tensors.document_starts, at.position),
           .all = keys,
           .log_sum_exp = tensors.log_sum_exp[piece.row_offset(plan, at.member, at.position)],
           .delta = dot(output_gradient + row * width, output, width)},
          plan.scale);
    }
  });
  MatrixProduct& over_queries = context.made_product(over_queries_product(plan, tile));
  over_queries.run(probabilities, output_gradient, scratch + places.value_gradient);
  over_queries.run(score_gradient, query, scratch + places.key_gradient);
  context.made_product(over_keys_product(plan, tile))
      .run(score_gradient, scratch + places.key, query_gradient);
  vectorised([&]() PENSTOCK_INLINE {
    for (int64_t row = 0; row < plan.tile_rows(tile); ++row) {
      const TileRow at(plan, tile, row);
      Element* to = piece.query(plan, tensors.query_gradient, at.member, at.position);
      for_each_lanes(width, [&](const auto& lanes, int64_t i) PENSTOCK_INLINE {
        lanes.store(to + i, lanes.load(query_gradient + row * width + i));
      });
    }
  });
}

template <typename Element>
void backward_piece(Context& context, const AttentionPlan& plan, const Places<Element>& places,
                    const Backward<Element>& tensors, const AttentionPiece& piece) {
  float* const scratch = context.thread_scratch();
  const size_t gradient_bytes = static_cast<size_t>(plan.all_keys() * plan.shape.head_size) * sizeof(float);
  gather_keys(plan, piece, tensors.key, reinterpret_cast<Element*>(scratch + places.key));
  gather_keys(plan, piece, tensors.value, reinterpret_cast<Element*>(scratch + places.value));
  std::memset(scratch + places.key_gradient, 0, gradient_bytes);
  std::memset(scratch + places.value_gradient, 0, gradient_bytes);
  for (int64_t tile = 0; tile < plan.tiles.pieces(); ++tile) {
    backward_tile(context, plan, places, tensors, piece, tile);
  }
  scatter_keys(plan, piece, scratch + places.key_gradient, tensors.key_gradient);
  scatter_keys(plan, piece, scratch + places.value_gradient, tensors.value_gradient);
}

template <typename Element>
void backward(Context& context, const AttentionPlan& plan, const Backward<Element>& tensors) {
  const Places<Element> places(plan);
  context.reserve_per_thread(places.layout.floats());
  for (int64_t tile = 0; tile < plan.tiles.pieces(); ++tile) {
    context.product(scores_product(plan, tile));
    context.product(over_queries_product(plan, tile));
    context.product(over_keys_product(plan, tile));
  }
  context.parallel_for(plan.pieces(), [&](int64_t index) {
    backward_piece(context, plan, places, tensors, AttentionPiece(plan, index));
  });
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
  with_element(query.type(), [&](auto element) {
    backward<decltype(element)>(
        context, AttentionPlan(shape, query.type()),
        {query, key, value, output, output_gradient, query_gradient, key_gradient, value_gradient,
         log_sum_exp.f32(), document_starts.empty() ? nullptr : document_starts.i32()});
  });
}

}  // namespace penstock::kernels::cpu
