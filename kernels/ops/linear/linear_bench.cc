// Our linear layer against one bare oneDNN product of the same shape on one thread.
//   build/release/bin/penstock_kernels_ops_bench --benchmark_filter=Linear
// What ours pays for: pieces of 128 rows that any number of threads may share, and a copy of the columns of a
// piece of the weight gradient.
#include <benchmark/benchmark.h>

#include <vector>

#include "kernels/ops/cpu/context.h"
#include "kernels/ops/operators.h"

namespace penstock::kernels {
namespace {

struct Tensors {
  explicit Tensors(const benchmark::State& state)
      : tokens(state.range(0)),
        in(state.range(1)),
        out(state.range(2)),
        x(tokens * in, 0.5f),
        w(out * in, 0.25f),
        y(tokens * out, 0.125f) {}

  TensorView input() { return {x.data(), DataType::Float32, {tokens, in}}; }
  TensorView weight() { return {w.data(), DataType::Float32, {out, in}}; }
  TensorView output() { return {y.data(), DataType::Float32, {tokens, out}}; }
  void report(benchmark::State& state) const {
    state.counters["flop/s"] = benchmark::Counter(2.0 * static_cast<double>(tokens * in * out),
                                                  benchmark::Counter::kIsIterationInvariantRate);
  }

  int64_t tokens, in, out;
  std::vector<float> x, w, y;
};

enum class Pass { Output, InputGradient, WeightGradient };

template <Pass pass>
void ours(benchmark::State& state) {
  Tensors t(state);
  ComputeThreads threads(1);
  const auto ops = make_cpu_operators(threads);
  for (auto _ : state) {
    switch (pass) {
      case Pass::Output:
        ops->linear(t.input(), t.weight(), t.output());
        break;
      case Pass::InputGradient:
        ops->linear_input_gradient(t.output(), t.weight(), t.input(), Operators::Accumulate::No);
        break;
      case Pass::WeightGradient:
        ops->linear_weight_gradient(t.output(), t.input(), t.weight());
        break;
    }
  }
  t.report(state);
}

template <Pass pass>
void bare(benchmark::State& state) {
  Tensors t(state);
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
  cpu::MatrixProduct& product = context.product(shapes[static_cast<int>(pass)]);
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

BENCHMARK_TEMPLATE(ours, Pass::Output)->Name("Linear/output/ours")->Apply(shapes);
BENCHMARK_TEMPLATE(bare, Pass::Output)->Name("Linear/output/bare")->Apply(shapes);
BENCHMARK_TEMPLATE(ours, Pass::InputGradient)->Name("Linear/input_gradient/ours")->Apply(shapes);
BENCHMARK_TEMPLATE(bare, Pass::InputGradient)->Name("Linear/input_gradient/bare")->Apply(shapes);
BENCHMARK_TEMPLATE(ours, Pass::WeightGradient)->Name("Linear/weight_gradient/ours")->Apply(shapes);
BENCHMARK_TEMPLATE(bare, Pass::WeightGradient)->Name("Linear/weight_gradient/bare")->Apply(shapes);

}  // namespace
}  // namespace penstock::kernels
