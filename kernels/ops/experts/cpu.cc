#include "kernels/ops/experts/cpu.h"

#include "kernels/ops/cpu/context.h"
#include "kernels/ops/cpu/elements.h"
#include "kernels/ops/cpu/lanes.h"
#include "kernels/ops/swiglu/cpu.h"

namespace penstock::kernels::cpu {
namespace {

constexpr int64_t kTile = 128;
constexpr int64_t kTileMultiple = 16;

// The rows of a tile as products read and write them: where they stand, or in scratch when zeros fill them up.
template <typename Element>
class TileRows {
 public:
  TileRows(const ExpertPiece& tile, const TensorView& rows, Element* scratch)
      : tile_(tile), all_(data<Element>(rows)), width_(rows.size(1)), scratch_(scratch) {}

  const Element* filled() const {
    if (whole()) return own();
    fill_up(tile_, all_, width_, width_, scratch_);
    return scratch_;
  }
  Element* room() const { return whole() ? own() : scratch_; }
  // After a product has written to room().
  void put_back() const {
    if (whole()) return;
    std::memcpy(own(), scratch_, static_cast<size_t>(tile_.rows * width_) * sizeof(Element));
  }
  Element* own() const { return all_ + tile_.first * width_; }

 private:
  bool whole() const { return tile_.filled == tile_.rows; }

