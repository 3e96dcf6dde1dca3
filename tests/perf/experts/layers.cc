#include "tests/perf/experts/layers.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "kernels/tensor/bfloat16.h"

namespace penstock::perf {

using kernels::DataType;
using kernels::Dispatch;
using kernels::ExpertGradients;
using kernels::ExpertWeights;
using kernels::Operators;
using kernels::PackedWeight;
using kernels::Routing;
using kernels::Slab;
using kernels::TensorView;

namespace {

constexpr int64_t kSequences = 4;

void add_linear(std::vector<Product>& products, const std::string& name, const Product& shape) {
  Product product = shape;
  product.name = name;
  products.push_back(product);
  std::swap(product.columns, product.inner);
  product.name = name + " input gradient";
  products.push_back(product);
  products.push_back({name + " weight gradient", shape.columns, shape.inner, shape.rows, shape.count,
                      Product::Kind::WeightGradient});
}

std::vector<Product> products_of(const LayerShape& shape, int64_t networks, int64_t rows,
                                 int64_t intermediate) {
  std::vector<Product> products;
  add_linear(
      products, "gate, up",
      {.name = "", .rows = rows, .columns = 2 * intermediate, .inner = shape.hidden, .count = networks});
  add_linear(products, "down",
             {.name = "", .rows = rows, .columns = shape.hidden, .inner = intermediate, .count = networks});
  return products;
}

}  // namespace

std::vector<Product> products_of_dense(const LayerShape& shape) {
  return products_of(shape, 1, shape.tokens, shape.intermediate);
}
std::vector<Product> products_of_experts(const LayerShape& shape) {
  return products_of(shape, shape.experts, shape.rows() / shape.experts, shape.of_an_expert());
}

TensorView Layer::tensor(DataType type, std::initializer_list<int64_t> shape) {
  const TensorView sized(nullptr, type, shape);
  StatusOr<Slab> slab = Slab::allocate(std::max<int64_t>(sized.bytes(), 64), "a tensor");
  PENSTOCK_CHECK(slab.ok(), "{}", message(slab.status()));
  slabs_.push_back(*std::move(slab));
  const TensorView made(slabs_.back().view().data, type, shape);
  for (int64_t i = 0; i < made.elements() && type != DataType::Int32; ++i) {
    const float value = distribution_(engine_);
    if (type == DataType::BFloat16) {
      made.bf16()[i] = kernels::to_bfloat16(value);
    } else {
      made.f32()[i] = value;
    }
  }
  return made;
}

PackedWeight Layer::packed(int64_t out, int64_t in, DataType type) {
  const TensorView master = tensor(DataType::Float32, {out, in});
  StatusOr<Slab> slab = Slab::allocate(packed_weight_bytes(out, in, type), "a packed weight");
  PENSTOCK_CHECK(slab.ok(), "{}", message(slab.status()));
  slabs_.push_back(*std::move(slab));
  const PackedWeight weight{out, in, type, slabs_.back().view().data};
  ops_->pack(master, {weight, 0});
  return weight;
}

std::vector<int64_t> Layer::rows_of_experts() const {
  std::vector<int64_t> rows;
  for (int64_t e = 0; e + 1 < offsets_.elements(); ++e) {
    rows.push_back(offsets_.i32()[e + 1] - offsets_.i32()[e]);
  }
  return rows;
}

Layer Layer::dense(Operators& ops, const LayerShape& shape) {
  Layer layer(ops);
  const int64_t tokens = shape.tokens, h = shape.hidden, i = shape.intermediate;
  const auto rows_of = [&](int64_t width) { return layer.tensor(shape.type, {tokens, width}); };
  const auto wide = [&](int64_t rows, int64_t columns) {
    return layer.tensor(DataType::Float32, {rows, columns});
  };
  const PackedWeight gate_up_weight = layer.packed(2 * i, h, shape.type);
  const PackedWeight down_weight = layer.packed(h, i, shape.type);
  const std::array gradients = {wide(i, h), wide(i, h)};
  const TensorView down_gradient = wide(h, i);
  const TensorView x = rows_of(h), added = rows_of(h), y = rows_of(h), dy = rows_of(h), dx = rows_of(h);
  const TensorView activated = rows_of(i), dactivated = rows_of(i), gate_up = rows_of(2 * i);
  const TensorView gate = gate_up.columns(0, i), up = gate_up.columns(i, i);

  layer.add("gate, up", [=, &ops] { ops.linear(x, gate_up_weight, gate_up); });
  layer.add("swiglu", [=, &ops] { ops.swiglu(gate, up, activated); });
  layer.add("down", [=, &ops] { ops.linear(activated, down_weight, y, added); });
  layer.add("down input gradient", [=, &ops] { ops.linear_input_gradient(dy, down_weight, dactivated); });
  layer.add("swiglu backward", [=, &ops] { ops.swiglu_backward(gate, up, dactivated, gate, up, activated); });
  layer.add("gate, up input gradient", [=, &ops] { ops.linear_input_gradient(gate_up, gate_up_weight, dx); });
  layer.add("down weight gradient", [=, &ops] {
    ops.linear_weight_gradient(dy, activated, {&down_gradient, 1});
  });
  layer.add("gate, up weight gradient", [=, &ops] { ops.linear_weight_gradient(gate_up, x, gradients); });
  return layer;
}

Layer Layer::experts(Operators& ops, const LayerShape& shape) {
  Layer layer(ops);
  const int64_t tokens = shape.tokens, h = shape.hidden, i = shape.of_an_expert(), rows = shape.rows();
  const auto tensor = [&](int64_t count, int64_t width) { return layer.tensor(shape.type, {count, width}); };
  const auto wide = [&](int64_t count, int64_t width) {
    return layer.tensor(DataType::Float32, {count, width});
  };
  const auto wide_row = [&](int64_t count) { return layer.tensor(DataType::Float32, {count}); };
  const auto indices = [&](std::initializer_list<int64_t> sizes) {
    return layer.tensor(DataType::Int32, sizes);
  };
  std::vector<ExpertWeights> weights;
  std::vector<ExpertGradients> gradients;
  for (int64_t e = 0; e < shape.experts; ++e) {
    weights.push_back({layer.packed(2 * i, h, shape.type), layer.packed(h, i, shape.type)});
    gradients.push_back({wide(i, h), wide(i, h), wide(h, i)});
  }
  const TensorView router = wide(shape.experts, h), router_gradient = wide(shape.experts, h);
  const Routing routing{wide(tokens, shape.experts), wide_row(tokens), indices({tokens, shape.choices}),
                        wide(tokens, shape.choices)};
  const Dispatch dispatch{indices({tokens, shape.choices}), indices({rows}), indices({shape.experts + 1})};
  const TensorView x = tensor(tokens, h), added = tensor(tokens, h), y = tensor(tokens, h);
  const TensorView dy = tensor(tokens, h), dx = tensor(tokens, h);
  const TensorView payload = tensor(rows, h), expert_rows = tensor(rows, h), dpayload = tensor(rows, h);
  const TensorView gate_up = tensor(rows, 2 * i), weighted = tensor(rows, i);
  const TensorView row_weight = wide_row(rows), row_gradient = wide_row(rows);
  const TensorView choice_gradient = wide(tokens, shape.choices);
  const TensorView logit_gradient = routing.probabilities;
  const kernels::RouterLossShape counted{kSequences, tokens / kSequences};

  layer.offsets_ = dispatch.offsets;

  layer.add("router", [=, &ops] { ops.router(x, router, true, routing); });
  layer.add("plan dispatch", [=, &ops] { ops.plan_dispatch(routing.expert, 0, dispatch); });
  layer.add("gather payload", [=, &ops] { ops.gather_rows(x, dispatch, payload); });
  layer.add("experts", [=, &ops] { ops.experts(payload, dispatch.offsets, weights, gate_up, expert_rows); });
  layer.add("combine", [=, &ops] { ops.combine_rows(expert_rows, dispatch, routing.weight, added, y); });
  layer.add("router losses", [=, &ops] { ops.router_losses(routing, counted); });
  layer.add("gather gradients", [=, &ops] {
    ops.gather_rows(dy, dispatch, expert_rows);
    ops.gather_choices(routing.weight, dispatch, row_weight);
  });
  layer.add("experts input gradient", [=, &ops] {
    ops.experts_input_gradient({expert_rows, row_weight, gate_up, gate_up, weighted, row_gradient, dpayload},
                               dispatch.offsets, weights);
  });
  layer.add("router gradient", [=, &ops] {
    ops.return_choices(row_gradient, dispatch, choice_gradient);
    ops.router_gradient(routing, true, choice_gradient, counted, {0.01, 0.001}, logit_gradient);
    ops.router_input_gradient(logit_gradient, router, dx);
  });
  layer.add("combine gradients", [=, &ops] { ops.combine_rows(dpayload, dispatch, {}, dx, dx); });
  layer.add("experts weight gradient", [=, &ops] {
    ops.experts_weight_gradient({payload, expert_rows, gate_up, weighted}, dispatch.offsets, gradients);
  });
  layer.add("router weight gradient",
            [=, &ops] { ops.router_weight_gradient(logit_gradient, x, router_gradient); });
  return layer;
}

}  // namespace penstock::perf
