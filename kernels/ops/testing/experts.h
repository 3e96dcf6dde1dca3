// A Mixture-of-Experts layer's tensors for tests: storage of a routing and a dispatch, and packed experts.
#pragma once

#include <memory>
#include <vector>

#include "kernels/ops/testing/packed.h"
#include "kernels/ops/testing/reference.h"

namespace penstock::kernels::testing {

using Ints = std::vector<int32_t>;

inline TensorView view(Ints& values, std::initializer_list<int64_t> shape) {
  return TensorView(values.data(), DataType::Int32, shape);
}

struct RoutingStorage {
  RoutingStorage(int64_t token_count, int64_t expert_count, int64_t choice_count)
      : tokens(token_count),
        experts(expert_count),
        choices(choice_count),
        probabilities(tokens * experts, NAN),
        log_sum_exp(tokens, NAN),
        weight(tokens * choices, NAN),
        expert(tokens * choices, -7) {}
  Routing views() {
    return {view(probabilities, {tokens, experts}), view(log_sum_exp, {tokens}),
            view(expert, {tokens, choices}), view(weight, {tokens, choices})};
  }

  int64_t tokens, experts, choices;
  Floats probabilities, log_sum_exp, weight;
  Ints expert;
};

struct DispatchStorage {
  DispatchStorage(int64_t token_count, int64_t choice_count, int64_t expert_count)
      : DispatchStorage(token_count, choice_count, expert_count, token_count * choice_count) {}
  DispatchStorage(int64_t token_count, int64_t choice_count, int64_t expert_count, int64_t most_rows)
      : tokens(token_count),
        choices(choice_count),
        row(tokens * choices, -7),
        source(most_rows, -7),
        offsets(expert_count + 1, -7) {}
  Dispatch views() {
    return {view(row, {tokens, choices}), view(source, {static_cast<int64_t>(source.size())}),
            view(offsets, {static_cast<int64_t>(offsets.size())})};
  }

  int64_t tokens, choices;
  Ints row, source, offsets;
};

// The masters, packed copies and gradients of some experts.
class ExpertSet {
 public:
  ExpertSet(Operators& ops, Random& random, int64_t experts, int64_t hidden, int64_t intermediate,
            DataType type)
      : hidden_(hidden), intermediate_(intermediate) {
    for (int64_t e = 0; e < experts; ++e) {
      for (Floats* each : {&gate.emplace_back(random.normal(intermediate * hidden, 0.5f)),
                           &up.emplace_back(random.normal(intermediate * hidden, 0.5f)),
                           &down.emplace_back(random.normal(intermediate * hidden, 0.5f))}) {
        if (type == DataType::BFloat16) Halves rounds(*each);
      }
      for (std::vector<Floats>* each : {&gate_gradient, &up_gradient, &down_gradient})
        each->emplace_back(intermediate * hidden, 0.25f);
    }
    for (size_t e = 0; e < gate.size(); ++e) {
      packed_.push_back(
          std::make_unique<Packed>(ops,
                                   std::initializer_list<TensorView>{view(gate[e], {intermediate, hidden}),
                                                                     view(up[e], {intermediate, hidden})},
                                   type));
      packed_.push_back(std::make_unique<Packed>(
          ops, std::initializer_list<TensorView>{view(down[e], {hidden, intermediate})}, type));
      weights_.push_back({packed_[2 * e]->weight(), packed_[2 * e + 1]->weight()});
      gradients_.push_back({view(gate_gradient[e], {intermediate, hidden}),
                            view(up_gradient[e], {intermediate, hidden}),
                            view(down_gradient[e], {hidden, intermediate})});
    }
  }

  std::span<const ExpertWeights> weights() const { return weights_; }
  std::span<const ExpertGradients> gradients() const { return gradients_; }

  std::vector<Floats> gate, up, down, gate_gradient, up_gradient, down_gradient;

 private:
  int64_t hidden_, intermediate_;
  std::vector<std::unique_ptr<Packed>> packed_;
  std::vector<ExpertWeights> weights_;
  std::vector<ExpertGradients> gradients_;
};

// A matrix of float32, or the same values of bfloat16.
class Matrix {
 public:
  Matrix(Floats values, int64_t columns, DataType type)
      : wide_(std::move(values)), narrow_(int64_t{0}), columns_(columns), type_(type) {
    if (type == DataType::BFloat16) narrow_ = Halves(wide_);
  }
  // To be written.
  Matrix(int64_t rows, int64_t columns, DataType type)
      : wide_(rows * columns, NAN), narrow_(rows * columns), columns_(columns), type_(type) {}

  TensorView view() {
    const auto rows = static_cast<int64_t>(wide_.size()) / columns_;
    return type_ == DataType::BFloat16 ? narrow_.view({rows, columns_})
                                       : testing::view(wide_, {rows, columns_});
  }
  Floats values() const { return type_ == DataType::BFloat16 ? narrow_.widened() : wide_; }

 private:
  Floats wide_;
  Halves narrow_;
  int64_t columns_;
  DataType type_;
};

}  // namespace penstock::kernels::testing
