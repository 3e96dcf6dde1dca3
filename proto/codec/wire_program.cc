#include "proto/codec/internal/checks.h"
#include "proto/codec/wire.h"

namespace penstock::codec {
namespace {

v1::Instruction to_proto(const plan::Instruction& instruction) {
  v1::Instruction message;
  message.set_kind(static_cast<int32_t>(instruction.kind));
  message.set_stage(instruction.work.stage.value);
  message.set_action(static_cast<int32_t>(instruction.work.kind));
  message.set_microbatch(instruction.work.microbatch.value);
  message.set_flow(static_cast<int32_t>(instruction.flow));
  message.set_peer(instruction.peer.value);
  message.set_slot(instruction.slot);
  message.set_weight_version(instruction.weight_version);
  message.set_update(instruction.update);
  message.set_overlaps_next(instruction.overlaps_next);
  return message;
}

// What every instruction of a program is checked against.
struct Extent {
  int64_t ranks = 0;
  int64_t stages = 0;
  int64_t microbatches = 0;  // of all updates
  int64_t updates = 0;
};

plan::Instruction decode(const v1::Instruction& message, const Extent& extent, Checks& checks) {
  constexpr auto kLastKind = static_cast<int64_t>(plan::InstructionKind::ValidateStep);
  constexpr auto kLastAction = static_cast<int64_t>(plan::ActionKind::WeightGradient);
  constexpr auto kLastFlow = static_cast<int64_t>(plan::Flow::Gradient);
  plan::Instruction instruction;
  instruction.kind = static_cast<plan::InstructionKind>(checks.range("kind", message.kind(), 0, kLastKind));
  instruction.work.stage = StageIndex(checks.range("stage", message.stage(), -1, extent.stages - 1));
  instruction.work.kind =
      static_cast<plan::ActionKind>(checks.range("action", message.action(), 0, kLastAction));
  instruction.work.microbatch =
      MicrobatchIndex(checks.range("microbatch", message.microbatch(), -1, extent.microbatches - 1));
  instruction.flow = static_cast<plan::Flow>(checks.range("flow", message.flow(), 0, kLastFlow));
  instruction.peer = RankIndex(checks.range("peer", message.peer(), -1, extent.ranks - 1));
  instruction.slot = static_cast<int32_t>(checks.range("slot", message.slot(), -1, kMostSlots - 1));
  instruction.weight_version =
      static_cast<int32_t>(checks.range("weight_version", message.weight_version(), 0, extent.updates));
  instruction.update = static_cast<int32_t>(checks.range("update", message.update(), 0, extent.updates - 1));
  instruction.overlaps_next = message.overlaps_next();
  return instruction;
}

plan::StageBuffers decode(const v1::StageBuffers& message, const Extent& extent, Checks& checks) {
  plan::StageBuffers buffers;
  buffers.stage = StageIndex(checks.range("stage", message.stage(), 0, extent.stages - 1));
  buffers.activation_slots =
      static_cast<int32_t>(checks.range("activation_slots", message.activation_slots(), 0, kMostSlots));
  buffers.replica = static_cast<int32_t>(checks.range("replica", message.replica(), 0, 1));
  buffers.twin = RankIndex(checks.range("twin", message.twin(), -1, extent.ranks - 1));
  buffers.backward = message.splits_backward() ? plan::BackwardForm::Split : plan::BackwardForm::Fused;
  return buffers;
}

plan::Link decode(const v1::Link& message, const Extent& extent, Checks& checks) {
  plan::Link link;
  link.source = RankIndex(checks.range("source", message.source(), 0, extent.ranks - 1));
  link.target = RankIndex(checks.range("target", message.target(), 0, extent.ranks - 1));
  link.messages = static_cast<int32_t>(checks.range("messages", message.messages(), 0, kMostInstructions));
  link.receive_slots =
      static_cast<int32_t>(checks.range("receive_slots", message.receive_slots(), 0, kMostSlots));
  link.send_slots = static_cast<int32_t>(checks.range("send_slots", message.send_slots(), 0, kMostSlots));
  link.provisional_messages = static_cast<int32_t>(
      checks.range("provisional_messages", message.provisional_messages(), 0, link.messages));
  link.digest = message.digest();
  return link;
}

// Decodes a repeated field, naming the place of the first entry that is wrong.
template <typename Value, typename Messages>
void decode_all(const char* field, const Messages& messages, const Extent& extent, Checks& checks,
                std::vector<Value>& values) {
  if (!checks.ok()) return;
  values.reserve(static_cast<size_t>(messages.size()));
  Checks entry_checks("");
  for (int i = 0; i < messages.size(); ++i) {
    values.push_back(decode(messages.Get(i), extent, entry_checks));
    if (entry_checks.ok()) continue;
    return checks.nested(fmt::format("{}[{}]", field, i), entry_checks.status());
  }
}

}  // namespace

v1::RankProgram to_proto(const plan::RankProgram& program) {
  v1::RankProgram message;
  message.set_rank(program.rank.value);
  message.set_ranks(program.ranks);
  message.set_stages(program.stages);
  message.set_microbatches(program.microbatches);
  message.set_updates(program.updates);
  message.set_forward_only(program.forward_only);
  for (const plan::StageBuffers& buffers : program.buffers) {
    v1::StageBuffers& added = *message.add_buffers();
    added.set_stage(buffers.stage.value);
    added.set_activation_slots(buffers.activation_slots);
    added.set_replica(buffers.replica);
    added.set_twin(buffers.twin.value);
    added.set_splits_backward(buffers.backward == plan::BackwardForm::Split);
  }
  for (const plan::Link& link : program.links) {
    v1::Link& added = *message.add_links();
    added.set_source(link.source.value);
    added.set_target(link.target.value);
    added.set_messages(link.messages);
    added.set_receive_slots(link.receive_slots);
    added.set_send_slots(link.send_slots);
    added.set_provisional_messages(link.provisional_messages);
    added.set_digest(link.digest);
  }
  message.mutable_instructions()->Reserve(static_cast<int>(program.instructions.size()));
  for (const plan::Instruction& instruction : program.instructions) {
    *message.add_instructions() = to_proto(instruction);
  }
  return message;
}

StatusOr<plan::RankProgram> from_proto(const v1::RankProgram& message) {
  Checks checks("RankProgram");
  plan::RankProgram program;
  program.ranks = static_cast<int32_t>(checks.range("ranks", message.ranks(), 1, kMostRanks));
  program.rank = RankIndex(checks.range("rank", message.rank(), 0, program.ranks - 1));
  program.stages = static_cast<int32_t>(checks.range("stages", message.stages(), 1, kMostStages));
  program.microbatches =
      static_cast<int32_t>(checks.range("microbatches", message.microbatches(), 1, kMostMicrobatches));
  program.updates = static_cast<int32_t>(checks.range("updates", message.updates(), 1, kMostUpdates));
  program.forward_only = message.forward_only();
  const Extent extent{program.ranks, program.stages, int64_t{program.microbatches} * program.updates,
                      program.updates};
  checks.range("microbatches x updates", extent.microbatches, 1, kMostMicrobatchesInAll);
  checks.count("buffers", static_cast<size_t>(message.buffers_size()), kMostStagesOfARank);
  checks.count("links", static_cast<size_t>(message.links_size()), 2 * static_cast<size_t>(kMostRanks));
  checks.count("instructions", static_cast<size_t>(message.instructions_size()), kMostInstructions);
  decode_all("buffers", message.buffers(), extent, checks, program.buffers);
  decode_all("links", message.links(), extent, checks, program.links);
  decode_all("instructions", message.instructions(), extent, checks, program.instructions);
  if (!checks.ok()) return checks.status();
  return program;
}

}  // namespace penstock::codec
