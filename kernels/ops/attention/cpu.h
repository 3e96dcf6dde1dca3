// What the two passes of attention on the CPU share: tiles of queries, and copies between the layout of the
// model [tokens, heads x head_size] and the dense [rows, head_size] that matrix products need.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/ops/cpu/context.h"
#include "kernels/ops/cpu/elements.h"
#include "kernels/ops/cpu/lanes.h"
#include "kernels/ops/cpu/partition.h"
#include "kernels/ops/operators.h"

namespace penstock::kernels::cpu {

// One (sequence, key/value head) and the tiles of its queries.
struct AttentionPlan {
  AttentionPlan(const AttentionShape& of, DataType of_operands)
      : shape(of),
        type(of_operands),
        group(of.query_heads / of.key_value_heads),
        tiles{of.sequence_length, std::clamp<int64_t>(128 / group / 16 * 16, 16, 64)},
        scale(1.0f / std::sqrt(static_cast<float>(of.head_size))) {}

  int64_t pieces() const { return shape.sequences * shape.key_value_heads; }
  // A tile reads the keys up to its last query, rounded up to whole registers: rows of scores are then made
  // of them.
  int64_t keys(int64_t tile) const { return whole_lanes(tiles.begin(tile) + tiles.length(tile)); }
  int64_t all_keys() const {
    return whole_lanes(shape.sequence_length);
  }  // those past the sequence are zeros
  int64_t tile_rows(int64_t tile) const { return group * tiles.length(tile); }
  int64_t largest_tile_rows() const { return group * std::min(tiles.size, tiles.total); }

  static int64_t whole_lanes(int64_t count) { return (count + kLanes - 1) / kLanes * kLanes; }

  AttentionShape shape;
  DataType type;
  int64_t group;    // query heads of one key/value head
  Partition tiles;  // of query positions; a tile's rows are group x positions, head after head
  float scale;
};

// Which query a row of a tile is: `position` in its sequence, of the group's head `member`.
struct TileRow {
  TileRow(const AttentionPlan& plan, int64_t tile, int64_t row)
      : member(row / plan.tiles.length(tile)),
        position(plan.tiles.begin(tile) + row % plan.tiles.length(tile)) {}

  int64_t member;
  int64_t position;
};

// Rows of a tensor [T, heads x head_size].
template <typename Element>
struct HeadRows {
  HeadRows(const TensorView& view) : first(data<Element>(view)), stride(view.row_stride()) {}

  Element* first;
  int64_t stride;
};

// The place of one (sequence, key/value head).
struct AttentionPiece {
  AttentionPiece(const AttentionPlan& plan, int64_t piece)
      : sequence(piece / plan.shape.key_value_heads), head(piece % plan.shape.key_value_heads) {}

  // Of the first key or value.
  template <typename Element>
  Element* keys(const AttentionPlan& plan, const HeadRows<Element>& rows) const {
    return rows.first + sequence * plan.shape.sequence_length * rows.stride + head * plan.shape.head_size;
  }
  // Of the query (or output) at `position` of a head of the group.
  template <typename Element>
  Element* query(const AttentionPlan& plan, const HeadRows<Element>& rows, int64_t member,
                 int64_t position) const {
    return rows.first + (sequence * plan.shape.sequence_length + position) * rows.stride +
           (head * plan.group + member) * plan.shape.head_size;
  }

  // Into log_sum_exp [sequences, query_heads, sequence_length].
  int64_t row_offset(const AttentionPlan& plan, int64_t member, int64_t position) const {
    return (sequence * plan.shape.query_heads + head * plan.group + member) * plan.shape.sequence_length +
           position;
  }

  int64_t sequence;
  int64_t head;
};

// The keys [begin, end) that a query sees.
struct Visible {
  int64_t begin;
  int64_t end;

