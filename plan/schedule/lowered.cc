#include "plan/schedule/lowered.h"

#include <algorithm>

#include "plan/schedule/dataflow.h"

namespace penstock::plan {
namespace {

bool passes_on(const Instruction& instruction, RankIndex owner, RankIndex source, RankIndex target) {
  if (source == target) return instruction.kind == InstructionKind::HandOff;
  if (owner == source) return instruction.kind == InstructionKind::Send && instruction.peer == target;
  return instruction.kind == InstructionKind::PostReceive && instruction.peer == source;
}

std::string tensor_text(const Instruction& instruction) {
  return fmt::format("{} of stage {} microbatch {}",
                     instruction.flow == Flow::Activation ? "activation" : "gradient",
                     instruction.work.stage.value, instruction.work.microbatch.value);
}

}  // namespace

bool is_post_validated(const RankProgram& program) {
  return std::any_of(program.instructions.begin(), program.instructions.end(),
                     [](const Instruction& each) { return each.kind == InstructionKind::ValidateStep; });
}

uint64_t transfer_digest(const RankProgram& owner, RankIndex source, RankIndex target) {
  TransferDigest digest;
  for (const Instruction& instruction : owner.instructions) {
    if (passes_on(instruction, owner.rank, source, target)) digest.add(passage_of(instruction));
  }
  if (is_post_validated(owner)) {
    for (const Link& link : owner.links) {
      if (link.source == source && link.target == target) digest.add_provisional(link.provisional_messages);
    }
  }
  return digest.value();
}

uint64_t work_digest(const RankProgram& program) {
  constexpr InstructionKind kTogether[] = {InstructionKind::Compute, InstructionKind::ReduceGradients,
                                           InstructionKind::OptimizerStep, InstructionKind::ValidateStep};
  WordDigest digest;
  for (const Instruction& each : program.instructions) {
    if (std::find(std::begin(kTogether), std::end(kTogether), each.kind) == std::end(kTogether)) continue;
    digest.add(static_cast<uint32_t>(each.kind));
    digest.add(static_cast<int32_t>(each.work.stage.value));
    digest.add(static_cast<uint32_t>(each.work.kind));
    digest.add(static_cast<int32_t>(each.work.microbatch.value));
    digest.add(each.weight_version);
    digest.add(each.update);
  }
  return digest.value();
}

std::string to_string(const Instruction& instruction) {
  const Work& work = instruction.work;
  switch (instruction.kind) {
    case InstructionKind::AcquireActivation:
      return fmt::format("acquire stage {} microbatch {} slot {}", work.stage.value, work.microbatch.value,
                         instruction.slot);
    case InstructionKind::ReleaseActivation:
      return fmt::format("release stage {} microbatch {} slot {}", work.stage.value, work.microbatch.value,
                         instruction.slot);
    case InstructionKind::PostReceive:
      return fmt::format("post receive of {} from rank {} slot {}", tensor_text(instruction),
                         instruction.peer.value, instruction.slot);
    case InstructionKind::WaitReceive:
      return fmt::format("wait receive of {} from rank {} slot {}", tensor_text(instruction),
                         instruction.peer.value, instruction.slot);
    case InstructionKind::Compute:
      return fmt::format("compute {} version {}{}", to_string(work), instruction.weight_version,
                         instruction.overlaps_next ? " with the next" : "");
    case InstructionKind::Send:
      return fmt::format("send {} to rank {} slot {}", tensor_text(instruction), instruction.peer.value,
                         instruction.slot);
    case InstructionKind::WaitSend:
      return fmt::format("wait send of {} to rank {} slot {}", tensor_text(instruction),
                         instruction.peer.value, instruction.slot);
    case InstructionKind::HandOff:
      return fmt::format("hand off {} slot {}", tensor_text(instruction), instruction.slot);
    case InstructionKind::ReduceGradients:
      return fmt::format("reduce gradients of stage {} update {}", work.stage.value, instruction.update);
    case InstructionKind::OptimizerStep:
      return fmt::format("optimizer step {}", instruction.update);
    case InstructionKind::ValidateStep:
      return "validate the step before";
  }
  return fmt::format("instruction kind {}", static_cast<int>(instruction.kind));
}

}  // namespace penstock::plan
