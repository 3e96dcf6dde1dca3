#include "plan/schedule/internal/rehearsal.h"

#include <algorithm>
#include <deque>
#include <string>

#include "plan/schedule/internal/update_progress.h"

namespace penstock::plan::internal {
namespace {

enum class Wait : uint8_t { Nothing, Arrival, PostedReceive };

struct RankState {
  explicit RankState(UpdateProgress updates_of_rank) : updates(std::move(updates_of_rank)) {}

  UpdateProgress updates;
  size_t next = 0;        // action
  bool flushing = false;  // waits for all of its sends before an optimizer step or the end
  bool ended = false;
  Wait wait = Wait::Nothing;
  int link = -1;     // that it waits on
  int message = -1;  // that must have arrived or been posted
};

class Rehearsal {
 public:
  Rehearsal(const ComputeProgram& program, const MessagePlan& plan, std::vector<PlannedLink>& links)
      : program_(program),
        plan_(plan),
        links_(links),
        own_stages_(stages_of_ranks(program)),
        sent_(links.size(), 0),
        consumed_(links.size(), 0) {
    for (int rank = 0; rank < program.ranks; ++rank) {
      ranks_.emplace_back(UpdateProgress(program, RankIndex(rank), own_stages_[rank]));
      ready_.push_back(rank);
    }
  }

  Status run() {
    while (true) {
      while (!ready_.empty()) {
        const int rank = ready_.front();
        ready_.pop_front();
        while (advance(rank)) {
        }
      }
      if (std::all_of(ranks_.begin(), ranks_.end(), [](const RankState& state) { return state.ended; })) {
        return ok_status();
      }
      PENSTOCK_RETURN_IF_ERROR(open_circles());
    }
  }

 private:
  // A rank that has come to its validation point has passed it: what it waits for there is also what the action
  // behind it waits for, a gradient that the next rank makes after its own.
  bool has_validated(RankIndex rank) const {
    const auto point = plan_.validation_point(rank);
    return !point || static_cast<int>(ranks_[rank.value].next) >= *point;
  }

  // Messages that the target may post by now, however many slots it has.
  int allowed(int link) const {
    const PlannedLink& planned = links_[link];
    return has_validated(planned.target) ? static_cast<int>(planned.messages.size()) : planned.provisional;
  }

  int posted(int link) const { return std::min(allowed(link), consumed_[link] + links_[link].receive_slots); }

  void wake(RankIndex rank, int link, Wait wait) {
    RankState& state = ranks_[rank.value];
    if (state.wait != wait || state.link != link) return;
    state.wait = Wait::Nothing;
    ready_.push_back(rank.value);
  }

  void wake_all_into(int rank) {
    for (const int link : plan_.links_into(RankIndex(rank)))
      wake(links_[link].source, link, Wait::PostedReceive);
  }

  bool block(int rank, Wait wait, int link, int message) {
    RankState& state = ranks_[rank];
    state.wait = wait;
    state.link = link;
    state.message = message;
    return false;
  }

  void grow(int link, int receive_slots) {
    links_[link].receive_slots = receive_slots;
    wake(links_[link].source, link, Wait::PostedReceive);
  }

  // One action or flush of `rank`; false when it has to wait or has ended.
  bool advance(int rank) {
    RankState& state = ranks_[rank];
    if (state.flushing) return flush(rank);
    const auto& actions = program_.actions[rank];
    if (state.next == actions.size()) {
      state.flushing = true;
      return true;
    }
    const Action& action = actions[state.next];
    const bool is_free =
        may_run(rank, action.work) && (!action.overlapped || may_run(rank, *action.overlapped));
    if (!is_free) return false;
    finish(rank, action.work);
    if (action.overlapped) finish(rank, *action.overlapped);
    ++state.next;
    if (plan_.validation_point(RankIndex(rank)) == static_cast<int>(state.next)) wake_all_into(rank);
    while (state.updates.take_finished_update()) state.flushing = true;
    return true;
  }

