#include "plan/simulation/internal/lowered_player.h"

#include <algorithm>

#include "plan/simulation/internal/durations.h"
#include "plan/simulation/internal/summary.h"

namespace penstock::plan::internal {

LoweredPlayer::LoweredPlayer(const LoweredProgram& program, const SimulationCosts& costs)
    : program_(program),
      costs_(costs),
      link_costs_(costs),
      blocks_(std::max(costs.waits.blocks, 1)),
      deliveries_(program.ranks.front().stages,
                  program.ranks.front().microbatches * program.ranks.front().updates),
      ranks_(program.ranks.size()) {
  result_.ranks.resize(program.ranks.size());
  for (const RankProgram& rank : program.ranks) {
    for (const StageBuffers& buffers : rank.buffers) holders_[buffers.stage.value].push_back(rank.rank.value);
    for (const plan::Link& link : rank.links) {
      if (link.source == link.target) continue;
      const auto [entry, is_new] = link_of_.try_emplace({link.source, link.target}, links_.size());
      if (!is_new) continue;
      links_.push_back({.source = link.source,
                        .target = link.target,
                        .costs = link_costs_.between(link.source, link.target),
                        .messages = std::vector<Message>(link.messages),
                        .sent_in_slot = std::vector<size_t>(link.send_slots),
                        .posted_in_slot = std::vector<size_t>(link.receive_slots)});
    }
  }
  std::erase_if(holders_, [](const auto& entry) { return entry.second.size() < 2; });
}

StatusOr<Simulation> LoweredPlayer::play() {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) events_.push({0, static_cast<int>(rank), -1});
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    Rank& rank = ranks_[event.rank];
    if (rank.computes && event.version != rank.version) continue;
    if (rank.computes) end(event.rank, event.time);
    advance(event.rank, event.time);
  }
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].next == program_.ranks[rank].instructions.size()) continue;
    return failed_precondition("the program stops on rank {} before {} at position {}; verify says why", rank,
                               plan::to_string(now_of(static_cast<int>(rank))), ranks_[rank].next);
  }
  summarise(deliveries_, result_);
  return std::move(result_);
}

void LoweredPlayer::advance(int rank, Ticks now) {
  Rank& state = ranks_[rank];
  const auto& instructions = program_.ranks[rank].instructions;
  while (!state.computes && state.next < instructions.size()) {
    const Instruction& instruction = instructions[state.next];
    if (!may_pass(rank, instruction, now)) return;
    pass(rank, instruction, now);
    ++state.next;
  }
}

bool LoweredPlayer::may_pass(int rank, const Instruction& instruction, Ticks now) {
  const RankIndex self(rank);
  if (instruction.kind == InstructionKind::WaitReceive) {
    const Link& from = link(instruction.peer, self);
    const Ticks arrived = from.messages[from.posted_in_slot[instruction.slot]].arrived;
    return arrived != kNever && arrived <= now;
  }
  if (instruction.kind == InstructionKind::WaitSend) {
    const Link& to = link(self, instruction.peer);
    const Ticks left = to.messages[to.sent_in_slot[instruction.slot]].left;
    return left != kNever && left <= now;
  }
  return !is_shared(instruction) || has_met(rank, instruction, now);
}

// A sum over replicas is made when all of them have come to it.
bool LoweredPlayer::has_met(int rank, const Instruction& instruction, Ticks now) {
  const std::vector<int>& holders = holders_.at(instruction.work.stage.value);
  auto& present = meetings_[{instruction.work.stage.value, instruction.update}];
  const bool is_new = present.insert(rank).second;
  if (present.size() < holders.size()) return false;
  if (is_new) {
    for (const int other : holders) events_.push({now, other, -1});
  }
  return true;
}

void LoweredPlayer::pass(int rank, const Instruction& instruction, Ticks now) {
  if (instruction.kind == InstructionKind::Compute) start(rank, now);
  if (instruction.kind == InstructionKind::Send) post_send(rank, instruction, now);
  if (instruction.kind == InstructionKind::PostReceive) post_receive(rank, instruction, now);
}

void LoweredPlayer::start(int rank, Ticks now) {
  Rank& state = ranks_[rank];
  const Instruction& first = now_of(rank);
  state.action = {first.work, std::nullopt};
  if (first.overlaps_next) state.action.overlapped = program_.ranks[rank].instructions[++state.next].work;
  state.computes = true;
  state.start = state.measured = now;
  state.work_left = duration_of(costs_, state.action) * blocks_;
  schedule_end(rank, now);
}

void LoweredPlayer::end(int rank, Ticks now) {
  Rank& state = ranks_[rank];
  RankTimeline& timeline = result_.ranks[rank];
  state.computes = false;
  timeline.actions.push_back({state.action, state.start, now});
  timeline.slowed += now - state.start - duration_of(costs_, state.action);
  hand_over(state.action.work, now);
  if (state.action.overlapped) hand_over(*state.action.overlapped, now);
}

// As if the reader were on the same rank; the match of a message says when it arrives elsewhere.
void LoweredPlayer::hand_over(const Work& work, Ticks now) {
  const auto passage = outgoing(work, program_.ranks.front().stages);
  if (passage) deliveries_[*passage] = {now, now, false};
}

void LoweredPlayer::post_send(int rank, const Instruction& instruction, Ticks now) {
  Link& to = link(RankIndex(rank), instruction.peer);
  const size_t number = to.sent++;
  to.sent_in_slot[instruction.slot] = number;
  to.messages[number].sent = now;
  change_waits(rank, +1, now);
  match(to, number, now, passage_of(instruction));
}

void LoweredPlayer::post_receive(int rank, const Instruction& instruction, Ticks now) {
  Link& from = link(instruction.peer, RankIndex(rank));
  const size_t number = from.posted++;
  from.posted_in_slot[instruction.slot] = number;
  from.messages[number].posted = now;
  change_waits(rank, +1, now);
  match(from, number, now, passage_of(instruction));
}

void LoweredPlayer::match(Link& link, size_t number, Ticks now, const Passage& passage) {
  Message& message = link.messages[number];
  if (message.sent == kNever || message.posted == kNever) return;
  change_waits(link.source.value, -1, now);
  change_waits(link.target.value, -1, now);
  const Ticks occupancy = link_costs_.occupancy(link.costs, boundary_of(passage));
  message.left = link.free_since = std::max(link.free_since, now) + occupancy;
  message.arrived = message.left + link.costs.latency;
  TimedDelivery& delivery = deliveries_[passage];
  delivery.arrived = message.arrived;
  delivery.is_remote = true;
  events_.push({message.left, link.source.value, -1});
  events_.push({message.arrived, link.target.value, -1});
}

void LoweredPlayer::change_waits(int rank, int by, Ticks now) {
  Rank& state = ranks_[rank];
  const int64_t before = speed_of(state);
  state.waits += by;
  if (!state.computes || speed_of(state) == before) return;
  state.work_left = std::max<int64_t>(state.work_left - before * (now - state.measured), 0);
  state.measured = now;
  schedule_end(rank, now);
}

int64_t LoweredPlayer::speed_of(const Rank& rank) const {
  return std::max<int64_t>(blocks_ - int64_t{rank.waits} * costs_.waits.blocks_per_wait, 1);
}

void LoweredPlayer::schedule_end(int rank, Ticks now) {
  Rank& state = ranks_[rank];
  const int64_t speed = speed_of(state);
  events_.push({now + (state.work_left + speed - 1) / speed, rank, ++state.version});
}

}  // namespace penstock::plan::internal
