#include "plan/verification/internal/rank_checker.h"

#include <algorithm>

#include "plan/schedule/limits.h"

namespace penstock::plan::internal {

RankFacts RankChecker::run() {
  if (has_shape() && buffers_are_valid() && links_are_valid()) execute();
  if (report_.is_empty()) check_end();
  for (const auto& [number, stage] : own_) facts_.high_water.push_back(stage.high_water);
  return std::move(facts_);
}

bool RankChecker::has_shape() {
  const RankProgram& p = program_;
  const auto refuse = [&](const char* what, int64_t found, int64_t most) {
    report_.add("shape", Place{p.rank, -1, ""}, "expected {} of at least 1 and at most {}, found {}", what,
                most, found);
    return false;
  };
  if (p.ranks < 1 || p.ranks > limits::kRanks) return refuse("ranks", p.ranks, limits::kRanks);
  if (p.stages < 1 || p.stages > limits::kStages) return refuse("stages", p.stages, limits::kStages);
  if (p.microbatches < 1) return refuse("microbatches", p.microbatches, limits::kMicrobatchesInAll);
  if (p.updates < 1) return refuse("updates", p.updates, limits::kMicrobatchesInAll);
  const int64_t total = int64_t{p.microbatches} * p.updates;
  if (total > limits::kMicrobatchesInAll)
    return refuse("microbatches of all updates", total, limits::kMicrobatchesInAll);
  if (p.rank.value < 0 || p.rank.value >= p.ranks) {
    report_.add("shape", Place{}, "expected a rank of 0 to {}, found {}", p.ranks - 1, p.rank.value);
    return false;
  }
  if (!p.forward_only || p.updates == 1) return true;
  report_.add("shape", Place{p.rank, -1, ""}, "a forward-only program has 1 update, found {}", p.updates);
  return false;
}

// Every slot of a valid program is used by at least one instruction: that bounds what a program may ask for.
bool RankChecker::buffers_are_valid() {
  const auto count = static_cast<int64_t>(program_.instructions.size());
  int64_t slots = 0;
  int previous = -1;
  for (const StageBuffers& buffers : program_.buffers) {
    const int stage = buffers.stage.value;
    if (stage <= previous || stage >= program_.stages) {
      report_.add("shape", Place{program_.rank, -1, ""},
                  "expected stages below {} in ascending order, found {} after {}", program_.stages, stage,
                  previous);
      return false;
    }
    previous = stage;
    slots += std::max(buffers.activation_slots, 0);
    const bool counts_updates = !program_.forward_only;
    const int64_t updates =
        counts_updates ? int64_t{program_.updates} * static_cast<int64_t>(program_.buffers.size()) : 0;
    if (buffers.activation_slots < 0 || slots > count || updates > count) {
      report_.add("memory", Place{program_.rank, -1, ""},
                  "stage {} asks for {} activation slots and {} updates, more than {} instructions can use",
                  stage, buffers.activation_slots, program_.updates, count);
      return false;
    }
    if (!twin_is_valid(buffers)) return false;
    OwnStage& own = own_[stage];
    own.stage = buffers.stage;
    own.leased.assign(buffers.activation_slots, false);
    if (!counts_updates) continue;
    own.open.assign(program_.updates, 0);
    own.reduced.assign(program_.updates, false);
  }
  if (!own_.empty()) return true;
  report_.add("shape", Place{program_.rank, -1, ""}, "the rank holds no stage");
  return false;
}

bool RankChecker::twin_is_valid(const StageBuffers& buffers) {
  const bool is_alone = !buffers.twin.is_set() && buffers.replica == 0;
  const bool has_twin = buffers.twin.value >= 0 && buffers.twin.value < program_.ranks &&
                        buffers.twin != program_.rank && (buffers.replica == 0 || buffers.replica == 1);
  if (is_alone || has_twin) return true;
  report_.add("ownership", Place{program_.rank, -1, ""},
              "stage {} is replica {} with its twin on rank {}; expected 0 or 1, and another rank",
              buffers.stage.value, buffers.replica, buffers.twin.value);
  return false;
}

bool RankChecker::links_are_valid() {
  const auto count = static_cast<int64_t>(program_.instructions.size());
  int64_t messages = 0;
  std::pair<RankIndex, RankIndex> previous;
  for (const Link& link : program_.links) {
    const auto refuse = [&](const char* what) {
      report_.add("shape", Place{program_.rank, -1, ""},
                  "link {} to {}: {}; found {} messages, {} receive slots, {} send slots", link.source.value,
                  link.target.value, what, link.messages, link.receive_slots, link.send_slots);
      return false;
    };
    const bool in_range = std::min(link.source, link.target).value >= 0 &&
                          std::max(link.source, link.target).value < program_.ranks;
    if (!in_range || (link.source != program_.rank && link.target != program_.rank)) {
      return refuse("expected ranks that exist, this one among them");
    }
    const std::pair ends(link.source, link.target);
    if (ends <= previous) return refuse("expected links in order of source and target");
    previous = ends;
    messages += std::max(link.messages, 0);
    if (link.messages < 1 || messages > count) return refuse("expected a message for some instruction");
    const bool is_local = link.source == link.target;
    const bool has_slots = link.receive_slots >= 1 && link.receive_slots <= link.messages &&
                           link.send_slots >= 0 && link.send_slots <= link.messages &&
                           (link.send_slots == 0) == is_local;
    if (link.provisional_messages < 0 || link.provisional_messages > link.messages ||
        (is_local && link.provisional_messages > 0))
      return refuse("expected at most all messages to be provisional, and no hand-off");
    if (!has_slots) return refuse("expected 1 slot per message at most, and send slots unless it is local");
    const bool arrives = link.target == program_.rank;
    End& end = is_local ? hand_offs_ : arrives ? incoming_[link.source.value] : outgoing_[link.target.value];
    end.link = &link;
    end.slots.assign(arrives ? link.receive_slots : link.send_slots, std::nullopt);
  }
  return true;
}

void RankChecker::execute() {
  const auto& instructions = program_.instructions;
  for (position_ = 0; position_ < instructions.size() && !report_.is_full(); ++position_) {
    const InstructionKind kind = now().kind;
    const bool passes = kind == InstructionKind::Send || kind == InstructionKind::HandOff;
    const bool completes_pair = kind == InstructionKind::Compute && group_.expects_second;
    if (group_.expects_second ? !completes_pair : !passes) close_group();
    switch (kind) {
      case InstructionKind::AcquireActivation:
        acquire();
        continue;
      case InstructionKind::ReleaseActivation:
        release();
        continue;
      case InstructionKind::PostReceive:
        post_receive();
        continue;
      case InstructionKind::WaitReceive:
        wait_receive();
        continue;
      case InstructionKind::Compute:
        compute();
        continue;
      case InstructionKind::Send:
      case InstructionKind::HandOff:
        pass_output();
        continue;
      case InstructionKind::WaitSend:
        wait_send();
        continue;
      case InstructionKind::ReduceGradients:
        reduce();
        continue;
      case InstructionKind::OptimizerStep:
        step();
        continue;
      case InstructionKind::ValidateStep:
        validate();
        continue;
    }
    violate("shape", "no instruction of kind {} exists", static_cast<int>(kind));
  }
  position_ = instructions.size();
  if (!report_.is_full()) close_group();
}

void RankChecker::close_group() {
  if (group_.expects_second) violate("shape", "stands where the second half of a pair is expected");
  for (const Passage& passage : group_.outputs) {
    violate("transfers", "stands before the {} of stage {} microbatch {} is sent or handed to stage {}",
            passage.flow == Flow::Activation ? "activation" : "gradient", passage.source.value,
            passage.microbatch.value, passage.target.value);
  }
  for (const auto& [cell, flow] : group_.inputs) {
    Delivered& input = cell->inputs[static_cast<int>(flow)];
    input.state = Input::Read;
    End& end = input.source == program_.rank ? hand_offs_ : incoming_[input.source.value];
    end.slots[input.slot].reset();
  }
  group_ = Group{};
}

void RankChecker::check_end() {
  check_cells_at_end();
  const auto check_link = [&](const End& end) {
    if (end.link == nullptr || !report_.is_empty()) return;
    TransferDigest digest_of_link = end.digest;
    if (facts_.is_post_validated && end.link->source != end.link->target)
      digest_of_link.add_provisional(end.link->provisional_messages);
    const uint64_t digest = digest_of_link.value();
    if (end.passed == end.link->messages && digest == end.link->digest) return;
    report_.add("transfers", Place{program_.rank, -1, ""},
                "link {} to {} says {} messages with digest {:x}, the instructions make {} with digest {:x}",
                end.link->source.value, end.link->target.value, end.link->messages, end.link->digest,
                end.passed, digest);
  };
  for (const auto& [peer, end] : incoming_) check_link(end);
  check_link(hand_offs_);
  for (const auto& [peer, end] : outgoing_) check_link(end);
  if (!facts_.is_post_validated) check_provisional_messages();
  check_backward_forms();
  if (unwaited_sends_ > 0) violate_unwaited_sends();
  if (program_.forward_only || steps_ == program_.updates) return;
  report_.add("numerics", Place{program_.rank, -1, ""}, "expected {} optimizer steps, found {}",
              program_.updates, steps_);
}

// A slot without room for what W reads of its I would be written past its end.
void RankChecker::check_backward_forms() {
  const auto words_of = [](BackwardForm form) {
    return form == BackwardForm::Split ? "split backwards" : "whole backwards only";
  };
  for (const StageBuffers& buffers : program_.buffers) {
    const BackwardForm found = own_.at(buffers.stage.value).backward;
    if (found == buffers.backward) continue;
    report_.add("memory", Place{program_.rank, -1, ""},
                "the activation slots of stage {} are for {}, the instructions have {}", buffers.stage.value,
                words_of(buffers.backward), words_of(found));
  }
}

void RankChecker::check_cells_at_end() {
  for (const auto& [key, cell] : cells_) {
    if (report_.is_full()) return;
    const int64_t total = int64_t{program_.microbatches} * program_.updates;
    const Work forward{StageIndex(key / total), ActionKind::Forward, MicrobatchIndex(key % total)};
    const Place place{program_.rank, cell.forward, to_string(forward)};
    for (const Delivered& input : cell.inputs) {
      if (input.state == Input::None || input.state == Input::Read) continue;
      report_.add("transfers", place, "a tensor from rank {} for it is never read", input.source.value);
    }
    if (cell.forward < 0) report_.add("complete", place, "is missing");
    if (cell.lease >= 0) report_.add("memory", place, "its activation slot {} is never released", cell.lease);
    const bool has_backward = cell.backward_start >= 0 && cell.backward_end >= 0;
    if (!has_backward && !program_.forward_only) {
      report_.add("complete", place, "its backward is missing; expected one B, or one I and one W");
    }
  }
}

Place RankChecker::here() const {
  if (position_ >= program_.instructions.size())
    return Place{program_.rank, static_cast<int>(position_), "the end"};
  const bool computes = now().kind == InstructionKind::Compute;
  return Place{program_.rank, static_cast<int>(position_),
               computes ? to_string(now().work) : to_string(now())};
}

}  // namespace penstock::plan::internal
