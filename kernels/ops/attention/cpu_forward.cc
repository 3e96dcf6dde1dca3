#include <type_traits>

#include "base/ieee_math.h"
#include "kernels/ops/attention/contract.h"
#include "kernels/ops/attention/cpu.h"

namespace penstock::kernels::cpu {
namespace {

// Where a thread keeps its dense copies and its tile.
template <typename Element>
struct Places {
  explicit Places(const AttentionPlan& plan) {
    const int64_t keys = plan.all_keys();
    const int64_t rows = plan.largest_tile_rows();
    key = layout.add<Element>(keys * plan.shape.head_size);
    value = layout.add<Element>(keys * plan.shape.head_size);
    query = layout.add<Element>(rows * plan.shape.head_size);
    output = layout.add(rows * plan.shape.head_size);
    inverse_sums = layout.add(rows);
    scores = layout.add(rows * keys);
    probabilities = std::is_same_v<Element, float> ? scores : layout.add<Element>(rows * keys);
  }
  ScratchLayout layout;
  int64_t key, value, query, output, inverse_sums, scores, probabilities;
};

template <typename Element>
struct Forward {
  HeadRows<Element> query, key, value, output;
  float* log_sum_exp;
  const int32_t* document_starts;  // null: one document a sequence
};

struct RowSum {
  float sum;
  float log_sum_exp;
};

// The visible scores of a row as exp(scale (score - largest)), and zeros for the rest, up to `all`.
template <typename Element>
PENSTOCK_INLINE inline RowSum exponentials(float* scores, Element* to, const Visible& keys, int64_t all,
                                           float scale) {
  hide_scores(scores, keys);
  Lanes most = load(scores + keys.last());
  for (int64_t j = keys.first(); j < keys.last(); j += kLanes) most = larger(load(scores + j), most);
  const float offset = largest(most) * scale;
  Lanes sums{};
  for (int64_t j = keys.first(); j <= keys.last(); j += kLanes) {
    const Lanes value = exp(load(scores + j) * scale - offset);
    sums += value;
    store(to + j, value);
  }
  zero_hidden(to, keys, all);
  const float total = sum(sums);
  return {total, static_cast<float>(static_cast<double>(offset) + natural_log(static_cast<double>(total)))};
}

template <typename Element>
void forward_tile(Context& context, const AttentionPlan& plan, const Places<Element>& places,
                  const Forward<Element>& tensors, const AttentionPiece& piece, int64_t tile) {
  float* const scratch = context.thread_scratch();
  auto* const query = reinterpret_cast<Element*>(scratch + places.query);
  auto* const probabilities = reinterpret_cast<Element*>(scratch + places.probabilities);
  float* const scores = scratch + places.scores;
  float* const output = scratch + places.output;
  float* const inverse_sums = scratch + places.inverse_sums;
  const int64_t keys = plan.keys(tile);
  const int64_t width = plan.shape.head_size;

  gather_tile(plan, piece, tile, tensors.query, query);
  context.made_product(scores_product(plan, tile)).run(query, scratch + places.key, scores);
  vectorised([&]() PENSTOCK_INLINE {
    for (int64_t row = 0; row < plan.tile_rows(tile); ++row) {
      const TileRow at(plan, tile, row);
      const Visible visible = visible_keys(plan, piece, tensors.document_starts, at.position);
      const RowSum sums =
          exponentials(scores + row * keys, probabilities + row * keys, visible, keys, plan.scale);
      inverse_sums[row] = 1.0f / sums.sum;
      tensors.log_sum_exp[piece.row_offset(plan, at.member, at.position)] = sums.log_sum_exp;
    }
  });
  context.made_product(over_keys_product(plan, tile)).run(probabilities, scratch + places.value, output);
  vectorised([&]() PENSTOCK_INLINE {
    for (int64_t row = 0; row < plan.tile_rows(tile); ++row) {
      const TileRow at(plan, tile, row);
      const float* values = output + row * width;
      Element* to = piece.query(plan, tensors.output, at.member, at.position);
      const float scale = inverse_sums[row];
      for_each_lanes(width, [&](const auto& lanes, int64_t j)
                                PENSTOCK_INLINE { lanes.store(to + j, lanes.load(values + j) * scale); });
    }
  });
}

template <typename Element>
void forward(Context& context, const AttentionPlan& plan, const Forward<Element>& tensors) {
  const Places<Element> places(plan);
  context.reserve_per_thread(places.layout.floats());
  for (int64_t tile = 0; tile < plan.tiles.pieces(); ++tile) {
    context.product(scores_product(plan, tile));
    context.product(over_keys_product(plan, tile));
  }
  context.parallel_for(plan.pieces(), [&](int64_t index) {
    const AttentionPiece piece(plan, index);
    float* const scratch = context.thread_scratch();
    gather_keys(plan, piece, tensors.key, reinterpret_cast<Element*>(scratch + places.key));
    gather_keys(plan, piece, tensors.value, reinterpret_cast<Element*>(scratch + places.value));
    for (int64_t tile = 0; tile < plan.tiles.pieces(); ++tile) {
      forward_tile(context, plan, places, tensors, piece, tile);
    }
  });
}

}  // namespace

void attention(Context& context, const AttentionShape& shape, TensorView query, TensorView key,
               TensorView value, TensorView output, TensorView log_sum_exp, TensorView document_starts) {
  expect_attention(shape, query, key);
  expect_attention(shape, output, value);
  expect_elements(log_sum_exp, shape.sequences * shape.query_heads * shape.sequence_length, "log_sum_exp");
  expect_document_starts(shape, document_starts);
  with_element(query.type(), [&](auto element) {
    forward<decltype(element)>(context, AttentionPlan(shape, query.type()),
                               {query, key, value, output, log_sum_exp.f32(),
                                document_starts.empty() ? nullptr : document_starts.i32()});
  });
}

}  // namespace penstock::kernels::cpu
