// Predicts the bytes that a rank holds, by kind, before anything is allocated.
//
// The formulas (T tokens of a microbatch, H hidden_size, I intermediate_size, A heads of size D, K key-value heads; a
// the bytes of train.dtype: 4 or 2, other tensors take 4 an element; every tensor rounded up to 64 bytes, as the worker
// lays it out):
//   parameters   4 bytes for each element of the rank's parameters: the FP32 master weights
//   packed       a x both operands that a weight's products read, weight [out, in] once as [in, out] and once as
//                [out, in], where rows of an operand are rounded up to 64 / a and columns to 64. Weights: q, k and v
//                as one, o, gate and up as one, down, of every expert too; LM head. The router is read as it is
//   weight_versions   of schedules that compute with older weights: packed, norms and routers once more for each older
//                version that the rank's program reads, and the embedding table for each that its forwards read
//                (plan/schedule/weight_versions.h); masters, gradients and moments exist once
//   gradients    the parameters' bytes again: weight gradients accumulate in FP32 (numerics contract)
//   optimizer    twice the same: AdamW's first and second moments
//   rollback     with post-validated steps, parameters and optimizer once more on every rank but the last: what a
//                provisional step overwrites
//                A tied matrix is the embedding's; a rank with the head has a second gradient of it, and without
//                the embedding a copy of the matrix too
//   snapshot     with checkpoints, parameters and moments of the stages whose first replica is here once more: what is
//                written while steps go on
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
//                             the offsets. In halves (two_batch_overlap) of each R, L, offsets and counts twice
//                  head       x a[T,H], 1/rms [T], gradient of the norm's output a[T,H]: logits exist in chunks only
//                and, where the program splits backwards of the stage, what a W reads of its I and finds nowhere else:
//                  embedding  gradient of its output a[T,H]
//                  block      gradients of what attention and MLP add a[T,H] each, the product's input a[T,I] or a[L,I]
//                A block that is recomputed has x there and nothing else. What it saves otherwise is held once, in the
//                workspace, and, where backwards are split, from I to W in a slot of all recomputed blocks of the stage,
//                as many as the lowered program has microbatches between the two (plan/schedule/recomputation_slots.h)
//   payload      of every block with experts: slots a[L,H] for the rows that went in, as many as the program has alive at
//                once (plan/schedule/payload_slots.h); where ranks share experts out also for gradients that come
//   boundary     one tensor a[T,H] for each receive slot at a link's target, each send slot at its source and
//                each hand-off slot
// Sources: the activation terms count tensors as "Reducing Activation Recomputation in Large Transformer
// Models" (Korthikanti et al., 2022) does, for this block and without its dropout masks; H_s in place of its
// number of stages in flight, since the schedule says it exactly. Not predicted yet: workspace, transport and
// library memory.
//
// Sums saturate at 2^63 - 1 instead of overflowing. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "plan/schedule/lowered.h"
#include "plan/spec/job_spec.h"

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
  int64_t payload = 0;
  int64_t boundary = 0;

  int64_t total() const;
  // ("parameters", bytes) and so on: the kinds' names as StepReport carries them; weight_versions, rollback, snapshot and
  // payload where there are any.
  std::vector<std::pair<std::string, int64_t>> by_kind() const;
};

// Bytes of one activation slot of a stage that holds `items`.
int64_t activation_slot_bytes(const JobSpec& job, const std::vector<Item>& items, BackwardForm backward);

// Bytes of one slot for what those of `items` that are recomputed save between I and W.
int64_t recomputation_slot_bytes(const JobSpec& job, const std::vector<Item>& items);

// Bytes of one slot for the rows that go into a block's experts; 0 of another item.
int64_t payload_slot_bytes(const JobSpec& job, const Item& item);

// Bytes of one tensor that passes between two stages.
int64_t boundary_slot_bytes(const JobSpec& job);

// `split` holds the items of every stage of the program (job.parallel.split unless a rebalance changed it).
// InvalidArgument when the program names a stage that the split does not have. Of the instructions, weight versions and
// payload slots are counted; a synchronous program without experts may come without.
StatusOr<MemoryPrediction> predict_memory(const JobSpec& job, const Split& split, const RankProgram& program);

// InvalidArgument when a rank needs more than job.memory_budget_bytes: names the rank that needs most, how
// much it is over and by kind what it holds. Ok without a budget.
Status check_memory_budget(const JobSpec& job, const Split& split, std::span<const RankProgram> programs);

}  // namespace penstock::plan
