// The parameters that one rank owns: FP32 master weights and FP32 gradients, one slab each, in model order.
//
// Tied embeddings: the matrix is the parameter of the embedding, wherever its head is. Each of the two adds to a
// gradient accumulator of its own (numerics contract), so a rank that holds the head has a second one; without
// the embedding it also has a copy of the weight, which the owner renews after each step. Values do not depend on placement: a parameter's initial bits are a function of (seed, name, element), and
// its digest of its own bytes. Addresses are fixed from creation on. Thread: the interpreter's.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/device/compute_threads.h"
#include "kernels/device/slab.h"
#include "kernels/ops/operators.h"
#include "kernels/tensor/tensor.h"
#include "plan/spec/parameters.h"
#include "worker/model/layout.h"

namespace penstock::worker {

// XXH3-128 of the FP32 bytes of one parameter, most significant byte first.
struct WeightDigest {
  int32_t parameter = 0;  // place in model order
  std::array<uint8_t, 16> digest{};
};

struct Parameter {
  plan::ParameterSpec spec;
  kernels::TensorView weight;    // of spec.shape, f32
  kernels::TensorView gradient;  // of spec.shape, f32
};

class ParameterStore {
 public:
  // All parameters of `items`, and what a tied head needs, zero. ResourceExhausted: no memory, with the bytes asked for.
  static StatusOr<ParameterStore> create(const plan::ModelSpec& model, const std::vector<plan::Item>& items);

  // The copy of a tied weight gets its owner's bits. Ones for norms, normal(0, initializer_range) for the others; the same bits with any number of threads.
  void initialise(const plan::ModelSpec& model, int64_t seed, kernels::ComputeThreads& threads);
  void initialise(const plan::ModelSpec& model, int64_t seed);  // on the calling thread
  void zero_gradients(kernels::Operators& operators);

  // In model order.
  std::span<const Parameter> parameters() const { return parameters_; }
  // By full name; the name must be one of this rank's.
  const Parameter& at(const std::string& name) const;
  // The matrix of a tied head with the head's accumulator; null where the rank has none. Its spec is that of
  // the embedding.
  const Parameter* tied_head() const { return tied_head_ ? &*tied_head_ : nullptr; }
  // The embedding's matrix where the model is tied and this rank owns it; null otherwise.
  const Parameter* tied_embedding() const;
  // The matrix that this rank's head multiplies with, tied or not.
  const Parameter& head_weight() const;

  std::vector<WeightDigest> digests() const;

  // Memory account, a tied head's share included.
  int64_t parameter_bytes() const { return weights_.bytes(); }
  int64_t gradient_bytes() const { return gradients_.bytes(); }

 private:
  ParameterStore() = default;

  kernels::Slab weights_;
  kernels::Slab gradients_;
  std::vector<Parameter> parameters_;
  std::optional<Parameter> tied_head_;
  bool tied_ = false;
};

// Lays out an f32 tensor of the parameter's shape: weight, gradient or moment.
Place place_of(const plan::ParameterSpec& spec, Layout& layout);

// The first elements.size() values of parameter `name` under `seed`, normal(0, deviation).
void fill_normal(int64_t seed, const std::string& name, double deviation, std::span<float> elements);

}  // namespace penstock::worker
