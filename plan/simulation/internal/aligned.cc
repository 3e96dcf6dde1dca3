// OLMo's aligned table: the ranks' steady phases stand in step, each forward beside its neighbour's backward.
#include <algorithm>
#include <cstddef>

#include "plan/simulation/internal/player.h"

namespace penstock::plan::internal {
namespace {

bool is_forward(const Action& action) {
  return action.work.kind == ActionKind::Forward;
}

}  // namespace

Status Player::check_aligned() const {
  const int ranks = program_.ranks;
  const int least = std::max(ranks, 2 * ranks - 3);
  if (program_.placement != loop_placement(ranks, program_.stages_per_rank)) {
    return failed_precondition("aligned timeline: expected the loop placement, stage s on rank s mod {}",
                               ranks);
  }
  if (program_.microbatches < least || program_.updates != 1) {
    return failed_precondition(
        "aligned timeline: expected at least {} microbatches of one update for {} ranks, found {}", least,
        ranks, program_.total_microbatches());
  }
  for (const StageCosts& stage : costs_.stages) {
    const bool is_one_to_two = stage.forward > 0 && stage.forward == costs_.stages.front().forward &&
                               stage.fused_backward() == 2 * stage.forward;
    const bool has_free_links = costs_.latency == 0 && costs_.ticks_per_message == 0 &&
                                costs_.bandwidth.bytes == 0 && costs_.links.empty();
    if (is_one_to_two && has_free_links && costs_.updates.empty()) continue;
    return failed_precondition(
        "aligned timeline: expected F=1 and B=2 on every stage, free transfers and no updates");
  }
  for (const auto& actions : program_.actions) {
    for (const Action& action : actions) {
      const bool is_plain =
          !action.overlapped && (is_forward(action) || action.work.kind == ActionKind::Backward);
      if (!is_plain)
        return failed_precondition("aligned timeline: expected F and B only, found {}", to_string(action));
    }
  }
  return ok_status();
}

Status Player::play_aligned() {
  PENSTOCK_RETURN_IF_ERROR(check_aligned());
  result_.timeline = Timeline::Aligned;
  for (int rank = 0; rank < program_.ranks; ++rank) align_rank(rank);
  for (int rank = 0; rank < program_.ranks; ++rank) {
    for (const TimedAction& timed : result_.ranks[rank].actions) {
      if (arrival_of(timed.action) <= timed.start) continue;
      return failed_precondition(
          "aligned timeline: schedule {} does not follow it, {} of rank {} would start before its input",
          program_.schedule, to_string(timed.action), rank);
    }
  }
  return ok_status();
}

// Forwards that a rank runs ahead of its first pair of forward and backward. Counted on the last rank, which
// always has such a pair; 2 more on every rank before it, and 1 more where a program with one stage a rank
// says so (1F1B).
size_t Player::warm_up_of(int rank) const {
  const auto leading = [&](int of_rank) {
    const auto& actions = program_.actions[of_rank];
    return std::find_if_not(actions.begin(), actions.end(), is_forward) - actions.begin();
  };
  const int last = program_.ranks - 1;
  const auto forwards = static_cast<ptrdiff_t>(program_.actions[rank].size() / 2);
  const bool may_be_1f1b = program_.stages_per_rank == 1 && program_.ranks > 1;
  const ptrdiff_t more = may_be_1f1b ? leading(last - 1) - leading(last) : 2;
  const ptrdiff_t warm_up = leading(last) - 1 + more * (last - rank);
  return static_cast<size_t>(std::clamp<ptrdiff_t>(warm_up, 0, forwards));
}

void Player::align_rank(int rank) {
  const auto& actions = program_.actions[rank];
  const Ticks slot = costs_.stages.front().forward;
  const int later_ranks = program_.ranks - 1 - rank;
  const size_t warm_up = warm_up_of(rank);
  const auto after_last_forward =
      static_cast<size_t>(actions.rend() - std::find_if(actions.rbegin(), actions.rend(), is_forward));
  // The backward right after the last forward is that forward's pair, if there are pairs at all.
  const size_t drain = warm_up < actions.size() / 2 ? after_last_forward + 1 : after_last_forward;

  Ticks time = rank * slot;
  for (size_t position = 0; position < actions.size(); ++position) {
    if (position == warm_up) time += 2 * later_ranks * slot;
    if (position >= drain && position < drain + later_ranks) time += slot;
    run(rank, time);
    time = result_.ranks[rank].actions.back().end;
  }
}

}  // namespace penstock::plan::internal