  bool flush(int rank) {
    for (const int link : plan_.links_out_of(RankIndex(rank))) {
      if (posted(link) < sent_[link]) return block(rank, Wait::PostedReceive, link, sent_[link] - 1);
    }
    RankState& state = ranks_[rank];
    state.flushing = false;
    state.ended = state.next == program_.actions[rank].size();
    return !state.ended;
  }

  bool may_run(int rank, const Work& work) {
    if (const auto passage = outgoing(work, program_.stages())) {
      const Delivery out = plan_.delivery(*passage);
      const int reused = out.link < 0 ? -1 : out.message - links_[out.link].send_slots;
      if (reused >= 0 && reused >= posted(out.link))
        return block(rank, Wait::PostedReceive, out.link, reused);
    }
    if (const auto passage = incoming(work, program_.stages())) {
      const Delivery in = plan_.delivery(*passage);
      if (in.link < 0) return true;
      // Read out of order: every message up to this one must have a slot.
      if (in.message >= posted(in.link)) grow(in.link, in.message + 1 - consumed_[in.link]);
      if (in.message >= sent_[in.link]) return block(rank, Wait::Arrival, in.link, in.message);
    }
    return true;
  }

  void finish(int rank, const Work& work) {
    if (const auto passage = incoming(work, program_.stages())) {
      if (const int link = plan_.delivery(*passage).link; link >= 0) {
        ++consumed_[link];
        wake(links_[link].source, link, Wait::PostedReceive);
      }
    }
    if (const auto passage = outgoing(work, program_.stages())) {
      if (const int link = plan_.delivery(*passage).link; link >= 0) {
        ++sent_[link];
        wake(links_[link].target, link, Wait::Arrival);
      }
    }
    ranks_[rank].updates.finish(work);
  }

  int waits_for(int rank) const {
    const RankState& state = ranks_[rank];
    if (state.wait == Wait::Nothing) return -1;
    const PlannedLink& link = links_[state.link];
    return (state.wait == Wait::Arrival ? link.source : link.target).value;
  }

  // Every rank waits for one other: gives each circle one receive slot more.
  Status open_circles() {
    std::vector<int> seen_from(ranks_.size(), -1);
    bool opened = false;
    for (int start = 0; start < program_.ranks; ++start) {
      int rank = start;
      while (rank >= 0 && seen_from[rank] < 0) {
        seen_from[rank] = start;
        rank = waits_for(rank);
      }
      if (rank < 0 || seen_from[rank] != start) continue;
      PENSTOCK_RETURN_IF_ERROR(open_circle(rank));
      opened = true;
    }
    if (opened) return ok_status();
    return internal_error(
        "lowering a program that was not verified: it stops before its end without a cycle");
  }

  Status open_circle(int first) {
    int narrowest = -1;
    int message = -1;
    std::string circle;
    int rank = first;
    do {
      const RankState& state = ranks_[rank];
      circle += fmt::format("rank {} waits for ", rank);
      const bool for_post = state.wait == Wait::PostedReceive && state.message < allowed(state.link);
      if (for_post && (narrowest < 0 || links_[state.link].receive_slots < links_[narrowest].receive_slots)) {
        narrowest = state.link;
        message = state.message;
      }
      rank = waits_for(rank);
    } while (rank != first);
    if (narrowest < 0)
      return internal_error("lowering a program that was not verified: {}rank {}", circle, first);
    grow(narrowest, message + 1 - consumed_[narrowest]);
    return ok_status();
  }

  const ComputeProgram& program_;
  const MessagePlan& plan_;
  std::vector<PlannedLink>& links_;
  const std::vector<std::vector<StageIndex>> own_stages_;
  std::vector<int> sent_;
  std::vector<int> consumed_;
  std::vector<RankState> ranks_;
  std::deque<int> ready_;
};

}  // namespace

Status grow_receive_slots(const ComputeProgram& program, const MessagePlan& plan,
                          std::vector<PlannedLink>& links) {
  return Rehearsal(program, plan, links).run();
}

}  // namespace penstock::plan::internal
