// The rules of every single instruction.
#include <algorithm>

#include "plan/verification/internal/rank_checker.h"
#include "plan/verification/internal/weight_versions.h"

namespace penstock::plan::internal {

RankChecker::OwnStage* RankChecker::own_stage() {
  const auto found = own_.find(now().work.stage.value);
  if (found != own_.end()) return &found->second;
  violate("ownership", "expected a stage of this rank, found {}", now().work.stage.value);
  return nullptr;
}

RankChecker::Cell* RankChecker::cell() {
  if (own_stage() == nullptr) return nullptr;
  const int microbatch = now().work.microbatch.value;
  const int total = program_.microbatches * program_.updates;
  if (microbatch >= 0 && microbatch < total) return &cell_at(now().work.stage, now().work.microbatch);
  violate("shape", "expected a microbatch of 0 to {}, found {}", total - 1, microbatch);
  return nullptr;
}

RankChecker::Cell& RankChecker::cell_at(StageIndex stage, MicrobatchIndex microbatch) {
  const auto total = static_cast<uint64_t>(program_.microbatches) * static_cast<uint64_t>(program_.updates);
  return cells_[static_cast<uint64_t>(stage.value) * total + static_cast<uint64_t>(microbatch.value)];
}

RankChecker::End* RankChecker::end_of_link(std::map<int, End>& ends) {
  const auto found = ends.find(now().peer.value);
  if (found != ends.end()) return &found->second;
  violate("transfers", "no link of this rank leads there");
  return nullptr;
}

bool RankChecker::slot_exists(const End& end) {
  if (now().slot >= 0 && now().slot < static_cast<int>(end.slots.size())) return true;
  violate("memory", "expected a slot of 0 to {}, found {}", static_cast<int>(end.slots.size()) - 1,
          now().slot);
  return false;
}

void RankChecker::acquire() {
  Cell* leased = cell();
  if (leased == nullptr) return;
  OwnStage& stage = *own_stage();
  if (leased->was_leased) return violate("memory", "the microbatch had its activation slot before");
  const int slot = now().slot;
  if (slot < 0 || slot >= static_cast<int>(stage.leased.size())) {
    return violate("memory", "the stage has {} activation slots", stage.leased.size());
  }
  if (stage.leased[slot]) return violate("memory", "the activation slot is held by another microbatch");
  stage.leased[slot] = true;
  stage.high_water = std::max(stage.high_water, ++stage.held);
  leased->lease = slot;
  leased->was_leased = true;
}

void RankChecker::release() {
  Cell* leased = cell();
  if (leased == nullptr) return;
  if (leased->lease < 0 || leased->lease != now().slot) {
    return violate("memory", "the microbatch holds {}",
                   leased->lease < 0 ? "no slot" : fmt::format("slot {}", leased->lease));
  }
  const bool is_over = program_.forward_only ? leased->forward >= 0 : leased->backward_end >= 0;
  if (!is_over)
    return violate("memory", "expected after the {}",
                   program_.forward_only ? "forward" : "end of its backward");
  OwnStage& stage = *own_stage();
  stage.leased[leased->lease] = false;
  --stage.held;
  leased->lease = -1;
}

void RankChecker::post_receive() {
  Cell* target = cell();
  End* end = target == nullptr ? nullptr : end_of_link(incoming_);
  if (end == nullptr || !slot_exists(*end)) return;
  if (now().flow > Flow::Gradient) return violate("shape", "expected an activation or a gradient");
  const Passage passage = passage_of(now());
  if (passage.source.value < 0 || passage.source.value >= program_.stages) {
    return violate("transfers", "no stage {} sends it", passage.source.value);
  }
  Delivered& input = target->inputs[static_cast<int>(passage.flow)];
  if (input.state != Input::None) return violate("transfers", "the tensor is received twice");
  if (end->slots[now().slot]) {
    return violate("memory", "the receive slot still holds stage {} microbatch {}",
                   end->slots[now().slot]->target.value, end->slots[now().slot]->microbatch.value);
  }
  end->slots[now().slot] = passage;
  ++end->passed;
  end->digest.add(passage);
  input = Delivered{Input::Posted, now().peer, now().slot};
}

void RankChecker::wait_receive() {
  Cell* target = cell();
  if (target == nullptr) return;
  if (now().flow > Flow::Gradient) return violate("shape", "expected an activation or a gradient");
  Delivered& input = target->inputs[static_cast<int>(now().flow)];
  if (input.state != Input::Posted || input.source != now().peer || input.slot != now().slot) {
    return violate("transfers", "no such receive is posted");
  }
  input.state = Input::Arrived;
}

void RankChecker::compute() {
  const bool is_second = group_.expects_second;
  if (!is_second) group_.start = static_cast<int>(position_);
  if (is_second && now().overlaps_next) violate("shape", "a pair has two halves, this is a third");
  group_.expects_second = !is_second && now().overlaps_next;
  Cell* computed = cell();
  if (computed == nullptr) return;
  if (now().work.kind > ActionKind::WeightGradient) return violate("shape", "expected F, B, I or W");
  if (program_.forward_only && now().work.kind != ActionKind::Forward) {
    return violate("complete", "a forward-only program has no backward");
  }
  if (computed->lease < 0) return violate("memory", "the microbatch holds no activation slot");
  read_input();
  note_computation(*computed);
  check_version(*computed);
  if (const auto passage = outgoing(now().work, program_.stages)) group_.outputs.push_back(*passage);
}

void RankChecker::read_input() {
  const auto passage = incoming(now().work, program_.stages);
  if (!passage) return;
  Cell& target = cell_at(passage->target, passage->microbatch);
  if (target.inputs[static_cast<int>(passage->flow)].state != Input::Arrived) {
    return violate("order", "its {} from stage {} has not arrived; expected a wait or a hand-off before it",
                   passage->flow == Flow::Activation ? "activation" : "gradient", passage->source.value);
  }
  group_.inputs.emplace_back(&target, passage->flow);
}

void RankChecker::note_computation(Cell& cell) {
  const Work& work = now().work;
  const auto claim = [&](int& position) {
    if (position >= 0) violate("complete", "is there twice: position {} does the same", position);
    position = static_cast<int>(position_);
  };
  const auto require = [&](int position, const char* what) {
    if (position < 0 || position >= group_.start) violate("order", "expected its {} before", what);
  };
  OwnStage& stage = *own_stage();
  const bool is_loss = work.stage.value == program_.stages - 1;
  computed_gradients_ = computed_gradients_ || is_loss || work.kind != ActionKind::Forward;
  if (work.kind == ActionKind::Forward) {
    claim(cell.forward);
    if (is_loss && work.microbatch.value <= stage.last_forward) facts_.accumulates_in_order = false;
    stage.last_forward = work.microbatch.value;
    if (!program_.forward_only) ++stage.open[update_of(work.microbatch)];
    return;
  }
  require(cell.forward, "forward");
  if (work.kind == ActionKind::WeightGradient) require(cell.backward_start, "input gradient");
  if (is_half_backward(work.kind)) stage.backward = BackwardForm::Split;
  const auto follow = [&](int& previous) {
    if (work.microbatch.value <= previous) facts_.accumulates_in_order = false;
    previous = work.microbatch.value;
  };
  if (starts_backward(work.kind)) {
    claim(cell.backward_start);
    follow(stage.last_started);
  }
  if (!ends_backward(work.kind)) return;
  claim(cell.backward_end);
  const int update = update_of(work.microbatch);
  --stage.open[update];
  if (stage.reduced[update]) violate("numerics", "the gradients of update {} are reduced before it", update);
  follow(stage.last_accumulated);
}

void RankChecker::check_version(Cell& cell) {
  const int version = now().weight_version;
  const int update = update_of(now().work.microbatch);
  if (now().work.kind == ActionKind::Forward) cell.forward_version = version;
  const auto follows = [&](WeightVersionRule rule) {
    return version == version_by_update(rule, update) && weights_exist(rule, update, steps_);
  };
  facts_.is_synchronous = facts_.is_synchronous && follows(WeightVersionRule::Synchronous);
  facts_.is_double_buffered = facts_.is_double_buffered && follows(WeightVersionRule::DoubleBuffered);
  const int stashed = now().work.kind == ActionKind::Forward ? steps_ : cell.forward_version;
  facts_.is_stashed = facts_.is_stashed && version == stashed;
  if (facts_.is_synchronous || facts_.is_double_buffered || facts_.is_stashed) return;
  violate("numerics", "uses weights of version {} after {} optimizer steps, which no staleness rule does",
          version, steps_);
}

void RankChecker::pass_output() {
  if (now().flow > Flow::Gradient) return violate("shape", "expected an activation or a gradient");
  const Passage passage = passage_of(now());
  const auto output = std::find(group_.outputs.begin(), group_.outputs.end(), passage);
  if (output == group_.outputs.end()) {
    return violate("transfers", "the computation right before it does not produce this tensor");
  }
  group_.outputs.erase(output);
  if (now().kind == InstructionKind::HandOff) return hand_off(passage);
  End* end = end_of_link(outgoing_);
  if (end == nullptr || !slot_exists(*end)) return;
  if (end->slots[now().slot]) {
    return violate("memory",
                   "the send slot still holds stage {} microbatch {}; expected a wait for that send before",
                   end->slots[now().slot]->source.value, end->slots[now().slot]->microbatch.value);
  }
  end->slots[now().slot] = passage;
  ++end->passed;
  end->digest.add(passage);
  ++unwaited_sends_;
}

void RankChecker::hand_off(const Passage& passage) {
  if (!own_.contains(passage.target.value)) {
    return violate("ownership", "stage {} is not on this rank", passage.target.value);
  }
  if (hand_offs_.link == nullptr) return violate("transfers", "the rank has no link to itself");
  if (!slot_exists(hand_offs_)) return;
  Delivered& input = cell_at(passage.target, passage.microbatch).inputs[static_cast<int>(passage.flow)];
  if (input.state != Input::None) return violate("transfers", "the tensor is passed twice");
  auto& slot = hand_offs_.slots[now().slot];
  if (slot) {
    return violate("memory", "the hand-off slot still holds stage {} microbatch {}", slot->source.value,
                   slot->microbatch.value);
  }
  slot = passage;
  ++hand_offs_.passed;
  hand_offs_.digest.add(passage);
  input = Delivered{Input::Arrived, program_.rank, now().slot};
}

void RankChecker::wait_send() {
  End* end = end_of_link(outgoing_);
  if (end == nullptr || !slot_exists(*end)) return;
  auto& slot = end->slots[now().slot];
  if (now().flow > Flow::Gradient || !slot || *slot != passage_of(now())) {
    return violate("transfers", "the slot holds no such send");
  }
  slot.reset();
  --unwaited_sends_;
}

void RankChecker::reduce() {
  OwnStage* stage = own_stage();
  if (stage == nullptr) return;
  const int update = now().update;
  if (program_.forward_only) return violate("numerics", "a forward-only program has no gradients");
  if (update < 0 || update >= program_.updates) {
    return violate("shape", "expected an update of 0 to {}, found {}", program_.updates - 1, update);
  }
  if (stage->reduced[update]) return violate("numerics", "the gradients of the update are reduced twice");
  if (stage->open[update] != 0) {
    return violate("numerics", "expected after the stage's last backward, {} of the update are open",
                   stage->open[update]);
  }
  stage->reduced[update] = true;
}

void RankChecker::step() {
  if (program_.forward_only) return violate("numerics", "a forward-only program has no optimizer step");
  if (now().update != steps_ || steps_ >= program_.updates) {
    return violate("numerics", "expected the step of update {} of {}", steps_, program_.updates);
  }
  for (const auto& [number, stage] : own_) {
    if (!stage.reduced[steps_])
      violate("numerics", "the gradients of stage {} are not reduced before it", number);
  }
  ++steps_;
  if (steps_ == program_.updates && unwaited_sends_ > 0) violate_unwaited_sends();
}

// What of the rule one rank can see; who waits for whom is a matter of all ranks.
void RankChecker::validate() {
  const bool is_in_order = program_.updates == 1 && !program_.forward_only && own_.size() == 1 &&
                           program_.stages == program_.ranks && own_.begin()->first == program_.rank.value;
  if (!is_in_order) {
    return violate("shape", "expected one update and one stage a rank, stage {} here", program_.rank.value);
  }
  if (facts_.is_post_validated) return violate("numerics", "the step before is validated twice");
  facts_.is_post_validated = true;
  if (computed_gradients_ || steps_ > 0) {
    violate("numerics", "stands behind computations that add to the gradients of the step before");
  }
  check_provisional_messages();
}

// Called at ValidateStep, or at the end of a program without it, which has no such messages.
void RankChecker::check_provisional_messages() {
  const auto check = [&](const End& end, int least, int most) {
    const int told = end.link->provisional_messages;
    if (told >= least && told <= most) return;
    violate("transfers", "link {} to {} says {} provisional messages, expected {}{}", end.link->source.value,
            end.link->target.value, told, least == most ? "" : "at least ", least);
  };
  const bool validates = facts_.is_post_validated;
  for (const auto& [peer, end] : outgoing_) {
    const int sent = validates ? end.passed : 0;
    check(end, sent, sent);
  }
  for (const auto& [peer, end] : incoming_)
    check(end, validates ? end.passed : 0, validates ? end.link->messages : 0);
}

void RankChecker::violate_unwaited_sends() {
  for (const auto& [peer, end] : outgoing_) {
    for (const auto& slot : end.slots) {
      if (!slot) continue;
      violate("transfers", "stands before a wait for the send of stage {} microbatch {} to rank {}",
              slot->source.value, slot->microbatch.value, peer);
    }
  }
}

}  // namespace penstock::plan::internal
