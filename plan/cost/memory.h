// Predicts the bytes that a rank holds, by kind, before anything is allocated.
//
// The formulas (T tokens of a microbatch, H hidden_size, I intermediate_size, A heads of size D, K key-value heads; a
// the bytes of train.dtype: 4 or 2, other tensors take 4 an element; every tensor rounded up to 64 bytes, as the worker
// lays it out):
//   parameters   4 bytes for each element of the rank's parameters: the FP32 master weights
//   packed       a x both operands that a weight's products read, weight [out, in] once as [in, out] and once as
//                [out, in], where rows of an operand are rounded up to 64 / a and columns to 64. Weights: q, k and v
//                as one, o, gate and up as one, down, of every expert and the shared ones too; LM head. The router is read as it is
//   weight_versions   of schedules that compute with older weights: packed, norms and routers once more for each older
//                version that the rank's program reads, and the embedding table for each that its forwards read
//                (plan/schedule/weight_versions.h); masters, gradients and moments exist once
//                Of parameters, packed and the kinds below a rank has the experts that are its share
//                (plan/spec/rank_place.h), in each of these
//   gradients    the parameters' bytes again: weight gradients accumulate in FP32 (numerics contract)
//   optimizer    twice the same: AdamW's first and second moments; with parallel.shard_optimizer of the parameters alone
//                that are the rank's (plan/spec/state_share.h)
//   rollback     with post-validated steps, parameters and optimizer once more on every rank but the last: what a
//                provisional step overwrites
//                A tied matrix is the embedding's; a rank with the head has a second gradient of it, and without
//                the embedding a copy of the matrix too
//   snapshot     with checkpoints, parameters and moments that this rank writes once more, of the stages whose first
//                replica is here: what is written while steps go on
//   activations  sum over stages of slots x slot: slots = H_s of the lowered program, slot = what the stage's
//                forward keeps for its backward:
//                  embedding  tokens [T]
//                  block      x a[T,H], 1/rms [T], q, k and v a[T,(A+2K)*D], attention a[T,A*D], log-sum-exp [T*A],
//                             x + attention a[T,H], 1/rms [T], gate and up a[T,2I];
//                             norms and the SwiGLU product are computed again in the backward
//                             with E experts of I, K choices of a token and R rows (T K, or the experts' capacities),
//                             in place of gate and up: probabilities [T,E], log-sum-exp [T], choices, their weights
//                             and rows [T,K] each, sources [R], offsets [E+1], gate and up a[L,2I]; L = R, or where N
//                             ranks share experts out the rows that may come to one of them, and counts [E] beside
//                             the offsets. In halves (two_batch_overlap) of each R, L, offsets and counts twice. With
//                             shared experts, of S together, gate and up a[T,2S] too
//                  head       x a[T,H], 1/rms [T], gradient of the norm's output a[T,H]: logits exist in chunks only
//                and, where the program splits backwards of the stage, what a W reads of its I and finds nowhere else:
//                  embedding  gradient of its output a[T,H]
//                  block      gradients of what attention and MLP add a[T,H] each, the product's input a[T,I], or a[L,I] and
//                             that of shared experts a[T,S]
//                A block that is recomputed has x there and nothing else. What it saves otherwise is held once, in the
//                workspace, and, where backwards are split, from I to W in a slot of all recomputed blocks of the stage,
//                as many as the lowered program has microbatches between the two (plan/schedule/recomputation_slots.h)
//   routes       what routers decided, of those slots: probabilities to offsets and counts, of the blocks with experts
//   payload      of every block with experts: slots a[L,H] for the rows that went in, as many as the program has alive at
//                once (plan/schedule/payload_slots.h); where ranks share experts out also for gradients that come
//   boundary     one tensor a[T,H] for each receive slot at a link's target, each send slot at its source and
//                each hand-off slot, of the training and, apart, of the validation
//   workspace    what an action works in, once for all stages: eight tensors and the targets for any block (two gradients of
//                the residual between items, a norm's output and its gradient, gradient of h: a[T,H] each, with dropout
//                two more; the SwiGLU product and its gradient a[T,max(I,S)], gradient of attention a[T,A*D], targets [T]);
//                with qk_norm queries and keys a[T,(A+K)*D] and 1/rms of each; with experts outputs and gradients
//                a[R,H] twice, a[L,I], [R] twice, [T,K], and where ranks share experts out what arrives, a[L,H] and
//                [L] thrice, and one part of it in order; starts of documents [T]
//                of the rank's blocks that are recomputed what the widest saves
//                2 MiB for each exchange between the steps: sums over the data group, over replicas of experts, over
//                two replicas of a stage, of a tied
//                matrix whose other end is elsewhere
// A second replica of a stage (DualPipe, Chimera) has no kind of its own: a rank holds parameters, gradients, moments and
// slots of both of its stages, and they are counted where those of one stage are.
// Sources: the activation terms count tensors as "Reducing Activation Recomputation in Large Transformer
// Models" (Korthikanti et al., 2022) does, for this block and without its dropout masks; H_s in place of its
// number of stages in flight, since the schedule says it exactly. Not predicted: what
// transports and libraries take, and tables and primitives that operators make once a shape.
//
// Sums saturate at 2^63 - 1 instead of overflowing. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "plan/cost/slot_bytes.h"
#include "plan/schedule/lowered.h"
#include "plan/spec/job_spec.h"
#include "plan/spec/rank_place.h"

namespace penstock::plan {

struct MemoryPrediction {
  int64_t parameters = 0;
  int64_t packed = 0;
  int64_t weight_versions = 0;
  int64_t gradients = 0;
  int64_t optimizer = 0;
  int64_t rollback = 0;
  int64_t snapshot = 0;
  int64_t activations = 0;
  int64_t routes = 0;
  int64_t payload = 0;
  int64_t boundary = 0;
  int64_t workspace = 0;

  int64_t total() const;
  // ("parameters", bytes) and so on: the kinds' names as StepReport carries them, those of which there is anything.
  std::vector<std::pair<std::string, int64_t>> by_kind() const;
};

// Whose memory, beside the training's program.
struct MemoryOf {
  RankPlace place{};
  const RankProgram* validation =
      nullptr;  // runs between the steps, in boundary slots of its own; null: there is none
};

// `split` holds the items of every stage of the program (job.parallel.split unless a rebalance changed it).
// InvalidArgument when the program names a stage that the split does not have. Of the instructions weight versions,
// payload and recomputation slots are counted; a synchronous program without experts and recomputation may come without.
StatusOr<MemoryPrediction> predict_memory(const JobSpec& job, const Split& split, const RankProgram& program,
                                          const MemoryOf& of = {});

// Of every rank of the job. `training` and, unless empty, `validation` hold the programs of a pipeline's ranks.
StatusOr<std::vector<MemoryPrediction>> predict_job_memory(const JobSpec& job, const Split& split,
                                                           std::span<const RankProgram> training,
                                                           std::span<const RankProgram> validation = {});

// InvalidArgument when a rank needs more than job.memory_budget_bytes: names the rank that needs most, how
// much it is over and by kind what it holds. Ok without a budget. `ranks`: all of the job.
Status check_memory_budget(const JobSpec& job, std::span<const MemoryPrediction> ranks);

}  // namespace penstock::plan