  // The registers that hold them: [first, last + kLanes).
  int64_t first() const { return begin / kLanes * kLanes; }
  int64_t last() const { return (end - 1) / kLanes * kLanes; }
};

// `document_starts` [T], or null.
inline Visible visible_keys(const AttentionPlan& plan, const AttentionPiece& piece,
                            const int32_t* document_starts, int64_t position) {
  const int64_t token = piece.sequence * plan.shape.sequence_length + position;
  return {document_starts == nullptr ? 0 : document_starts[token], position + 1};
}

// Makes the hidden scores of a row that share a register with visible ones -infinity, whose exp is 0.
PENSTOCK_INLINE inline void hide_scores(float* scores, const Visible& keys) {
  const int64_t first = keys.first();
  const int64_t last = keys.last();
  store(scores + last, first_lanes(load(scores + last), keys.end - last, -INFINITY));
  store(scores + first, last_lanes(load(scores + first), kLanes - (keys.begin - first), -INFINITY));
}
// Zeros the registers of a row that hold no visible key.
template <typename Element>
PENSTOCK_INLINE inline void zero_hidden(Element* row, const Visible& keys, int64_t all) {
  for (int64_t j = 0; j < keys.first(); j += kLanes) store(row + j, Lanes{});
  for (int64_t j = keys.last() + kLanes; j < all; j += kLanes) store(row + j, Lanes{});
}

// The rows of one head, dense [all keys, head_size]; those past the sequence are zeros.
template <typename Element>
void gather_keys(const AttentionPlan& plan, const AttentionPiece& piece, const HeadRows<Element>& rows,
                 Element* dense) {
  const Element* from = piece.keys(plan, rows);
  const int64_t width = plan.shape.head_size;
  const int64_t keys = plan.shape.sequence_length;
  for (int64_t r = 0; r < keys; ++r) {
    std::memcpy(dense + r * width, from + r * rows.stride, static_cast<size_t>(width) * sizeof(Element));
  }
  std::memset(dense + keys * width, 0,
              static_cast<size_t>((plan.all_keys() - keys) * width) * sizeof(Element));
}
template <typename Element>
void scatter_keys(const AttentionPlan& plan, const AttentionPiece& piece, const float* dense,
                  const HeadRows<Element>& rows) {
  Element* to = piece.keys(plan, rows);
  const int64_t width = plan.shape.head_size;
  vectorised([&]() PENSTOCK_INLINE {
    for (int64_t r = 0; r < plan.shape.sequence_length; ++r) {
      for_each_lanes(width, [&](const auto& lanes, int64_t i) PENSTOCK_INLINE {
        lanes.store(to + r * rows.stride + i, lanes.load(dense + r * width + i));
      });
    }
  });
}

// The rows of a tile, head of the group after head.
template <typename Element>
void gather_tile(const AttentionPlan& plan, const AttentionPiece& piece, int64_t tile,
                 const HeadRows<Element>& rows, Element* dense) {
  const int64_t width = plan.shape.head_size;
  for (int64_t row = 0; row < plan.tile_rows(tile); ++row) {
    const TileRow at(plan, tile, row);
    std::memcpy(dense + row * width, piece.query(plan, rows, at.member, at.position),
                static_cast<size_t>(width) * sizeof(Element));
  }
}

// [tile rows, head_size] x [keys, head_size]^T -> [tile rows, keys]
inline ProductShape scores_product(const AttentionPlan& plan, int64_t tile) {
  return {.rows = plan.tile_rows(tile),
          .columns = plan.keys(tile),
          .inner = plan.shape.head_size,
          .right = Operand::Transposed,
          .type = plan.type};
}
// [tile rows, keys] x [keys, head_size] -> [tile rows, head_size]
inline ProductShape over_keys_product(const AttentionPlan& plan, int64_t tile) {
  return {.rows = plan.tile_rows(tile),
          .columns = plan.shape.head_size,
          .inner = plan.keys(tile),
          .type = plan.type};
}
// [tile rows, keys]^T x [tile rows, head_size] added to [keys, head_size]
inline ProductShape over_queries_product(const AttentionPlan& plan, int64_t tile) {
  return {.rows = plan.keys(tile),
          .columns = plan.shape.head_size,
          .inner = plan.tile_rows(tile),
          .left = Operand::Transposed,
          .result = Result::Added,
          .type = plan.type};
}

}  // namespace penstock::kernels::cpu
