// Our linear layer against one bare oneDNN product of the same shape on operands as they lie, on one thread.
//   build/release/bin/penstock_kernels_ops_bench --benchmark_filter=Linear
// What ours gains: right operands in the kernel's own layout, weights once a step and activations once a call. What
// ours pays for: pieces of 128 rows that any number of threads may share.
#include <benchmark/benchmark.h>

#include <vector>

#include "kernels/device/slab.h"
#include "kernels/ops/cpu/context.h"
#include "kernels/ops/operators.h"

namespace penstock::kernels {
namespace {

struct Tensors {
  Tensors(const benchmark::State& state, DataType of)
      : tokens(state.range(0)),
        in(state.range(1)),
        out(state.range(2)),
        type(of),
        x(tokens * in, 0.5f),
        y(tokens * out, 0.125f),
        w(out * in, 0.25f) {}

  TensorView input() { return {x.data(), type, {tokens, in}}; }
  TensorView output() { return {y.data(), type, {tokens, out}}; }
  TensorView weight() { return {w.data(), DataType::Float32, {out, in}}; }
  void report(benchmark::State& state) const {
    state.counters["flop/s"] = benchmark::Counter(2.0 * static_cast<double>(tokens * in * out),
                                                  benchmark::Counter::kIsIterationInvariantRate);
  }

  int64_t tokens, in, out;
  DataType type;
  std::vector<float> x, y, w;  // room for float32; bfloat16 takes half of it
};

enum class Pass { Output, InputGradient, WeightGradient };

template <Pass pass, DataType type>
void ours(benchmark::State& state) {
  Tensors t(state, type);
  ComputeThreads threads(1);
  const auto ops = make_cpu_operators(threads);
  const Slab memory = Slab::allocate(packed_weight_bytes(t.out, t.in, type), "packed weight").value();
  const PackedWeight weight{t.out, t.in, type, memory.view().data};
  ops->pack(t.weight(), {weight, 0});
  const TensorView gradient = t.weight();
  for (auto _ : state) {
    switch (pass) {
      case Pass::Output:
        ops->linear(t.input(), weight, t.output());
        break;
      case Pass::InputGradient:
        ops->linear_input_gradient(t.output(), weight, t.input());
        break;
      case Pass::WeightGradient:
        ops->linear_weight_gradient(t.output(), t.input(), {&gradient, 1});
        break;
    }
  }
  t.report(state);
}

template <Pass pass, DataType type>
void bare(benchmark::State& state) {
  Tensors t(state, type);
  ComputeThreads threads(1);
  cpu::Context context(threads);
  const cpu::ProductShape shapes[] = {
      {.rows = t.tokens, .columns = t.out, .inner = t.in, .right = cpu::Operand::Transposed},
      {.rows = t.tokens, .columns = t.in, .inner = t.out},
      {.rows = t.out,
       .columns = t.in,
       .inner = t.tokens,
       .left = cpu::Operand::Transposed,
       .result = cpu::Result::Added}};
  cpu::ProductShape shape = shapes[static_cast<int>(pass)];
  shape.type = type;
  if (pass != Pass::WeightGradient) shape.output_type = type;
  cpu::MatrixProduct& product = context.product(shape);
  for (auto _ : state) {
    switch (pass) {
      case Pass::Output:
        product.run(t.x.data(), t.w.data(), t.y.data());
        break;
      case Pass::InputGradient:
        product.run(t.y.data(), t.w.data(), t.x.data());
        break;
      case Pass::WeightGradient:
        product.run(t.y.data(), t.x.data(), t.w.data());
        break;
    }
  }
  t.report(state);
}

void shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"tokens", "in", "out"});
  for (int64_t hidden : {128, 512}) {
    const int64_t intermediate = hidden * 11 / 4;
    benchmark->Args({512, hidden, hidden});
    benchmark->Args({512, hidden, intermediate});
    benchmark->Args({512, intermediate, hidden});
  }
}

#define PENSTOCK_BENCHMARK(pass, name, type, suffix)                                              \
  BENCHMARK_TEMPLATE(ours, Pass::pass, DataType::type)->Name(name "/ours" suffix)->Apply(shapes); \
  BENCHMARK_TEMPLATE(bare, Pass::pass, DataType::type)->Name(name "/bare" suffix)->Apply(shapes)

PENSTOCK_BENCHMARK(Output, "Linear/output", Float32, "/float32");
PENSTOCK_BENCHMARK(InputGradient, "Linear/input_gradient", Float32, "/float32");
PENSTOCK_BENCHMARK(WeightGradient, "Linear/weight_gradient", Float32, "/float32");
PENSTOCK_BENCHMARK(Output, "Linear/output", BFloat16, "/bfloat16");
PENSTOCK_BENCHMARK(InputGradient, "Linear/input_gradient", BFloat16, "/bfloat16");
PENSTOCK_BENCHMARK(WeightGradient, "Linear/weight_gradient", BFloat16, "/bfloat16");

}  // namespace
}  // namespace penstock::kernels
