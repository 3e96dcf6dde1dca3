// The parameters that one rank owns: FP32 master weights and FP32 gradients, one slab each, in model order.
//
// Packed weights: products read copies of the matrices in the activations' type and in the layout that kernels like
// (kernels/ops/packed_weight.h), renewed by the optimizer once a step. Matrices that multiply the same input share
// one: query, key and value; gate and up.
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
  kernels::PackedRows packed{};  // of a matrix that products read: its rows of a packed weight
  kernels::TensorView value{};   // what is read where no product is: the weight, or an older version of it
};

class ParameterStore {
 public:
  // All parameters of `items`, of their experts these, and what a tied head needs, zero. `type`: of the packed weights.
  // ResourceExhausted: no memory, with the bytes asked for.
  static StatusOr<ParameterStore> create(const plan::ModelSpec& model, const std::vector<plan::Item>& items,
                                         kernels::DataType type = kernels::DataType::Float32,
                                         const plan::ExpertRange& experts = {});

  // The copy of a tied weight gets its owner's bits. Ones for norms, normal(0, initializer_range) for the others; the same bits with any number of threads.
  void initialise(const plan::ModelSpec& model, int64_t seed, kernels::ComputeThreads& threads);
  void initialise(const plan::ModelSpec& model, int64_t seed);  // on the calling thread
  void zero_gradients(kernels::Operators& operators);
  // Only that of a tied head: the others are made zero by the optimizer that reads them.
  void zero_tied_gradient(kernels::Operators& operators);
  // Renews the packed weights. Needed when anything but the optimizer has written weights.
  void pack(kernels::Operators& operators) const;

  // In model order.
  std::span<const Parameter> parameters() const { return parameters_; }
  // The same, for WeightVersions to point `packed` and `value` at the version that computations are to read.
  std::span<Parameter> redirected() { return parameters_; }
  // Those of some of the rank's items, in model order.
  std::vector<const Parameter*> of_items(const std::vector<plan::Item>& items) const;
  // By full name; the name must be one of this rank's.
  const Parameter& at(const std::string& name) const;
  // Of a block, by the part that follows its prefix: "self_attn.q_proj".
  const Parameter& of_layer(LayerIndex layer, const std::string& part) const {
    return at(fmt::format("model.layers.{}.{}.weight", layer.value, part));
  }
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
  int64_t packed_bytes() const { return packed_.bytes(); }
  kernels::SlabView packed() const { return packed_.view(); }

 private:
  ParameterStore() = default;

  Status lay_out_packed(kernels::DataType type);
  std::vector<std::vector<Parameter*>> products();

  kernels::Slab weights_;
  kernels::Slab gradients_;
  kernels::Slab packed_;
  std::vector<Parameter> parameters_;
  std::optional<Parameter> tied_head_;
  bool tied_ = false;
};

// Lays out an f32 tensor of the parameter's shape: weight, gradient or moment.
Place place_of(const plan::ParameterSpec& spec, Layout& layout);

// The first elements.size() values of parameter `name` under `seed`, normal(0, deviation).
void fill_normal(int64_t seed, const std::string& name, double deviation, std::span<float> elements);

}  // namespace penstock::worker