  const ExpertPiece& tile_;
  Element* all_;
  int64_t width_;
  Element* scratch_;
};

ProductShape forward_product(const PackedWeight& weight, int64_t rows) {
  return {.rows = rows,
          .columns = weight.out,
          .inner = weight.in,
          .right = has_packed_products(weight.type) ? Operand::Packed : Operand::Transposed,
          .type = weight.type,
          .output_type = weight.type};
}
ProductShape backward_product(const PackedWeight& weight, int64_t rows, DataType output_type) {
  return {.rows = rows,
          .columns = weight.in,
          .inner = weight.out,
          .right = has_packed_products(weight.type) ? Operand::Packed : Operand::Plain,
          .type = weight.type,
          .output_type = output_type};
}
const void* backward_operand(const PackedWeight& weight) {
  return has_packed_products(weight.type) ? weight.backward() : weight.data;
}

// Every tile that any routing may need.
template <typename Make>
void for_each_tile_size(int64_t most_rows, const Make& make) {
  const int64_t most = std::min(kTile, rounded_up(most_rows, kTileMultiple));
  for (int64_t rows = kTileMultiple; rows <= most; rows += kTileMultiple) make(rows);
}

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

// activated [rows, I] = silu(gate) up.
template <typename Element>
void activate(const Element* gate_up, int64_t rows, int64_t intermediate, Element* activated) {
  vectorised([&]() PENSTOCK_INLINE {
    for (int64_t r = 0; r < rows; ++r) {
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

// Scratch of one tile.
struct TileScratch {
  TileScratch(const ExpertShape& shape, DataType type) {
    const auto place = [&](int64_t elements, int64_t bytes) { return layout.add<char>(elements * bytes); };
    hidden = place(kTile * shape.hidden, size_bytes(type));
    gate_up = place(kTile * 2 * shape.intermediate, size_bytes(type));
    activated = place(kTile * shape.intermediate, 4);
    output = place(kTile * shape.hidden, size_bytes(type));
  }
  template <typename Element>
  static Element* at(float* scratch, int64_t offset) {
    return reinterpret_cast<Element*>(scratch + offset);
  }

  ScratchLayout layout;
  int64_t hidden, gate_up, activated, output;
};

template <typename Element>
void forward_tile(Context& context, const ExpertPiece& tile, const ExpertWeights& weights,
                  const TileScratch& places, const TensorView& payload, const TensorView& gate_up,
                  const TensorView& output) {
  float* const scratch = context.thread_scratch();
  const TileRows<Element> x(tile, payload, TileScratch::at<Element>(scratch, places.hidden));
  const TileRows<Element> gates(tile, gate_up, TileScratch::at<Element>(scratch, places.gate_up));
  const TileRows<Element> to(tile, output, TileScratch::at<Element>(scratch, places.output));
  auto* const activated = TileScratch::at<Element>(scratch, places.activated);
  context.made_product(forward_product(weights.gate_up, tile.filled))
      .run(x.filled(), weights.gate_up.forward(), gates.room());
  activate(gates.room(), tile.filled, weights.down.in, activated);
  gates.put_back();
  context.made_product(forward_product(weights.down, tile.filled))
      .run(activated, weights.down.forward(), to.room());
  to.put_back();
}

template <typename Element>
void backward_tile(Context& context, const ExpertPiece& tile, const ExpertWeights& weights,
                   const TileScratch& places, const ExpertInputGradient& rows) {
  float* const scratch = context.thread_scratch();
  const int64_t width = weights.down.in;
  const TileRows<Element> gradients(tile, rows.output_gradient,
                                    TileScratch::at<Element>(scratch, places.hidden));
  const TileRows<Element> gates(tile, rows.gate_up_gradient,
                                TileScratch::at<Element>(scratch, places.gate_up));
  const TileRows<Element> to(tile, rows.payload_gradient, TileScratch::at<Element>(scratch, places.output));
  auto* const activated_gradient = TileScratch::at<float>(scratch, places.activated);
  context.made_product(backward_product(weights.down, tile.filled, DataType::Float32))
      .run(gradients.filled(), backward_operand(weights.down), activated_gradient);
  vectorised([&]() PENSTOCK_INLINE {
    for (int64_t r = 0; r < tile.rows; ++r) {
      const int64_t row = tile.first + r;
      rows.weight_gradient.f32()[row] = activation_backward<Element>(
          {.gate_up = data<Element>(rows.gate_up) + row * 2 * width,
           .activated_gradient = activated_gradient + r * width,
           .weight = rows.weight.f32()[row],
           .weighted = data<Element>(rows.weighted) + row * width,
           .gate_up_gradient = data<Element>(rows.gate_up_gradient) + row * 2 * width},
          width);
    }
  });
  context.made_product(backward_product(weights.gate_up, tile.filled, weights.gate_up.type))
      .run(gates.filled(), backward_operand(weights.gate_up), to.room());
  to.put_back();
}

}  // namespace

void experts(Context& context, TensorView payload, TensorView offsets, std::span<const ExpertWeights> weights,
             TensorView gate_up, TensorView output) {
  const ExpertShape shape = expert_shape(payload, gate_up, offsets);
  check_weights(weights, shape);
  expect_matrix(output, shape.most_rows, shape.hidden, "output of the experts", shape.type);
  for_each_tile_size(shape.most_rows, [&](int64_t rows) {
    context.product(forward_product(weights[0].gate_up, rows));
    context.product(forward_product(weights[0].down, rows));
  });
  const TileScratch places(shape, shape.type);
  context.reserve_per_thread(places.layout.floats());
  const ExpertPieces tiles(offsets, kTile, kTileMultiple);
  with_element(shape.type, [&](auto element) {
    context.parallel_for(tiles.count(), [&](int64_t index) {
      const ExpertPiece tile = tiles[index];
      forward_tile<decltype(element)>(context, tile, weights[static_cast<size_t>(tile.expert)], places,
                                      payload, gate_up, output);
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
  for_each_tile_size(shape.most_rows, [&](int64_t count) {
    context.product(backward_product(weights[0].down, count, DataType::Float32));
    context.product(backward_product(weights[0].gate_up, count, shape.type));
  });
  const TileScratch places(shape, shape.type);
  context.reserve_per_thread(places.layout.floats());
  const ExpertPieces tiles(offsets, kTile, kTileMultiple);
  with_element(shape.type, [&](auto element) {
    context.parallel_for(tiles.count(), [&](int64_t index) {
      const ExpertPiece tile = tiles[index];
      backward_tile<decltype(element)>(context, tile, weights[static_cast<size_t>(tile.expert)], places,
                                       rows);
    });
  });
}

}  // namespace penstock::kernels::cpu
