// Every operation of one training step, at the sizes of a small model: where the time of a block goes.
//   build/release/bin/penstock_kernels_ops_bench --benchmark_filter=Operator
#include <benchmark/benchmark.h>

#include <bit>
#include <string>
#include <vector>

#include "kernels/device/slab.h"
#include "kernels/ops/operators.h"

namespace penstock::kernels {
namespace {

constexpr int64_t kVocabulary = 256;
constexpr int64_t kLength = 128;
constexpr int64_t kTokens = 4 * kLength;

// Tensors of [rows, columns] by number, in float32 or bfloat16, and two packed weights.
class Model {
 public:
  Model(int64_t hidden, int threads, DataType of)
      : h(hidden),
        intermediate(hidden * 11 / 4),
        type(of),
        threads_(threads),
        ops(make_cpu_operators(threads_)) {
    for (std::vector<float>& each : storage_) {
      each.resize(std::max(kTokens, kVocabulary) * intermediate);
      for (size_t i = 0; i < each.size(); ++i) {
        // The same number as a float32 or, twice, as a bfloat16.
        const BFloat16 value = to_bfloat16(static_cast<float>(i * 2654435761u % 1000) / 1000 - 0.5f);
        const uint32_t bits =
            static_cast<uint32_t>(value.bits) << 16 | (of == DataType::BFloat16 ? value.bits : 0);
        each[i] = std::bit_cast<float>(bits);
      }
    }
    for (int64_t t = 0; t < kTokens; ++t) tokens_.push_back(static_cast<int32_t>(t * 37 % kVocabulary));
    square_ = pack(h);
    vocabulary_ = pack(kVocabulary);
  }

  TensorView tensor(int index, int64_t rows, int64_t columns) {
    return {storage_[index].data(), type, {rows, columns}};
  }
  TensorView wide_f32(int index, int64_t rows, int64_t columns) {
    return {storage_[index].data(), DataType::Float32, {rows, columns}};
  }
  TensorView hidden(int index) { return tensor(index, kTokens, h); }
  TensorView wide(int index) { return tensor(index, kTokens, intermediate); }
  TensorView row(int index, int64_t elements) {
    return {storage_[index].data(), DataType::Float32, {elements}};
  }
  TensorView tokens() { return {tokens_.data(), DataType::Int32, {kTokens}}; }
  AttentionShape attention() const { return {kTokens / kLength, kLength, 4, 4, h / 4}; }
  const PackedWeight& square() const { return square_; }
  const PackedWeight& vocabulary() const { return vocabulary_; }

  int64_t h, intermediate;
  DataType type;

 private:
  PackedWeight pack(int64_t out) {
    PackedWeight weight{out, h, type, nullptr};
    packed_.push_back(Slab::allocate(packed_weight_bytes(out, h, type), "packed weight").value());
    weight.data = packed_.back().view().data;
    ops->pack(wide_f32(9, out, h), {weight, 0});
    return weight;
  }

  ComputeThreads threads_;
  std::vector<float> storage_[10] = {};
  std::vector<int32_t> tokens_;
  std::vector<Slab> packed_;
  PackedWeight square_, vocabulary_;

 public:
  std::unique_ptr<Operators> ops;
};

using Step = void (*)(Model&);
struct Operation {
  const char* name;
  Step run;
};

const Operation kOperations[] = {
    {"embedding",
     [](Model& m) { m.ops->embedding(m.tokens(), m.wide_f32(0, kVocabulary, m.h), m.hidden(1)); }},
    {"embedding_backward",
     [](Model& m) { m.ops->embedding_backward(m.tokens(), m.hidden(1), m.wide_f32(0, kVocabulary, m.h)); }},
    {"rms_norm",
     [](Model& m) { m.ops->rms_norm(m.hidden(0), m.row(1, m.h), 1e-5, m.hidden(2), m.row(3, kTokens)); }},
    {"rms_norm_backward",
     [](Model& m) {
       m.ops->rms_norm_backward(m.hidden(0), m.row(1, m.h), m.row(3, kTokens), m.hidden(4), m.hidden(5),
                                m.row(6, m.h));
     }},
    {"linear", [](Model& m) { m.ops->linear(m.hidden(0), m.square(), m.hidden(2)); }},
    {"linear_input_gradient",
     [](Model& m) { m.ops->linear_input_gradient(m.hidden(0), m.square(), m.hidden(2)); }},
    {"linear_weight_gradient",
     [](Model& m) {
       const TensorView gradient = m.wide_f32(3, m.h, m.h);
       m.ops->linear_weight_gradient(m.hidden(0), m.hidden(1), {&gradient, 1});
     }},
    {"rope", [](Model& m) { m.ops->rope(m.hidden(0), kLength, m.h / 4, 10000); }},
    {"attention",
     [](Model& m) {
       m.ops->attention(m.attention(), m.hidden(0), m.hidden(1), m.hidden(2), m.hidden(3),
                        m.row(4, kTokens * 4));
     }},
    {"attention_backward",
     [](Model& m) {
       m.ops->attention_backward(m.attention(), m.hidden(0), m.hidden(1), m.hidden(2), m.hidden(3),
                                 m.row(4, kTokens * 4), m.hidden(5), m.hidden(6), m.hidden(7), m.hidden(8));
     }},
    {"swiglu", [](Model& m) { m.ops->swiglu(m.wide(0), m.wide(1), m.wide(2)); }},
    {"swiglu_backward",
     [](Model& m) { m.ops->swiglu_backward(m.wide(0), m.wide(1), m.wide(2), m.wide(3), m.wide(4)); }},
    {"add", [](Model& m) { m.ops->add(m.hidden(0), m.hidden(1), m.hidden(2)); }},
    {"head_loss_and_gradients",
     [](Model& m) {
       m.ops->head_loss_and_gradients(m.hidden(0), m.vocabulary(), m.tokens(), 1e-3, m.hidden(3),
                                      m.wide_f32(4, kVocabulary, m.h));
     }},
    {"sum_of_squares", [](Model& m) { m.ops->sum_of_squares(m.wide_f32(0, m.intermediate, m.h)); }},
    {"adamw",
     [](Model& m) {
       m.ops->fill(m.wide_f32(3, m.intermediate, m.h), 0.5f);
       m.ops->adamw(m.wide_f32(0, m.intermediate, m.h), m.wide_f32(1, m.intermediate, m.h),
                    m.wide_f32(2, m.intermediate, m.h), m.wide_f32(3, m.intermediate, m.h),
                    {.learning_rate = 1e-9});
     }},
};

const bool registered = [] {
  for (const Operation& operation : kOperations) {
    for (const DataType type : {DataType::Float32, DataType::BFloat16}) {
      const std::string name =
          std::string("Operator/") + operation.name + (type == DataType::BFloat16 ? "/bfloat16" : "/float32");
      benchmark::RegisterBenchmark(name.c_str(),
                                   [run = operation.run, type](benchmark::State& state) {
                                     Model model(state.range(0), static_cast<int>(state.range(1)), type);
                                     for (auto _ : state) run(model);
                                   })
          ->ArgNames({"hidden", "threads"})
          ->Args({128, 1})
          ->Args({512, 1})
          ->Args({512, 2})
          ->UseRealTime();
    }
  }
  return true;
}();

}  // namespace
}  // namespace penstock::kernels
