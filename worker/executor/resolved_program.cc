#include "worker/executor/resolved_program.h"

#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "plan/schedule/dataflow.h"

namespace penstock::worker {
namespace {

using plan::Instruction;
using plan::InstructionKind;
using plan::Passage;

// See the header.
class RunningOrder {
 public:
  RunningOrder(const plan::RankProgram& program, Pairs pairs) : program_(program), pairs_(pairs) {}

  std::vector<const Instruction*> run() && {
    const std::vector<Instruction>& list = program_.instructions;
    order_.reserve(list.size());
    for (size_t at = 0; at < list.size();) {
      const bool is_pair = pairs_ == Pairs::InTurn && list[at].overlaps_next && at + 1 < list.size();
      at = is_pair ? run_pair(at) : (order_.push_back(&list[at]), at + 1);
    }
    return std::move(order_);
  }

 private:
  // The halves stand at `first` and behind it. Returns the place behind their outputs.
  size_t run_pair(size_t first) {
    const std::vector<Instruction>& list = program_.instructions;
    const Instruction& second = list[first + 1];
    const Instruction* const wait = take_wait(plan::incoming(second.work, program_.stages));
    const auto output_of_first = plan::outgoing(list[first].work, program_.stages);
    size_t end = first + 2;
    while (end < list.size() && is_output(list[end])) ++end;
    order_.push_back(&list[first]);
    for (size_t at = first + 2; at < end; ++at) {
      if (plan::passage_of(list[at]) == output_of_first) order_.push_back(&list[at]);
    }
    if (wait != nullptr) order_.push_back(wait);
    order_.push_back(&second);
    for (size_t at = first + 2; at < end; ++at) {
      if (plan::passage_of(list[at]) != output_of_first) order_.push_back(&list[at]);
    }
    return end;
  }

  static bool is_output(const Instruction& instruction) {
    return instruction.kind == InstructionKind::Send || instruction.kind == InstructionKind::HandOff;
  }

  // Takes the wait for `input` back out of the waits right before the pair; null where there is none.
  const Instruction* take_wait(const std::optional<Passage>& input) {
    for (auto at = order_.end(); at != order_.begin();) {
      --at;
      if ((*at)->kind != InstructionKind::WaitReceive) break;
      if (plan::passage_of(**at) != input) continue;
      const Instruction* const wait = *at;
      order_.erase(at);
      return wait;
    }
    return nullptr;
  }

  const plan::RankProgram& program_;
  Pairs pairs_;
  std::vector<const Instruction*> order_;
};

class Resolver {
 public:
  Resolver(const plan::RankProgram& program, const std::vector<Stage*>& stages,
           const std::vector<ActivationPool*>& pools, LinkBuffers& links, Pairs pairs)
      : program_(program), stages_(stages), pools_(pools), links_(links), pairs_(pairs) {}

  StatusOr<ResolvedProgram> run() && {
    result_.instructions.reserve(program_.instructions.size());
    for (const Instruction* instruction : RunningOrder(program_, pairs_).run()) {
      ResolvedInstruction& resolved = result_.instructions.emplace_back();
      resolved.source = instruction;
      PENSTOCK_RETURN_IF_ERROR(with_context(resolve(*instruction, resolved), plan::to_string(*instruction)));
    }
    if (!unclaimed_outputs_.empty()) {
      const Passage& passage = unclaimed_outputs_.begin()->first;
      return internal_error("nothing passes on what stage {} made for stage {} and microbatch {}",
                            passage.source.value, passage.target.value, passage.microbatch.value);
    }
    result_.leases = static_cast<int>(lease_indices_.size());
    result_.transfers = static_cast<int>(transfer_indices_.size());
    PENSTOCK_ASSIGN_OR_RETURN(result_.unposted, unposted_messages(program_, links_));
    return std::move(result_);
  }

 private:
  Status resolve(const Instruction& instruction, ResolvedInstruction& resolved) {
    switch (instruction.kind) {
      case InstructionKind::AcquireActivation:
      case InstructionKind::ReleaseActivation:
        return resolve_lease(instruction, resolved);
      case InstructionKind::Compute:
        return resolve_compute(instruction, resolved);
      case InstructionKind::PostReceive:
      case InstructionKind::WaitReceive:
        return resolve_receive(instruction, resolved);
      case InstructionKind::Send:
      case InstructionKind::WaitSend:
        return resolve_send(instruction, resolved);
      case InstructionKind::HandOff:
        return resolve_hand_off(instruction, resolved);
      case InstructionKind::ReduceGradients:
        return ok_status();
      case InstructionKind::OptimizerStep:
        ++steps_;
        return ok_status();
      case InstructionKind::ValidateStep:
        return ok_status();
    }
    return internal_error("kind {}", static_cast<int>(instruction.kind));
  }

  StatusOr<size_t> own_stage(StageIndex stage) const {
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      if (program_.buffers[i].stage == stage) return i;
    }
    return internal_error("stage {} is not of rank {}", stage.value, program_.rank.value);
  }

  Status resolve_lease(const Instruction& instruction, ResolvedInstruction& resolved) {
    const plan::Work& work = instruction.work;
    PENSTOCK_ASSIGN_OR_RETURN(const size_t own, own_stage(work.stage));
    resolved.pool = pools_[own];
    const auto key = std::pair(work.stage, instruction.slot);
    resolved.lease = lease_indices_.emplace(key, static_cast<int>(lease_indices_.size())).first->second;
    const auto held = std::pair(work.stage, work.microbatch);
    if (instruction.kind == InstructionKind::AcquireActivation) {
      held_[held] = instruction.slot;
    } else if (const auto lease = held_.find(held);
               lease == held_.end() || lease->second != instruction.slot) {
      return internal_error("no such lease is held");
    } else {
      held_.erase(lease);
    }
    return ok_status();
  }

