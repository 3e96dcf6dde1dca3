#include "plan/schedule/internal/rank_lowering.h"

#include <algorithm>
#include <utility>

#include "plan/schedule/dataflow.h"

namespace penstock::plan::internal {
namespace {

template <typename Visit>
void for_each_half(const Action& action, Visit&& visit) {
  visit(action.work);
  if (action.overlapped) visit(*action.overlapped);
}

}  // namespace

RankLowering::RankLowering(const ComputeProgram& program, const MessagePlan& plan, RankIndex rank,
                           const std::vector<StageIndex>& own_stages)
    : program_(program),
      plan_(plan),
      own_stages_(own_stages),
      updates_(program, rank, own_stages),
      activation_slots_(own_stages.size()),
      backward_forms_(own_stages.size(), BackwardForm::Fused) {
  result_.rank = rank;
  result_.ranks = program.ranks;
  result_.stages = program.stages();
  result_.microbatches = program.microbatches;
  result_.updates = program.updates;
  result_.forward_only = program.forward_only;
  for (const int link : plan.links_into(rank))
    receive_ends_[link].slot_of.resize(plan.links()[link].messages.size());
  for (const int link : plan.links_out_of(rank)) send_ends_[link] = {};
}

StatusOr<RankProgram> RankLowering::lower() && {
  may_post_all_ = !plan_.validation_point(result_.rank).has_value();
  for (const auto& [link, end] : receive_ends_) post_free_slots(link);
  finish_updates();
  for (const Action& action : program_.actions[result_.rank.value]) {
    PENSTOCK_RETURN_IF_ERROR(emit_action(action));
    ++action_;
  }
  wait_for_all_sends();
  describe_buffers_and_links();
  return std::move(result_);
}

Status RankLowering::emit_action(const Action& action) {
  validate_at_its_place();
  post_queued_receives();
  for_each_half(action, [&](const Work& work) { wait_for_send_slot(work); });
  for_each_half(action, [&](const Work& work) { acquire(work); });
  Status status = wait_for_input(action.work);
  if (action.overlapped) status.Update(wait_for_input(*action.overlapped));
  status.Update(compute(action.work, action.overlapped.has_value()));
  if (action.overlapped) status.Update(compute(*action.overlapped, false));
  PENSTOCK_RETURN_IF_ERROR(status);
  for_each_half(action, [&](const Work& work) { pass_output(work); });
  for_each_half(action, [&](const Work& work) { release(work); });
  for_each_half(action, [&](const Work& work) { free_input(work); });
  for_each_half(action, [&](const Work& work) {
    const bool was_last = updates_.finish(work);
    if (!was_last || program_.placement[work.stage.value].size() > 1) return;
    emit(InstructionKind::ReduceGradients, work.stage, {}).update =
        work.microbatch.value / program_.microbatches;
  });
  finish_updates();
  return ok_status();
}

void RankLowering::validate_at_its_place() {
  if (plan_.validation_point(result_.rank) != action_) return;
  emit(InstructionKind::ValidateStep, {}, {});
  may_post_all_ = true;
  for (const auto& [link, end] : receive_ends_) post_free_slots(link);
}

void RankLowering::wait_for_send_slot(const Work& work) {
  const auto passage = outgoing(work, program_.stages());
  if (!passage) return;
  const Delivery delivery = plan_.delivery(*passage);
  if (delivery.link < 0) return;
  const int reused = delivery.message - plan_.links()[delivery.link].send_slots;
  while (send_ends_[delivery.link].waited <= reused) wait_send(delivery.link);
}

void RankLowering::acquire(const Work& work) {
  if (work.kind != ActionKind::Forward) return;
  const int slot = activation_slots_[updates_.local(work.stage)].take();
  activation_slot_of_[key(work.stage, work.microbatch)] = slot;
  emit(InstructionKind::AcquireActivation, work.stage, work.microbatch).slot = slot;
}

Status RankLowering::wait_for_input(const Work& work) {
  const auto passage = incoming(work, program_.stages());
  if (!passage) return ok_status();
  const Delivery delivery = plan_.delivery(*passage);
  if (delivery.link < 0) {
    if (hand_off_slot_of_.contains(key(passage->target, passage->microbatch, passage->flow)))
      return ok_status();
    return internal_error("lowering a program that was not verified: {} before its input", to_string(work));
  }
  const ReceiveEnd& end = receive_ends_[delivery.link];
  if (plan_.posting() == Posting::AtConsumer) {
    while (end.posted <= delivery.message) post_receive(delivery.link);
  }
  if (delivery.message >= end.posted) {
    return internal_error("lowering: {} needs a receive that has no slot on rank {}", to_string(work),
                          result_.rank.value);
  }
  Instruction& wait = emit(InstructionKind::WaitReceive, work.stage, work.microbatch);
  wait.flow = passage->flow;
  wait.peer = plan_.links()[delivery.link].source;
  wait.slot = end.slot_of[delivery.message];
  return ok_status();
}

Status RankLowering::compute(const Work& work, bool overlaps_next) {
  PENSTOCK_ASSIGN_OR_RETURN(const int version, version_of(work));
  Instruction& instruction = emit(InstructionKind::Compute, work.stage, work.microbatch);
  instruction.work = work;
  instruction.weight_version = version;
  if (is_half_backward(work.kind)) backward_forms_[updates_.local(work.stage)] = BackwardForm::Split;
  instruction.overlaps_next = overlaps_next;
  return ok_status();
}

StatusOr<int> RankLowering::version_of(const Work& work) {
  const int update = work.microbatch.value / program_.microbatches;
  switch (program_.version_rule) {
    case WeightVersionRule::Synchronous:
      return update;
    case WeightVersionRule::DoubleBuffered:
      return std::max(update - 1, 0);
    case WeightVersionRule::Stashed:
      break;
  }
  const uint64_t forward = key(work.stage, work.microbatch);
  if (work.kind == ActionKind::Forward) version_of_forward_[forward] = updates_.finished_updates();
  const auto stashed = version_of_forward_.find(forward);
  if (stashed == version_of_forward_.end()) {
    return internal_error("lowering a program that was not verified: {} before its forward", to_string(work));
  }
  const int version = stashed->second;
  if (ends_backward(work.kind)) version_of_forward_.erase(stashed);
  return version;
}

void RankLowering::pass_output(const Work& work) {
  const auto passage = outgoing(work, program_.stages());
  if (!passage) return;
  const Delivery delivery = plan_.delivery(*passage);
  if (delivery.link < 0) {
    const int slot = hand_off_slots_.take();
    ++hand_offs_;
    hand_off_digest_.add(*passage);
    hand_off_slot_of_[key(passage->target, passage->microbatch, passage->flow)] = slot;
    Instruction& hand_off = emit(InstructionKind::HandOff, work.stage, work.microbatch);
    hand_off.flow = passage->flow;
    hand_off.slot = slot;
    return;
  }
  const PlannedLink& link = plan_.links()[delivery.link];
  SendEnd& end = send_ends_[delivery.link];
  Instruction& send = emit(InstructionKind::Send, work.stage, work.microbatch);
  send.flow = passage->flow;
  send.peer = link.target;
  send.slot = end.sent++ % link.send_slots;
}

void RankLowering::release(const Work& work) {
  if (!ends_backward(work.kind) && !program_.forward_only) return;
  const auto lease = activation_slot_of_.find(key(work.stage, work.microbatch));
  if (lease == activation_slot_of_.end()) return;  // the work of a program that was not verified
  emit(InstructionKind::ReleaseActivation, work.stage, work.microbatch).slot = lease->second;
  activation_slots_[updates_.local(work.stage)].give_back(lease->second);
  activation_slot_of_.erase(lease);
}

void RankLowering::free_input(const Work& work) {
  const auto passage = incoming(work, program_.stages());
  if (!passage) return;
  const Delivery delivery = plan_.delivery(*passage);
  if (delivery.link < 0) {
    const auto handed = hand_off_slot_of_.find(key(passage->target, passage->microbatch, passage->flow));
    hand_off_slots_.give_back(handed->second);
    hand_off_slot_of_.erase(handed);
    return;
  }
  ReceiveEnd& end = receive_ends_[delivery.link];
  end.slots.give_back(end.slot_of[delivery.message]);
  post_free_slots(delivery.link);
}

void RankLowering::post_free_slots(int link) {
  if (plan_.posting() != Posting::Early) return;
  const PlannedLink& planned = plan_.links()[link];
  const ReceiveEnd& end = receive_ends_[link];
  const int allowed = may_post_all_ ? static_cast<int>(planned.messages.size()) : planned.provisional;
  while (end.posted < allowed && end.slots.held() < planned.receive_slots) post_receive(link);
}

void RankLowering::post_queued_receives() {
  if (plan_.posting() != Posting::InQueueOrder) return;
  const std::vector<QueuedReceive>& queue = plan_.queued_receives(result_.rank);
  for (; queued_ < queue.size() && queue[queued_].action == action_; ++queued_)
    post_receive(queue[queued_].link);
}

void RankLowering::post_receive(int link) {
  const PlannedLink& planned = plan_.links()[link];
  ReceiveEnd& end = receive_ends_[link];
  const Passage& passage = planned.messages[end.posted];
  const int slot = end.slots.take();
  end.slot_of[end.posted++] = slot;
  Instruction& post = emit(InstructionKind::PostReceive, passage.target, passage.microbatch);
  post.flow = passage.flow;
  post.peer = planned.source;
  post.slot = slot;
}

void RankLowering::finish_updates() {
  while (const auto update = updates_.take_finished_update()) {
    // A sum over two ranks stands where both have nothing else to do for the update, in one order on both.
    for (const StageIndex stage : own_stages_) {
      if (program_.placement[stage.value].size() < 2) continue;
      emit(InstructionKind::ReduceGradients, stage, {}).update = *update;
    }
    // Without a flush the next microbatches are under way; to wait for what has just left would expose its transfer.
    const bool flushes = program_.version_rule == WeightVersionRule::Synchronous;
    if (flushes || *update + 1 == program_.updates) wait_for_all_sends();
    emit(InstructionKind::OptimizerStep, {}, {}).update = *update;
  }
}

void RankLowering::wait_for_all_sends() {
  for (const auto& [link, end] : send_ends_) {
    while (end.waited < end.sent) wait_send(link);
  }
}

void RankLowering::wait_send(int link) {
  const PlannedLink& planned = plan_.links()[link];
  SendEnd& end = send_ends_[link];
  const Passage& passage = planned.messages[end.waited];
  Instruction& wait = emit(InstructionKind::WaitSend, passage.source, passage.microbatch);
  wait.flow = passage.flow;
  wait.peer = planned.target;
  wait.slot = end.waited++ % planned.send_slots;
}

void RankLowering::describe_buffers_and_links() {
  for (size_t local = 0; local < own_stages_.size(); ++local) {
    const std::vector<RankIndex>& replicas = program_.placement[own_stages_[local].value];
    StageBuffers& buffers = result_.buffers.emplace_back();
    buffers.stage = own_stages_[local];
    buffers.activation_slots = activation_slots_[local].used();
    buffers.backward = backward_forms_[local];
    if (replicas.size() < 2) continue;
    buffers.replica = replicas[0] == result_.rank ? 0 : 1;
    buffers.twin = replicas[1 - buffers.replica];
  }
  const auto add = [&](int link) {
    const PlannedLink& planned = plan_.links()[link];
    TransferDigest digest;
    for (const Passage& passage : planned.messages) digest.add(passage);
    if (plan_.validation_point(result_.rank)) digest.add_provisional(planned.provisional);
    result_.links.push_back({planned.source, planned.target, static_cast<int>(planned.messages.size()),
                             planned.receive_slots, planned.send_slots, digest.value(), planned.provisional});
  };
  for (const auto& [link, end] : receive_ends_) add(link);
  for (const auto& [link, end] : send_ends_) add(link);
  if (hand_offs_ > 0) {
    result_.links.push_back(
        {result_.rank, result_.rank, hand_offs_, hand_off_slots_.used(), 0, hand_off_digest_.value(), 0});
  }
  std::sort(result_.links.begin(), result_.links.end(), [](const Link& a, const Link& b) {
    return std::pair(a.source, a.target) < std::pair(b.source, b.target);
  });
}

Instruction& RankLowering::emit(InstructionKind kind, StageIndex stage, MicrobatchIndex microbatch) {
  Instruction& instruction = result_.instructions.emplace_back();
  instruction.kind = kind;
  instruction.work.stage = stage;
  instruction.work.microbatch = microbatch;
  return instruction;
}

uint64_t RankLowering::key(StageIndex stage, MicrobatchIndex microbatch, Flow flow) const {
  const auto total = static_cast<uint64_t>(program_.total_microbatches());
  return (static_cast<uint64_t>(stage.value) * total + static_cast<uint64_t>(microbatch.value)) * 2 +
         static_cast<uint64_t>(flow);
}

}  // namespace penstock::plan::internal
