// Routed experts: a router gives each token K of E SwiGLU networks, whose outputs are added up with its weights.
//
// Saved (T tokens, H hidden, E experts of intermediate I, K choices of a token, R rows: T x K, or the experts'
// capacities where that is less; a the activations' type):
//   probabilities  [T, E]    f32   of the router; the input gradient writes that of the logits over them
//   log_sum_exp    [T]       f32
//   expert         [T, K]    i32   the choices
//   weight         [T, K]    f32
//   row            [T, K]    i32   where the choices' rows stand
//   source         [R]       i32   and the way back
//   offsets        [E + 1]   i32   rows of each expert
//   gate_up        [R, 2 I]  a     the input gradient writes theirs over them
//   weighted       [R, I]    a     only where the backward is split, from I to W. Else it is the workspace's
// The payload [R, H] a, the experts' inputs, stands in a slot of the block's pool (worker/buffers/payload_pool.h). The
// forward leases it and the weight gradient, its last consumer, gives it back; a forward that keeps nothing does so at
// its own end. The experts' outputs are kept nowhere (kernels/ops/experts/contract.h).
//
// Losses: the balance loss of every sequence that the step really has, and the z-loss of its tokens, add their
// gradients to the router's; filled-up sequences count for nothing. The loss that is reported is without them.
#pragma once

#include <vector>

#include "plan/schedule/lowered.h"
#include "plan/spec/job_spec.h"
#include "worker/model/blocks/feed_forward.h"
#include "worker/model/expert_load.h"
#include "worker/model/layout.h"
#include "worker/model/parameters.h"
#include "worker/model/stage_payloads.h"

namespace penstock::worker {

class Experts final : public FeedForward {
 public:
  struct Saved {
    Saved(const plan::JobSpec& job, plan::BackwardForm form, Layout& layout);
    Place probabilities, log_sum_exp, expert, weight, row, source, offsets, gate_up, weighted;
  };
  Experts(const plan::JobSpec& job, LayerIndex layer, const ParameterStore& parameters, const Saved& saved,
          const BlockPayloads& payloads);

  Status forward(const ItemCall& call, kernels::TensorView x, kernels::TensorView added,
                 kernels::TensorView output) override;
  Status input_gradient(const ItemCall& call, kernels::TensorView output_gradient,
                        kernels::TensorView x_gradient) override;
  void weight_gradient(const ItemCall& call, kernels::TensorView output_gradient,
                       kernels::TensorView x) override;
  const ExpertLoad* load() const override { return &load_; }
  void clear_load() override { load_.clear(); }
  void forget_forwards() override;

 private:
  kernels::Routing routing(void* slot) const;
  kernels::Dispatch dispatch(void* slot) const;
  kernels::TensorView weighted(const ItemCall& call) const;
  kernels::TensorView payload(const ItemCall& call) const;
  std::span<const kernels::ExpertWeights> weights();
  kernels::RouterLossShape counted(const ItemCall& call) const;
  void note_load(const ItemCall& call, const kernels::Dispatch& dispatch, int64_t dropped);

  Saved saved_;
  PayloadPool* inputs_;
  std::vector<PayloadLease> leases_;  // of inputs, by activation slot
  Place payload_;                     // in its slot
  int64_t global_batch_size_;
  int64_t microbatch_size_;
  int64_t sequence_length_;
  int64_t capacity_;
  bool normalise_;
  kernels::RouterLossScales scales_;
  const Parameter& router_;
  std::vector<const Parameter*> gate_, down_;    // by expert; up shares gate's product
  std::vector<kernels::ExpertWeights> weights_;  // of the version that is read
  std::vector<kernels::ExpertGradients> gradients_;
  ExpertLoad load_;
};

}  // namespace penstock::worker