  Status resolve_compute(const Instruction& instruction, ResolvedInstruction& resolved) {
    const plan::Work& work = instruction.work;
    PENSTOCK_ASSIGN_OR_RETURN(const size_t own, own_stage(work.stage));
    PENSTOCK_RETURN_IF_ERROR(check_update(work));
    resolved.stage = stages_[own];
    const auto lease = held_.find(std::pair(work.stage, work.microbatch));
    if (lease == held_.end()) return internal_error("no activation slot is leased for it");
    resolved.activation_slot = lease->second;
    if (const auto passage = plan::incoming(work, program_.stages)) {
      const auto delivered = delivered_.find(*passage);
      if (delivered == delivered_.end()) return internal_error("its input has not been delivered");
      resolved.input = delivered->second;
      delivered_.erase(delivered);
    }
    if (const auto passage = plan::outgoing(work, program_.stages)) {
      unclaimed_outputs_[*passage] = result_.instructions.size() - 1;
    }
    return ok_status();
  }

  // A parameter has one gradient accumulator, and a step one loss: what adds to them belongs to the update under way,
  // however far ahead other forwards run. The head forms its gradients with its loss.
  Status check_update(const plan::Work& work) const {
    const bool is_loss = work.stage.value + 1 == program_.stages;
    if (work.kind == plan::ActionKind::Forward && !is_loss) return ok_status();
    const int update = work.microbatch.value / program_.microbatches;
    if (update == steps_) return ok_status();
    return internal_error("it adds to the gradients of update {} after {} optimizer steps", update, steps_);
  }

  Status resolve_receive(const Instruction& instruction, ResolvedInstruction& resolved) {
    PENSTOCK_RETURN_IF_ERROR(resolve_transfer(instruction, instruction.peer, program_.rank, resolved));
    if (instruction.kind == InstructionKind::WaitReceive) {
      delivered_[plan::passage_of(instruction)] = resolved.output;
    }
    return ok_status();
  }

  Status resolve_send(const Instruction& instruction, ResolvedInstruction& resolved) {
    PENSTOCK_RETURN_IF_ERROR(resolve_transfer(instruction, program_.rank, instruction.peer, resolved));
    return instruction.kind == InstructionKind::Send ? claim_output(instruction, resolved) : ok_status();
  }

  Status resolve_hand_off(const Instruction& instruction, ResolvedInstruction& resolved) {
    PENSTOCK_ASSIGN_OR_RETURN(BoundarySlots * slots, links_.find(program_.rank, program_.rank));
    resolved.output = {slots, instruction.slot};
    delivered_[plan::passage_of(instruction)] = resolved.output;
    return claim_output(instruction, resolved);
  }

  Status resolve_transfer(const Instruction& instruction, RankIndex source, RankIndex target,
                          ResolvedInstruction& resolved) {
    PENSTOCK_ASSIGN_OR_RETURN(BoundarySlots * slots, links_.find(source, target));
    if (instruction.slot < 0 || instruction.slot >= slots->capacity()) {
      return internal_error("the link has {} slots", slots->capacity());
    }
    resolved.output = {slots, instruction.slot};
    const auto key = std::tuple(source, target, instruction.slot);
    resolved.transfer =
        transfer_indices_.emplace(key, static_cast<int>(transfer_indices_.size())).first->second;
    return ok_status();
  }

  // The computation that made the tensor writes it straight into the slot that it leaves from.
  Status claim_output(const Instruction& instruction, const ResolvedInstruction& resolved) {
    const auto made = unclaimed_outputs_.find(plan::passage_of(instruction));
    if (made == unclaimed_outputs_.end()) return internal_error("nothing was computed for it");
    result_.instructions[made->second].output = resolved.output;
    unclaimed_outputs_.erase(made);
    return ok_status();
  }

  const plan::RankProgram& program_;
  const std::vector<Stage*>& stages_;
  const std::vector<ActivationPool*>& pools_;
  LinkBuffers& links_;
  Pairs pairs_;
  ResolvedProgram result_;
  int steps_ = 0;                                                              // optimizer steps so far
  std::map<std::pair<StageIndex, int32_t>, int> lease_indices_;                // by stage and slot
  std::map<std::pair<StageIndex, MicrobatchIndex>, int> held_;                 // activation slots leased
  std::map<Passage, SlotReference> delivered_;                                 // not read yet
  std::map<Passage, size_t> unclaimed_outputs_;                                // computed, not passed on yet
  std::map<std::tuple<RankIndex, RankIndex, int32_t>, int> transfer_indices_;  // by link and slot
};

}  // namespace

StatusOr<ResolvedProgram> resolve(const plan::RankProgram& program, const std::vector<Stage*>& stages,
                                  const std::vector<ActivationPool*>& pools, LinkBuffers& links,
                                  Pairs pairs) {
  if (stages.size() != program.buffers.size() || pools.size() != program.buffers.size()) {
    return internal_error("rank {} has {} stages; {} stages and {} pools were given", program.rank.value,
                          program.buffers.size(), stages.size(), pools.size());
  }
  return Resolver(program, stages, pools, links, pairs).run();
}

}  // namespace penstock::worker
