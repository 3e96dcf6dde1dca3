// What the two passes of attention on the CPU share: tiles of queries, and copies between the layout of the
// model [tokens, heads x head_size] and the dense [rows, head_size] that matrix products need.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/ops/cpu/context.h"
#include "kernels/ops/cpu/lanes.h"
#include "kernels/ops/cpu/partition.h"
#include "kernels/ops/operators.h"

namespace penstock::kernels::cpu {

// One (sequence, key/value head) and the tiles of its queries.
struct AttentionPlan {
  explicit AttentionPlan(const AttentionShape& of)
      : shape(of),
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
  int64_t group;    // query heads of one key/value head
  Partition tiles;  // of query positions; a tile's rows are group x positions, head after head
  float scale;
};

// The place of one (sequence, key/value head).
struct AttentionPiece {
  AttentionPiece(const AttentionPlan& plan, int64_t piece)
      : sequence(piece / plan.shape.key_value_heads), head(piece % plan.shape.key_value_heads) {}

  int64_t key_offset(const AttentionPlan& plan) const {
    return sequence * plan.shape.sequence_length * key_stride(plan) + head * plan.shape.head_size;
  }
  static int64_t key_stride(const AttentionPlan& plan) {
    return plan.shape.key_value_heads * plan.shape.head_size;
  }

  int64_t query_offset(const AttentionPlan& plan, int64_t member, int64_t position) const {
    return (sequence * plan.shape.sequence_length + position) * query_stride(plan) +
           (head * plan.group + member) * plan.shape.head_size;
  }
  static int64_t query_stride(const AttentionPlan& plan) {
    return plan.shape.query_heads * plan.shape.head_size;
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
PENSTOCK_INLINE inline void zero_hidden(float* row, const Visible& keys, int64_t all) {
  for (int64_t j = 0; j < keys.first(); j += kLanes) store(row + j, Lanes{});
  for (int64_t j = keys.last() + kLanes; j < all; j += kLanes) store(row + j, Lanes{});
}

inline void gather_rows(const float* from, int64_t stride, int64_t rows, int64_t width, float* dense) {
  for (int64_t r = 0; r < rows; ++r) std::memcpy(dense + r * width, from + r * stride, width * sizeof(float));
}
inline void scatter_rows(const float* dense, int64_t rows, int64_t width, float* to, int64_t stride) {
  for (int64_t r = 0; r < rows; ++r) std::memcpy(to + r * stride, dense + r * width, width * sizeof(float));
}

inline void gather_keys(const AttentionPlan& plan, const AttentionPiece& piece, const float* from,
                        float* dense) {
  gather_rows(from + piece.key_offset(plan), AttentionPiece::key_stride(plan), plan.shape.sequence_length,
              plan.shape.head_size, dense);
  const int64_t elements = plan.shape.sequence_length * plan.shape.head_size;
  std::memset(dense + elements, 0,
              static_cast<size_t>(plan.all_keys() * plan.shape.head_size - elements) * sizeof(float));
}
inline void scatter_keys(const AttentionPlan& plan, const AttentionPiece& piece, const float* dense,
                         float* to) {
  scatter_rows(dense, plan.shape.sequence_length, plan.shape.head_size, to + piece.key_offset(plan),
               AttentionPiece::key_stride(plan));
}

// The rows of a tile, head of the group after head.
inline void gather_tile(const AttentionPlan& plan, const AttentionPiece& piece, int64_t tile,
                        const float* from, float* dense) {
  const int64_t rows = plan.tiles.length(tile);
  for (int64_t member = 0; member < plan.group; ++member) {
    gather_rows(from + piece.query_offset(plan, member, plan.tiles.begin(tile)),
                AttentionPiece::query_stride(plan), rows, plan.shape.head_size,
                dense + member * rows * plan.shape.head_size);
  }
}
inline void scatter_tile(const AttentionPlan& plan, const AttentionPiece& piece, int64_t tile,
                         const float* dense, float* to) {
  const int64_t rows = plan.tiles.length(tile);
  for (int64_t member = 0; member < plan.group; ++member) {
    scatter_rows(dense + member * rows * plan.shape.head_size, rows, plan.shape.head_size,
                 to + piece.query_offset(plan, member, plan.tiles.begin(tile)),
                 AttentionPiece::query_stride(plan));
  }
}

// [tile rows, head_size] x [keys, head_size]^T -> [tile rows, keys]
inline ProductShape scores_product(const AttentionPlan& plan, int64_t tile) {
  return {.rows = plan.tile_rows(tile),
          .columns = plan.keys(tile),
          .inner = plan.shape.head_size,
          .right = Operand::Transposed};
}
// [tile rows, keys] x [keys, head_size] -> [tile rows, head_size]
inline ProductShape over_keys_product(const AttentionPlan& plan, int64_t tile) {
  return {.rows = plan.tile_rows(tile), .columns = plan.shape.head_size, .inner = plan.keys(tile)};
}
// [tile rows, keys]^T x [tile rows, head_size] added to [keys, head_size]
inline ProductShape over_queries_product(const AttentionPlan& plan, int64_t tile) {
  return {.rows = plan.keys(tile),
          .columns = plan.shape.head_size,
          .inner = plan.tile_rows(tile),
          .left = Operand::Transposed,
          .result = Result::Added};
}

}  // namespace penstock::kernels::cpu
