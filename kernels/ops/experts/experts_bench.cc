// A Mixture-of-Experts feed-forward, router and dispatch included, against a dense one of the same active operations:
// two of eight experts of I / 2 beside one network of I. Forward and whole backward, on one thread.
//   build/release/bin/penstock_kernels_ops_bench --benchmark_filter=FeedForward
#include <benchmark/benchmark.h>

#include <array>
#include <deque>
#include <random>
#include <vector>

#include "kernels/device/slab.h"
#include "kernels/ops/operators.h"

namespace penstock::kernels {
namespace {

constexpr int64_t kExperts = 8;
constexpr int64_t kChoices = 2;

// Owns tensors of random values and packed weights.
class Memory {
 public:
  TensorView tensor(DataType type, std::initializer_list<int64_t> shape) {
    const TensorView sized(nullptr, type, shape);
    slabs_.push_back(Slab::allocate(std::max<int64_t>(sized.bytes(), 64), "tensor").value());
    const TensorView made(slabs_.back().view().data, type, shape);
    for (int64_t i = 0; i < made.elements(); ++i) {
      const float value = distribution_(engine_);
      if (type == DataType::BFloat16) made.bf16()[i] = to_bfloat16(value);
      if (type == DataType::Float32) made.f32()[i] = value;
    }
    return made;
  }
  PackedWeight packed(Operators& ops, int64_t out, int64_t in, DataType type) {
    slabs_.push_back(Slab::allocate(packed_weight_bytes(out, in, type), "packed weight").value());
    const PackedWeight weight{out, in, type, slabs_.back().view().data};
    ops.pack(tensor(DataType::Float32, {out, in}), {weight, 0});
    return weight;
  }

