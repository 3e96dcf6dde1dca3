// The embedding: tokens in, residual out.
//
// Saved, in this order:
//   tokens           [T]     i32
//   output_gradient  [T, H]  a    only where the backward is split: from I, which has nothing else to do, to W. Adding
//                                 it in I would save its room and make the order of the table's sums that of the I
#pragma once

#include "plan/schedule/lowered.h"
#include "plan/spec/job_spec.h"
#include "worker/data/token_source.h"
#include "worker/model/blocks/item.h"
#include "worker/model/layout.h"
#include "worker/model/parameters.h"

namespace penstock::worker {

class EmbeddingItem final : public ModelItem {
 public:
  EmbeddingItem(const plan::JobSpec& job, const ParameterStore& parameters, TokenSource& source,
                plan::BackwardForm form, Layout& layout);

  static void place(const plan::JobSpec& job, plan::BackwardForm form, Layout& layout) {
    Saved(job, form, layout);
  }

  kernels::TensorView saved_residual(void*) const override { return {}; }
  Status forward(const ItemCall& call, kernels::TensorView output) override;
  Status backward(const ItemCall& call, kernels::TensorView output_gradient, kernels::TensorView) override;
  kernels::TensorView saved_output_gradient(void* slot) const override {
    return saved_.output_gradient.in(slot);
  }
  Status input_gradient(const ItemCall&, kernels::TensorView, kernels::TensorView) override {
    return ok_status();
  }
  void weight_gradient(const ItemCall& call) override;

 private:
  struct Saved {
    Saved(const plan::JobSpec& job, plan::BackwardForm form, Layout& layout);
    Place tokens, output_gradient;
  };
  void add_gradient(const ItemCall& call, kernels::TensorView output_gradient) const;

  Saved saved_;
  const Parameter& table_;
  TokenSource* source_;
};

}  // namespace penstock::worker
