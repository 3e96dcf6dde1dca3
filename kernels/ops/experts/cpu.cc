#include "kernels/ops/experts/cpu.h"

#include <array>

#include "kernels/ops/cpu/ahead.h"
#include "kernels/ops/cpu/context.h"
#include "kernels/ops/cpu/elements.h"
#include "kernels/ops/cpu/lanes.h"
#include "kernels/ops/swiglu/cpu.h"

namespace penstock::kernels::cpu {
namespace {

constexpr int64_t kTile = 128;

// Rows of the products that a tile is cut into: a multiple of eight, and what is left. A row has the same bits in any
// of them (matrix_product.h), so that none has to be computed that does not exist.
constexpr int64_t kRowsTogether = 8;
constexpr auto kRowsOfProducts = [] {
  std::array<int64_t, kRowsTogether - 1 + kTile / kRowsTogether> sizes{};
  int64_t size = 0;
  for (int64_t& each : sizes) each = size += size < kRowsTogether ? 1 : kRowsTogether;
  return sizes;
}();

// The products of all experts with one of their matrices: output [rows, columns] = rows x right.
class RowProducts {
 public:
  RowProducts(Context& context, const ProductShape& shape, int64_t most_rows)
      : products_(context.products(shape, &ProductShape::rows, sizes_up_to(most_rows))),
        left_bytes_(shape.inner * size_bytes(shape.type)),
        output_bytes_(shape.columns * size_bytes(shape.output_type)) {}

  void run(int64_t rows, const void* left, const void* right, void* output) const {
    const int64_t together = rows / kRowsTogether * kRowsTogether;
    if (together > 0) products_[together].run(left, right, output);
    if (together == rows) return;
    products_[rows - together].run(static_cast<const char*>(left) + together * left_bytes_, right,
                                   static_cast<char*>(output) + together * output_bytes_);
  }

 private:
  static std::span<const int64_t> sizes_up_to(int64_t rows) {
    const auto end = std::upper_bound(kRowsOfProducts.begin(), kRowsOfProducts.end(), rows);
    return {kRowsOfProducts.begin(), end};
  }

  const SizedProducts& products_;
  int64_t left_bytes_, output_bytes_;
};

ProductShape forward_product(const PackedWeight& weight) {
  return {.columns = weight.out,
          .inner = weight.in,
          .right = has_packed_products(weight.type) ? Operand::Packed : Operand::Transposed,
          .type = weight.type,
          .output_type = weight.type};
}
ProductShape backward_product(const PackedWeight& weight, DataType output_type) {
  return {.columns = weight.in,
          .inner = weight.out,
          .right = has_packed_products(weight.type) ? Operand::Packed : Operand::Plain,
          .type = weight.type,
          .output_type = output_type};
}
// The right operand of each of them.
using RightOperand = std::span<const char>;
RightOperand forward_operand(const PackedWeight& weight) {
  const int64_t bytes = packed_elements(weight.in, weight.out, weight.type) * size_bytes(weight.type);
  return {static_cast<const char*>(weight.forward()), static_cast<size_t>(bytes)};
}
RightOperand backward_operand(const PackedWeight& weight) {
  const int64_t bytes = packed_elements(weight.out, weight.in, weight.type) * size_bytes(weight.type);
  const void* const data = has_packed_products(weight.type) ? weight.backward() : weight.data;
  return {static_cast<const char*>(data), static_cast<size_t>(bytes)};
}
using OperandOf = RightOperand (*)(const PackedWeight&);

void check_weights(std::span<const ExpertWeights> weights, const ExpertShape& shape) {
  PENSTOCK_CHECK(static_cast<int64_t>(weights.size()) == shape.experts && shape.experts > 0,
                 "weights of {} experts, rows of {}", weights.size(), shape.experts);
  for (const ExpertWeights& each : weights) {
    const bool fits = each.gate_up.out == 2 * shape.intermediate && each.gate_up.in == shape.hidden &&
                      each.down.out == shape.hidden && each.down.in == shape.intermediate &&
                      each.gate_up.type == shape.type && each.down.type == shape.type;
    PENSTOCK_CHECK(fits, "an expert of [{}, {}] and [{}, {}], rows of {} and {}", each.gate_up.out,
                   each.gate_up.in, each.down.out, each.down.in, shape.hidden, shape.intermediate);
  }
}

// What a tile is computed with. While its activation is computed, which reads little, the operands of the expert come
// that the thread is likely to have next.
struct TileWork {
  const ExpertPiece& tile;
  const ExpertWeights& weights;
  Ahead gate_up_ahead, down_ahead;

