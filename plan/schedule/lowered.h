// A lowered program: the instructions that one rank's interpreter executes, in order. Workers know no more.
//
// Added to the compute program: transfers with their buffer slots, local hand-offs, activation leases,
// gradient reduction, optimizer steps and weight versions. A receive is posted as early as its slot allows, or
// in queue order; a send stands right after its producer, a wait only at the real consumer.
//
// How a Compute finds its boundary buffers: by identity. Its input is the slot of the WaitReceive or HandOff
// that delivered (stage, microbatch, flow); its output is the slot of the Send or HandOff that follows it for
// its own (stage, microbatch, flow). A receive slot is free again after the Compute that read it, a send slot
// after its WaitSend, a hand-off slot after the consumer. Every send has been waited for before the last
// OptimizerStep (or the end), in a synchronous program before each.
#pragma once

#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "plan/schedule/program.h"

namespace penstock::plan {

enum class Flow : uint8_t { Activation, Gradient };  // SEND_F/RECV_F and SEND_B/RECV_B

enum class InstructionKind : uint8_t {
  AcquireActivation,  // lease `slot` of the pool of work.stage for work.microbatch; stands before F
  ReleaseActivation,  // end of that lease; stands after B, or W where the backward is split
  PostReceive,        // post the receive of `flow` for work.stage, from `peer`, into receive slot `slot`
  WaitReceive,        // wait for it; stands right before its consumer
  Compute,            // work, with weights of version `weight_version`
  Send,               // send what work.stage produced for work.microbatch to `peer`, from send slot `slot`
  WaitSend,           // wait until send slot `slot` of the link may be written again
  HandOff,            // producer and consumer are both on this rank: pass the tensor without a transfer, in
                      // `slot` of the link (rank, rank); stands right after its producer
  ReduceGradients,    // sum gradients of work.stage over all ranks that hold it
  OptimizerStep,      // global norm, clip, update all of the rank's parameters; ends update `update`
  ValidateStep,  // the step before was provisional: keep it, or apply it anew and run this program from its
                 // start again (post_validation.h); in a program without it, OptimizerStep is a barrier
};

// One instruction. Fields that a kind does not use keep their defaults.
struct Instruction {
  InstructionKind kind = InstructionKind::Compute;
  // Compute: the work. Transfers and hand-offs: stage that sends (Send, WaitSend, HandOff) or receives
  // (PostReceive, WaitReceive), with the microbatch; `kind` of it is then unused.
  Work work;
  Flow flow = Flow::Activation;
  RankIndex peer;     // the other end of a transfer
  int32_t slot = -1;  // activation slot, or receive or send slot of the link
  int32_t weight_version = 0;
  int32_t update = 0;
  // Compute: first half of an overlapped pair. Both inputs are waited for before, both outputs leave behind. A device
  // that runs one half after the other may send the first's output and wait for the second's input between the two.
  bool overlaps_next = false;

  auto operator<=>(const Instruction&) const = default;
};

// Whether every backward of a stage is one action, or some are an I and a W: a slot then has room for what W reads of
// the I before it.
enum class BackwardForm : uint8_t { Fused, Split };

// What a rank must hold for one of its stages.
struct StageBuffers {
  StageIndex stage;
  int32_t activation_slots = 0;  // H_s
  BackwardForm backward = BackwardForm::Fused;
  int32_t replica = 0;  // which one of the stage this is
  RankIndex twin;       // the rank that holds the other one; unset where there is none
};

// A directed pair of ranks with at least one transfer. All its messages pass in one order, which both ends
// know. source == target: local hand-offs; receive_slots counts their slots, send_slots is 0.
struct Link {
  RankIndex source;
  RankIndex target;
  int32_t messages = 0;
  int32_t receive_slots = 0;  // at the target
  int32_t send_slots = 0;     // at the source
  uint64_t digest = 0;        // of (stage that sends, flow, microbatch) in order, by transfer_digest
  // With ValidateStep: messages that the source sends before it, so that the target knows how many to receive and
  // drop when both run their programs anew. Before its own ValidateStep the target posts no receive beyond them.
  int32_t provisional_messages = 0;
};

struct RankProgram {
  RankIndex rank;
  int32_t ranks = 0;
  int32_t stages = 0;
  int32_t microbatches = 0;  // of one update
  int32_t updates = 1;
  bool forward_only = false;
  std::vector<StageBuffers> buffers;  // stages of this rank, ascending
  std::vector<Link> links;            // links that touch this rank, by (source, target)
  std::vector<Instruction> instructions;
};

struct LoweredProgram {
  std::vector<RankProgram> ranks;
  bool bit_identical = false;  // accumulates_in_microbatch_order of the compute program
};

// Where receives are posted.
enum class Posting : uint8_t {
  // As early as a slot is free. Where all transfers of a rank sit on one in-order queue this stops: the first
  // send stands behind receives of what comes of it.
  Early,
  // In one order of all messages that every rank follows, just before what would come after it: runs on
  // in-order queues too. Receives are posted later, and hide less.
  InQueueOrder,
  // Right before its wait: what posting early is measured against, since a transfer then hides behind nothing.
  AtConsumer,
};

// How one optimizer step follows another.
enum class StepRule : uint8_t {
  Barrier,        // all ranks know the whole gradient norm before one of them updates a weight
  PostValidated,  // a rank updates with what it knows, goes on, and hears later whether it was right
};

struct LoweringOptions {
  // Slots to start from; a link gets more when the program would otherwise deadlock under rendezvous sends.
  // In queue order a link has the receive slots that the order takes.
  int receive_slots_per_link = 4;
  int send_slots_per_link = 2;
  Posting posting = Posting::Early;
  StepRule step_rule = StepRule::Barrier;
};

// Lowers a program that verification has accepted. Internal when it
// has not and lowering meets a contradiction. InvalidArgument, with the reason, when its steps cannot be
// post-validated, or not with receives in queue order.
StatusOr<LoweredProgram> lower(const ComputeProgram& program, const LoweringOptions& options = {});

// Whether the program holds a ValidateStep.
bool is_post_validated(const RankProgram& program);

// FNV-1a over the transfers of one link in order, and its provisional messages where steps are post-validated; the
// end that sends and the end that receives compute the same. `owner` is the rank whose program is read.
uint64_t transfer_digest(const RankProgram& owner, RankIndex source, RankIndex target);

// FNV-1a over what a rank computes, reduces and steps, in order: ranks of several pipelines with the same stages do so in
// step, since they meet inside.
uint64_t work_digest(const RankProgram& program);

std::string to_string(const Instruction& instruction);

}  // namespace penstock::plan
