// Routed experts: a router gives each token K of E SwiGLU networks, whose outputs are added up with its weights.
//
// Where N ranks share the experts out (parallel.expert), a rank's rows travel to the ranks of their experts and what they
// made of them comes back (worker/collectives/row_exchange.h); there the rows of all ranks stand by expert, source and
// token. Outputs and input gradients of a token are the bits of one rank; an expert's weight gradient is the sum over the
// rows of all ranks in that order.
//
// Shared experts are one network beside them that every token goes through (mlp.h), on every rank, worked on while rows
// travel. The output is its output with the residual, rounded, plus the routed rows; the input gradient its own plus the
// sum of the router's and the rows', each of the two rounded.
//
// With a two-batch overlap a microbatch goes in two parts, each half of its sequences with rows, capacity and messages of
// its own. While one travels the other is routed, computed or combined. In turn the parts leave the same bits; the
// weight gradient is that of the first and then that of the second.
//
// Saved (T tokens, H hidden, E experts of intermediate I, K choices of a token, P parts, R own rows of a part: its choices,
// or the experts' capacities where that is less; L rows that may come to this rank's experts; a the activations' type):
//   probabilities  [T, E]        f32   of the router; the input gradient writes that of the logits over them
//   log_sum_exp    [T]           f32
//   expert         [T, K]        i32   the choices
//   weight         [T, K]        f32
//   row            [T, K]        i32   where the choices' rows stand
//   source         [P R]         i32   and the way back
//   offsets        [P (E + 1)]   i32   rows of each expert
//   counts         [P N, E / N]  i32   only where experts are shared out: rows of each rank for each of this one's
//   gate_up        [P L, 2 I]    a     the input gradient writes theirs over them
//   weighted       [P L, I]      a     only where the backward is split, from I to W. Else it is the workspace's
//   what the network of the shared experts saves
// The payload [P L, H] a, the experts' inputs, stands in a slot of the block's pool (worker/buffers/payload_pool.h). The
// forward leases it and the weight gradient, its last consumer, gives it back; a forward that keeps nothing does so at
// its own end. Where experts are shared out, the gradients of their outputs that came stand in a second kind of slot,
// from the input gradient to the weight gradient. The experts' outputs are kept nowhere
// (kernels/ops/experts/contract.h).
//
// Losses: the balance loss of every sequence that the step really has, and the z-loss of its tokens, add their
// gradients to the router's; filled-up sequences count for nothing. The loss that is reported is without them.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "plan/schedule/lowered.h"
#include "plan/spec/job_spec.h"
#include "worker/collectives/row_exchange.h"
#include "worker/model/blocks/feed_forward.h"
#include "worker/model/blocks/mlp.h"
#include "worker/model/expert_load.h"
#include "worker/model/layout.h"
#include "worker/model/parameters.h"
#include "worker/model/stage_payloads.h"

namespace penstock::worker {

struct StageEnvironment;

class Experts final : public FeedForward {
 public:
  struct Saved {
    Saved(const plan::JobSpec& job, plan::BackwardForm form, Layout& layout);
    Place probabilities, log_sum_exp, expert, weight, row, source, offsets, counts, gate_up, weighted;
    std::optional<Mlp::Saved> shared;
  };
  Experts(const StageEnvironment& environment, LayerIndex layer, const Saved& saved);

  Status forward(const ItemCall& call, kernels::TensorView x, kernels::TensorView added,
                 kernels::TensorView output) override;
  Status input_gradient(const ItemCall& call, kernels::TensorView output_gradient,
                        kernels::TensorView x_gradient) override;
  void weight_gradient(const ItemCall& call, kernels::TensorView output_gradient,
                       kernels::TensorView x) override;
  const ExpertLoad* load(StepIndex step) override { return &load_of(step); }
  void forget_forwards() override;

 private:
  // Of one microbatch.
  struct Leases {
    PayloadLease inputs, output_gradients;
  };
  // What one part of a microbatch has of the tensors that are saved.
  struct Part {
    int64_t index = 0;
    kernels::Routing routing;
    kernels::Dispatch own;                  // rows of this rank's tokens
    RowRoute route;                         // where experts are shared out
    kernels::TensorView gate_up, weighted;  // of the rows at this rank's experts
  };
  Status end_together(const Status& status);
  Status forward_parts(const ItemCall& call, kernels::TensorView x, kernels::TensorView added,
                       kernels::TensorView output);
  Status input_gradient_parts(const ItemCall& call, kernels::TensorView output_gradient,
                              kernels::TensorView x_gradient);
  bool shared_out() const { return !exchanges_.empty(); }
  bool backward_is_split() const { return saved_.weighted.rank != 0; }
  Part part(const ItemCall& call, int64_t index) const;
  kernels::TensorView of_part(kernels::TensorView all, int64_t index) const;
  kernels::TensorView inputs(const ItemCall& call, int64_t part) const;
  kernels::TensorView output_gradients(const ItemCall& call, int64_t part) const;
  Leases& leases(const ItemCall& call) { return leases_[static_cast<size_t>(call.slot_index)]; }
  const Leases& leases(const ItemCall& call) const { return leases_[static_cast<size_t>(call.slot_index)]; }
  std::span<const kernels::ExpertWeights> weights();
  kernels::RouterLossShape counted(const ItemCall& call, int64_t part) const;

  // Forward, of a part: each may stand between the others of the other part.
  Status send_inputs(const ItemCall& call, const Part& part, kernels::TensorView x);
  Status run_experts(const ItemCall& call, const Part& part);
  Status combine(const ItemCall& call, const Part& part, kernels::TensorView added,
                 kernels::TensorView output);
  // Backward, the same.
  Status send_gradients(const ItemCall& call, const Part& part, kernels::TensorView output_gradient);
  Status run_input_gradient(const ItemCall& call, const Part& part);
  Status combine_gradients(const ItemCall& call, const Part& part, kernels::TensorView x_gradient);
  // Rows at this rank's experts: those of its own tokens, or those that came.
  kernels::TensorView offsets_here(const ItemCall& call, const Part& part) const;
  kernels::Dispatch arrivals(const ItemCall& call, const Part& part) const;
  RowExchange& exchange(const Part& part) { return *exchanges_[static_cast<size_t>(part.index)]; }
  ExpertLoad& load_of(StepIndex step);
  void note_load(const ItemCall& call, int64_t dropped);

  Saved saved_;
  BlockPayloads payloads_;
  std::vector<Leases> leases_;                           // by activation slot
  Place payload_;                                        // in its slot, of both kinds
  std::vector<std::unique_ptr<RowExchange>> exchanges_;  // by part; none: all experts are here
  int64_t parts_;
  int64_t ranks_;  // that share the experts out
  int64_t global_batch_size_;
  int64_t microbatch_size_;
  int64_t sequence_length_;
  int64_t capacity_;
  bool normalise_;
  kernels::RouterLossScales scales_;
  const Parameter& router_;
  std::optional<Mlp> shared_;
  std::vector<const Parameter*> gate_, down_;    // by expert of this rank; up shares gate's product
  std::vector<kernels::ExpertWeights> weights_;  // of the version that is read
  std::vector<kernels::ExpertGradients> gradients_;
  // Of the steps that may be under way at once, each at its number modulo theirs: without a flush forwards of the next
  // ones run before a step ends.
  std::vector<ExpertLoad> loads_;
};

}  // namespace penstock::worker