  PENSTOCK_INLINE void bring_ahead(int64_t row) const {
    gate_up_ahead.bring(row);
    down_ahead.bring(row);
  }
};

TileWork tile_work(Context& context, std::span<const ExpertPiece> tiles, int64_t index,
                   std::span<const ExpertWeights> weights, OperandOf operand_of) {
  constexpr size_t kBytesAhead = 512 * 1024;  // more would push out what is still read
  const ExpertPiece& tile = tiles[static_cast<size_t>(index)];
  TileWork work{tile, weights[static_cast<size_t>(tile.expert)], {}, {}};
  const int64_t next = index + context.threads().threads();
  if (next >= std::ssize(tiles) || tiles[static_cast<size_t>(next)].expert == tile.expert) return work;
  const ExpertWeights& ahead = weights[static_cast<size_t>(tiles[static_cast<size_t>(next)].expert)];
  const RightOperand gate_up = operand_of(ahead.gate_up), down = operand_of(ahead.down);
  if (gate_up.size() + down.size() > kBytesAhead) return work;
  work.gate_up_ahead = {gate_up, tile.rows};
  work.down_ahead = {down, tile.rows};
  return work;
}

// activated [rows, I] = silu(gate) up, of the tile's rows.
template <typename Element>
void activate(const TileWork& work, const Element* gate_up, Element* activated) {
  const int64_t intermediate = work.weights.down.in;
  vectorised([&]() PENSTOCK_INLINE {
    for (int64_t r = 0; r < work.tile.rows; ++r) {
      work.bring_ahead(r);
      const Element* gate = gate_up + r * 2 * intermediate;
      Element* to = activated + r * intermediate;
      for_each_lanes(intermediate, [&](const auto& lanes, int64_t i) PENSTOCK_INLINE {
        const Lanes g = lanes.load(gate + i);
        lanes.store(to + i, g * sigmoid(g) * lanes.load(gate + intermediate + i));
      });
    }
  });
}

template <typename Element>
struct ActivationBackward {
  const Element* gate_up;
  const float* activated_gradient;  // u
  float weight;                     // c
  Element* weighted;
  Element* gate_up_gradient;
};

// One row; returns the gradient of its weight.
template <typename Element>
PENSTOCK_INLINE inline float activation_backward(const ActivationBackward<Element>& row, int64_t width) {
  Lanes products{};
  for_each_lanes(width, [&](const auto& lanes, int64_t i) PENSTOCK_INLINE {
    const Lanes gate = lanes.load(row.gate_up + i);
    const Lanes up = lanes.load(row.gate_up + width + i);
    const Lanes u = lanes.load(row.activated_gradient + i);
    const Lanes s = sigmoid(gate);
    const Lanes silu = gate * s;
    const Lanes activated = silu * up;
    const Lanes gradient = u * row.weight;
    products += u * activated;
    lanes.store(row.weighted + i, activated * row.weight);
    lanes.store(row.gate_up_gradient + i, gradient * up * s * (1.0f + gate * (1.0f - s)));
    lanes.store(row.gate_up_gradient + width + i, gradient * silu);
  });
  return sum(products);
}

template <typename Element>
Element* rows_of(const TensorView& rows, const ExpertPiece& tile) {
  return data<Element>(rows) + tile.first * rows.size(1);
}

// Both products of a pass.
struct TileProducts {
  RowProducts gate_up, down;
};

template <typename Element>
void forward_tile(Context& context, const TileProducts& products, const TileWork& work,
                  const TensorView& payload, const TensorView& gate_up, const TensorView& output) {
  auto* const activated = reinterpret_cast<Element*>(context.thread_scratch());
  const ExpertPiece& tile = work.tile;
  const ExpertWeights& weights = work.weights;
  Element* const gates = rows_of<Element>(gate_up, tile);
  products.gate_up.run(tile.rows, rows_of<Element>(payload, tile), forward_operand(weights.gate_up).data(),
                       gates);
  activate(work, gates, activated);
  products.down.run(tile.rows, activated, forward_operand(weights.down).data(),
                    rows_of<Element>(output, tile));
}

template <typename Element>
void backward_tile(Context& context, const TileProducts& products, const TileWork& work,
                   const ExpertInputGradient& rows) {
  float* const activated_gradient = context.thread_scratch();
  const ExpertPiece& tile = work.tile;
  const ExpertWeights& weights = work.weights;
  const int64_t width = weights.down.in;
  Element* const gates = rows_of<Element>(rows.gate_up, tile);
  Element* const gate_gradients = rows_of<Element>(rows.gate_up_gradient, tile);
  Element* const weighted = rows_of<Element>(rows.weighted, tile);
  float* const weight_gradient = rows.weight_gradient.f32() + tile.first;
  products.down.run(tile.rows, rows_of<Element>(rows.output_gradient, tile),
                    backward_operand(weights.down).data(), activated_gradient);
  vectorised([&]() PENSTOCK_INLINE {
    for (int64_t r = 0; r < tile.rows; ++r) {
      work.bring_ahead(r);
      weight_gradient[r] = activation_backward<Element>({.gate_up = gates + r * 2 * width,
                                                         .activated_gradient = activated_gradient + r * width,
                                                         .weight = rows.weight.f32()[tile.first + r],
                                                         .weighted = weighted + r * width,
                                                         .gate_up_gradient = gate_gradients + r * 2 * width},
                                                        width);
    }
  });
  products.gate_up.run(tile.rows, gate_gradients, backward_operand(weights.gate_up).data(),
                       rows_of<Element>(rows.payload_gradient, tile));
}

}  // namespace

void experts(Context& context, TensorView payload, TensorView offsets, std::span<const ExpertWeights> weights,
             TensorView gate_up, TensorView output) {
  const ExpertShape shape = expert_shape(payload, gate_up, offsets);
  check_weights(weights, shape);
  expect_matrix(output, shape.most_rows, shape.hidden, "output of the experts", shape.type);
  const TileProducts products{{context, forward_product(weights[0].gate_up), shape.most_rows},
                              {context, forward_product(weights[0].down), shape.most_rows}};
  context.reserve_per_thread(kTile * shape.intermediate);
  const std::span<const ExpertPiece> tiles = expert_pieces(context, offsets, kTile, shape.most_rows);
  with_element(shape.type, [&](auto element) {
    context.parallel_for(std::ssize(tiles), [&](int64_t index) {
      forward_tile<decltype(element)>(context, products,
                                      tile_work(context, tiles, index, weights, forward_operand), payload,
                                      gate_up, output);
    });
  });
}

void experts_input_gradient(Context& context, const ExpertInputGradient& rows, TensorView offsets,
                            std::span<const ExpertWeights> weights) {
  const ExpertShape shape = expert_shape(rows.output_gradient, rows.gate_up, offsets);
  check_weights(weights, shape);
  expect_elements(rows.weight, shape.most_rows, "weight of the rows");
  expect_elements(rows.weight_gradient, shape.most_rows, "gradient of the rows' weights");
  expect_matrix(rows.gate_up_gradient, shape.most_rows, 2 * shape.intermediate, "gate_up_gradient",
                shape.type);
  expect_matrix(rows.weighted, shape.most_rows, shape.intermediate, "weighted", shape.type);
  expect_matrix(rows.payload_gradient, shape.most_rows, shape.hidden, "payload_gradient", shape.type);
  const TileProducts products{
      {context, backward_product(weights[0].gate_up, shape.type), shape.most_rows},
      {context, backward_product(weights[0].down, DataType::Float32), shape.most_rows}};
  context.reserve_per_thread(kTile * shape.intermediate);
  const std::span<const ExpertPiece> tiles = expert_pieces(context, offsets, kTile, shape.most_rows);
  with_element(shape.type, [&](auto element) {
    context.parallel_for(std::ssize(tiles), [&](int64_t index) {
      backward_tile<decltype(element)>(context, products,
                                       tile_work(context, tiles, index, weights, backward_operand), rows);
    });
  });
}

}  // namespace penstock::kernels::cpu