 private:
  std::deque<Slab> slabs_;
  std::mt19937 engine_{7};
  std::normal_distribution<float> distribution_{0, 0.1f};
};

void report(benchmark::State& state, int64_t tokens, int64_t hidden, int64_t intermediate) {
  state.counters["flop/s"] = benchmark::Counter(18.0 * static_cast<double>(tokens * hidden * intermediate),
                                                benchmark::Counter::kIsIterationInvariantRate);
}

template <DataType type>
void dense(benchmark::State& state) {
  const int64_t tokens = state.range(0), h = state.range(1), i = state.range(2);
  ComputeThreads threads(1);
  const auto ops = make_cpu_operators(threads);
  Memory memory;
  const PackedWeight gate_up_weight = memory.packed(*ops, 2 * i, h, type);
  const PackedWeight down_weight = memory.packed(*ops, h, i, type);
  const TensorView x = memory.tensor(type, {tokens, h}), y = memory.tensor(type, {tokens, h});
  const TensorView dx = memory.tensor(type, {tokens, h});
  const TensorView gate_up = memory.tensor(type, {tokens, 2 * i}),
                   dgate_up = memory.tensor(type, {tokens, 2 * i});
  const TensorView activated = memory.tensor(type, {tokens, i}),
                   dactivated = memory.tensor(type, {tokens, i});
  const std::array gradients = {memory.tensor(DataType::Float32, {i, h}),
                                memory.tensor(DataType::Float32, {i, h})};
  const TensorView down_gradient = memory.tensor(DataType::Float32, {h, i});
  for (auto _ : state) {
    ops->linear(x, gate_up_weight, gate_up);
    ops->swiglu(gate_up.columns(0, i), gate_up.columns(i, i), activated);
    ops->linear(activated, down_weight, y, x);
    ops->linear_input_gradient(x, down_weight, dactivated);
    ops->swiglu_backward(gate_up.columns(0, i), gate_up.columns(i, i), dactivated, dgate_up.columns(0, i),
                         dgate_up.columns(i, i), activated);
    ops->linear_weight_gradient(x, activated, {&down_gradient, 1});
    ops->linear_input_gradient(dgate_up, gate_up_weight, dx);
    ops->linear_weight_gradient(dgate_up, x, gradients);
  }
  report(state, tokens, h, i);
}

template <DataType type>
void mixture(benchmark::State& state) {
  const int64_t tokens = state.range(0), h = state.range(1), i = state.range(2) / kChoices;
  const int64_t rows = tokens * kChoices;
  constexpr DataType kWide = DataType::Float32;
  ComputeThreads threads(1);
  const auto ops = make_cpu_operators(threads);
  Memory memory;
  std::vector<ExpertWeights> weights;
  std::vector<ExpertGradients> gradients;
  for (int64_t e = 0; e < kExperts; ++e) {
    weights.push_back({memory.packed(*ops, 2 * i, h, type), memory.packed(*ops, h, i, type)});
    gradients.push_back(
        {memory.tensor(kWide, {i, h}), memory.tensor(kWide, {i, h}), memory.tensor(kWide, {h, i})});
  }
  const TensorView router = memory.tensor(kWide, {kExperts, h}),
                   router_gradient = memory.tensor(kWide, {kExperts, h});
  const Routing routing{memory.tensor(kWide, {tokens, kExperts}), memory.tensor(kWide, {tokens}),
                        memory.tensor(DataType::Int32, {tokens, kChoices}),
                        memory.tensor(kWide, {tokens, kChoices})};
  const Dispatch dispatch{memory.tensor(DataType::Int32, {tokens, kChoices}),
                          memory.tensor(DataType::Int32, {rows}),
                          memory.tensor(DataType::Int32, {kExperts + 1})};
  const TensorView x = memory.tensor(type, {tokens, h}), y = memory.tensor(type, {tokens, h});
  const TensorView dx = memory.tensor(type, {tokens, h}), payload = memory.tensor(type, {rows, h});
  const TensorView outputs = memory.tensor(type, {rows, h}), output_gradient = memory.tensor(type, {rows, h});
  const TensorView gate_up = memory.tensor(type, {rows, 2 * i}), weighted = memory.tensor(type, {rows, i});
  const TensorView row_weight = memory.tensor(kWide, {rows}), row_gradient = memory.tensor(kWide, {rows});
  const TensorView choice_gradient = memory.tensor(kWide, {tokens, kChoices});
  const RouterLossShape counted{4, tokens / 4};
  for (auto _ : state) {
    ops->router(x, router, true, routing);
    ops->router_losses(routing, counted);
    ops->plan_dispatch(routing.expert, 0, dispatch);
    ops->gather_rows(x, dispatch, payload);
    ops->experts(payload, dispatch.offsets, weights, gate_up, outputs);
    ops->combine_rows(outputs, dispatch, routing.weight, x, y);
    ops->gather_rows(x, dispatch, output_gradient);
    ops->gather_choices(routing.weight, dispatch, row_weight);
    ops->experts_input_gradient(
        {output_gradient, row_weight, gate_up, gate_up, weighted, row_gradient, outputs}, dispatch.offsets,
        weights);
    ops->return_choices(row_gradient, dispatch, choice_gradient);
    ops->router_gradient(routing, true, choice_gradient, counted, {0.01, 0.001}, routing.probabilities);
    ops->router_input_gradient(routing.probabilities, router, dx);
    ops->combine_rows(outputs, dispatch, {}, dx, dx);
    ops->experts_weight_gradient({payload, output_gradient, gate_up, weighted}, dispatch.offsets, gradients);
    ops->router_weight_gradient(routing.probabilities, x, router_gradient);
  }
  report(state, tokens, h, i * kChoices);
}

void shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"tokens", "hidden", "intermediate"});
  benchmark->Args({512, 128, 352})->Args({2048, 256, 704})->Args({2048, 512, 1408});
}

BENCHMARK_TEMPLATE(dense, DataType::Float32)->Name("FeedForward/dense/float32")->Apply(shapes);
BENCHMARK_TEMPLATE(mixture, DataType::Float32)->Name("FeedForward/experts/float32")->Apply(shapes);
BENCHMARK_TEMPLATE(dense, DataType::BFloat16)->Name("FeedForward/dense/bfloat16")->Apply(shapes);
BENCHMARK_TEMPLATE(mixture, DataType::BFloat16)->Name("FeedForward/experts/bfloat16")->Apply(shapes);

}  // namespace
}  // namespace penstock::kernels
