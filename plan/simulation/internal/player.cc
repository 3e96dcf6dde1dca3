#include "plan/simulation/internal/player.h"

#include <algorithm>

namespace penstock::plan::internal {

Player::Player(const ComputeProgram& program, const SimulationCosts& costs)
    : program_(program),
      costs_(costs),
      ends_(size_t{2} * program.stages() * program.total_microbatches(), -1) {
  result_.ranks.resize(program.ranks);
  for (int rank = 0; rank < program.ranks; ++rank)
    result_.ranks[rank].actions.reserve(program.actions[rank].size());
}

size_t Player::cell(Flow flow, StageIndex source, MicrobatchIndex microbatch) const {
  const auto stages = static_cast<size_t>(program_.stages());
  const auto row = static_cast<size_t>(flow) * stages + source.value;
  return row * program_.total_microbatches() + microbatch.value;
}

bool Player::crosses_ranks(const Passage& passage) const {
  return program_.rank_of(passage.source, passage.microbatch) !=
         program_.rank_of(passage.target, passage.microbatch);
}

std::optional<Player::Input> Player::input_of(const Work& work) const {
  const auto passage = incoming(work, program_.stages());
  if (!passage) return Input{};
  const Ticks produced = ends_[cell(passage->flow, passage->source, passage->microbatch)];
  if (produced < 0) return std::nullopt;
  return Input{produced, produced + (crosses_ranks(*passage) ? costs_.latency : 0)};
}

std::optional<Player::Input> Player::last_input_of(const Action& action) const {
  const auto first = input_of(action.work);
  if (!first || !action.overlapped) return first;
  const auto second = input_of(*action.overlapped);
  return second && second->arrived < first->arrived ? first : second;
}

Ticks Player::duration_of(const Work& work) const {
  const StageCosts& stage = costs_.stages[work.stage.value];
  switch (work.kind) {
    case ActionKind::Forward:
      return stage.forward;
    case ActionKind::Backward:
      return stage.input_gradient + stage.weight_gradient;
    case ActionKind::InputGradient:
      return stage.input_gradient;
    case ActionKind::WeightGradient:
      return stage.weight_gradient;
  }
  return 0;
}

Ticks Player::duration_of(const Action& action) const {
  if (!action.overlapped) return duration_of(action.work);
  if (costs_.overlapped_pair > 0) return costs_.overlapped_pair;
  return duration_of(action.work) + duration_of(*action.overlapped);
}

Status Player::play_earliest() {
  for (int rank = 0; rank < program_.ranks; ++rank) ready_.push_back(rank);
  while (!ready_.empty()) {
    const int rank = ready_.front();
    ready_.pop_front();
    const auto& played = result_.ranks[rank].actions;
    while (played.size() < program_.actions[rank].size()) {
      const auto input = last_input_of(program_.actions[rank][played.size()]);
      if (!input) break;
      run(rank, std::max(played.empty() ? 0 : played.back().end, input->arrived));
    }
  }
  for (int rank = 0; rank < program_.ranks; ++rank) {
    const size_t position = result_.ranks[rank].actions.size();
    if (position == program_.actions[rank].size()) continue;
    return failed_precondition("the program stops on rank {} before {} at position {}; verify says why", rank,
                               to_string(program_.actions[rank][position]), position);
  }
  return ok_status();
}

void Player::run(int rank, Ticks start) {
  RankTimeline& timeline = result_.ranks[rank];
  const Action& action = program_.actions[rank][timeline.actions.size()];
  const Ticks end = start + duration_of(action);
  timeline.actions.push_back({action, start, end});
  timeline.busy += end - start;
  note_end(action.work, end);
  if (action.overlapped) note_end(*action.overlapped, end);
}

void Player::note_end(const Work& work, Ticks end) {
  const auto passage = outgoing(work, program_.stages());
  if (!passage) return;
  ends_[cell(passage->flow, passage->source, passage->microbatch)] = end;
  ready_.push_back(program_.rank_of(passage->target, passage->microbatch).value);
}

Simulation Player::summarise() && {
  Ticks origin = INT64_MAX;
  Ticks end = 0;
  Ticks busiest = 0;
  for (const RankTimeline& rank : result_.ranks) {
    if (rank.actions.empty()) continue;
    origin = std::min(origin, rank.actions.front().start);
    end = std::max(end, rank.actions.back().end);
    busiest = std::max(busiest, rank.busy);
    result_.max_stage_span =
        std::max(result_.max_stage_span, rank.actions.back().end - rank.actions.front().start);
  }
  result_.makespan = std::max<Ticks>(end - std::min(origin, end), 0);
  for (int rank = 0; rank < program_.ranks; ++rank) {
    result_.idle_total += result_.makespan - result_.ranks[rank].busy;
    add_idle_times(rank, origin, end);
    const auto& actions = result_.ranks[rank].actions;
    for (size_t position = 0; position < actions.size(); ++position) {
      classify(actions[position].action.work, rank, position);
      if (actions[position].action.overlapped) classify(*actions[position].action.overlapped, rank, position);
    }
  }
  const auto ratio = [](Ticks part, double whole) {
    return whole > 0 ? static_cast<double>(part) / whole : 0;
  };
  result_.bubble_fraction = ratio(result_.idle_total, static_cast<double>(result_.makespan) * program_.ranks);
  result_.stage_bubble_rate =
      ratio(result_.max_stage_span - busiest, static_cast<double>(result_.max_stage_span));
  return std::move(result_);
}

void Player::add_idle_times(int rank, Ticks origin, Ticks end) {
  RankTimeline& timeline = result_.ranks[rank];
  if (timeline.actions.empty()) {
    timeline.idle_warm_up = result_.makespan;
    return;
  }
  timeline.idle_warm_up = timeline.actions.front().start - origin;
  timeline.idle_cool_down = end - timeline.actions.back().end;
  for (size_t position = 1; position < timeline.actions.size(); ++position) {
    const TimedAction& timed = timeline.actions[position];
    const Ticks free_since = timeline.actions[position - 1].end;
    // Only while a message was on its way and nothing else was missing did the rank wait for the transfer.
    const Input input = *last_input_of(timed.action);
    const Ticks in_transfer = std::max<Ticks>(input.arrived - std::max(input.produced, free_since), 0);
    timeline.idle_transfer += in_transfer;
    timeline.idle_dependency += timed.start - free_since - in_transfer;
  }
}

void Player::classify(const Work& work, int rank, size_t position) {
  const auto passage = incoming(work, program_.stages());
  if (!passage) return;
  if (!crosses_ranks(*passage)) {
    ++result_.handoffs.local;
    return;
  }
  ++(passage->flow == Flow::Activation ? result_.transfers_forward : result_.transfers_backward);
  // The latest start before the consumer's is that of the action before it.
  const Ticks produced = ends_[cell(passage->flow, passage->source, passage->microbatch)];
  const bool is_hidden = position > 0 && result_.ranks[rank].actions[position - 1].start >= produced;
  ++(is_hidden ? result_.handoffs.hidden : result_.handoffs.exposed);
}

}  // namespace penstock::plan::internal
