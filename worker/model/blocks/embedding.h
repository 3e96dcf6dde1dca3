// The embedding: tokens in, residual out.
//
// Saved, in this order:   tokens  [T] i32
#pragma once

#include "plan/spec/job_spec.h"
#include "worker/data/token_source.h"
#include "worker/model/blocks/item.h"
#include "worker/model/layout.h"
#include "worker/model/parameters.h"

namespace penstock::worker {

class EmbeddingItem final : public ModelItem {
 public:
  EmbeddingItem(const plan::JobSpec& job, const ParameterStore& parameters, TokenSource& source,
                Layout& layout);

  static void place(const plan::JobSpec& job, Layout& layout) { Saved(job, layout); }

  kernels::TensorView saved_residual(void*) const override { return {}; }
  Status forward(const ItemCall& call, kernels::TensorView output) override;
  void backward(const ItemCall& call, kernels::TensorView output_gradient, kernels::TensorView) override;

 private:
  struct Saved {
    Saved(const plan::JobSpec& job, Layout& layout);
    Place tokens;
  };
  Saved saved_;
  const Parameter& table_;
  TokenSource* source_;
};

}  // namespace penstock::worker
