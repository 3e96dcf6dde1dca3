// A dense feed-forward layer and one with routed experts of the same active operations, as a block runs them: forward
// and whole backward, the residual, the router and its losses included (worker/model/blocks/mlp.cc and experts.cc).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "kernels/device/slab.h"
#include "kernels/ops/operators.h"
#include "tests/perf/measure/product.h"

namespace penstock::perf {

struct LayerShape {
  int64_t tokens = 0;
  int64_t hidden = 0;
  int64_t intermediate = 0;  // of the dense network: that of the experts of a token together
  int64_t experts = 8;
  int64_t choices = 2;
  kernels::DataType type = kernels::DataType::Float32;

  int64_t of_an_expert() const { return intermediate / choices; }
  int64_t rows() const { return tokens * choices; }
};

// The products of each layer and nothing else; every expert has its share of the rows.
std::vector<Product> products_of_dense(const LayerShape& shape);
std::vector<Product> products_of_experts(const LayerShape& shape);

// What a layer does, one operation after another, and its tensors: random values, the same in every run.
class Layer {
 public:
  struct Part {
    std::string name;
    std::function<void()> run;
  };

  // As a block with one SwiGLU network, and with routed experts. `ops` must outlive it.
  static Layer dense(kernels::Operators& ops, const LayerShape& shape);
  static Layer experts(kernels::Operators& ops, const LayerShape& shape);

  void run() const {
    for (const Part& part : parts_) part.run();
  }
  const std::vector<Part>& parts() const { return parts_; }
  // Of the last run; none of the dense layer.
  std::vector<int64_t> rows_of_experts() const;

 private:
  explicit Layer(kernels::Operators& ops) : ops_(&ops) {}

  kernels::TensorView tensor(kernels::DataType type, std::initializer_list<int64_t> shape);
  kernels::PackedWeight packed(int64_t out, int64_t in, kernels::DataType type);
  void add(std::string name, std::function<void()> run) {
    parts_.push_back({std::move(name), std::move(run)});
  }

  kernels::Operators* ops_;
  std::deque<kernels::Slab> slabs_;
  std::mt19937 engine_{7};
  std::normal_distribution<float> distribution_{0, 0.1f};
  std::vector<Part> parts_;
  kernels::TensorView offsets_;
};

}  // namespace penstock::perf
