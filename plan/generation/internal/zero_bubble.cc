#include "plan/generation/internal/zero_bubble.h"

#include <algorithm>
#include <functional>
#include <queue>

namespace penstock::plan::internal {
namespace {

constexpr Ticks kUnknown = INT64_MAX;

// A forward leaves room for what its input gradient adds on top.
int64_t memory_for_forward(const MemoryDeltas& deltas) {
  return deltas.forward + std::max<int64_t>(deltas.input_gradient, 0);
}

int forwards_that_fit(const Problem& problem, int rank) {
  const MemoryDeltas& deltas = problem.deltas[rank];
  const int64_t room = problem.limits[rank] - memory_for_forward(deltas);
  return static_cast<int>(std::min<int64_t>(1 + room / deltas.forward, problem.microbatches));
}

class ListScheduler {
 public:
  ListScheduler(const Problem& problem, const ListPolicy& policy)
      : problem_(problem), policy_(policy), ranks_(problem.ranks) {
    for (int rank = 0; rank < problem.ranks; ++rank) {
      RankState& state = ranks_[rank];
      state.order.reserve(size_t{kKinds} * problem.microbatches);
      if (rank > 0) state.arrivals[kForward].reserve(problem.microbatches);
      state.arrivals[kInputGradient].reserve(problem.microbatches);
      wake(rank, 0);
    }
    ranks_.front().arrivals[kForward].assign(problem.microbatches, 0);
  }

  Orders run() {
    while (!wakes_.empty()) {
      const auto [time, rank] = wakes_.top();
      wakes_.pop();
      if (time < ranks_[rank].free) continue;  // busy; it wakes again when it is free
      const int kind = choose(rank, time);
      if (kind >= 0) start(rank, kind, time);
    }
    Orders orders;
    for (RankState& state : ranks_) orders.push_back(std::move(state.order));
    return orders;
  }

 private:
  struct RankState {
    Ticks free = 0;
    int64_t memory = 0;
    int done[kKinds] = {0, 0, 0};
    std::vector<Ticks> arrivals[2];  // of forwards' and input gradients' inputs, as far as known
    std::vector<Step> order;
  };

  void wake(int rank, Ticks time) { wakes_.push({time, rank}); }

  Ticks arrival(const RankState& state, int kind) const {
    const auto next = static_cast<size_t>(state.done[kind]);
    if (kind == kInputGradient && state.done[kInputGradient] == state.done[kForward]) return kUnknown;
    return next < state.arrivals[kind].size() ? state.arrivals[kind][next] : kUnknown;
  }

  bool may_run_ahead(int rank) const {
    const RankState& state = ranks_[rank];
    return state.done[kForward] - state.done[kInputGradient] < policy_.ahead_max[rank];
  }

  // -1: nothing yet.
  int choose(int rank, Ticks time) const {
    const RankState& state = ranks_[rank];
    const MemoryDeltas& deltas = problem_.deltas[rank];
    const int64_t room = problem_.limits[rank] - state.memory;
    const bool has_weight_gradient = state.done[kWeightGradient] < state.done[kInputGradient];
    const Ticks gradient = arrival(state, kInputGradient);
    const Ticks forward = may_run_ahead(rank) ? arrival(state, kForward) : kUnknown;
    const bool forward_fits = memory_for_forward(deltas) <= room;
    const bool can_forward = forward <= time && forward_fits;
    if (gradient <= time && !(can_forward && policy_.forward_first))
      return deltas.input_gradient <= room ? kInputGradient : kWeightGradient;
    if (can_forward) return kForward;
    if (!has_weight_gradient) return -1;
    if (forward <= time) return kWeightGradient;  // to make room
    const Ticks next = std::min(gradient, forward_fits ? forward : kUnknown);
    if (next == kUnknown) return kWeightGradient;
    const Ticks duration = problem_.costs[rank].weight_gradient;
    return (next - time) >= duration * policy_.gap_percent / 100 ? kWeightGradient : -1;
  }

  void start(int rank, int kind, Ticks time) {
    RankState& state = ranks_[rank];
    const Step step{state.done[kind]++, kind};
    const Lane& lane = problem_.lane(rank, step);
    state.order.push_back(step);
    state.memory += lane.memory;
    state.free = time + lane.duration;
    wake(rank, state.free);
    if (kind == kForward && rank + 1 < problem_.ranks)
      arrive(rank + 1, kForward, state.free + problem_.delay_up[rank]);
    // The last rank's gradient begins where its forward ends.
    if (kind == kForward && rank + 1 == problem_.ranks) state.arrivals[kInputGradient].push_back(state.free);
    if (kind == kInputGradient && rank > 0)
      arrive(rank - 1, kInputGradient, state.free + problem_.delay_down[rank - 1]);
  }

  void arrive(int rank, int kind, Ticks time) {
    ranks_[rank].arrivals[kind].push_back(time);
    wake(rank, std::max(time, ranks_[rank].free));
  }

  const Problem& problem_;
  const ListPolicy& policy_;
  std::vector<RankState> ranks_;
  std::priority_queue<std::pair<Ticks, int>, std::vector<std::pair<Ticks, int>>, std::greater<>> wakes_;
};

}  // namespace

std::vector<int> warm_up(const Problem& problem, bool overrun) {
  const int last = problem.ranks - 1;
  std::vector<Ticks> first_forward_end(problem.ranks);
  Ticks time = 0;
  for (int rank = 0; rank <= last; ++rank) {
    if (rank > 0) time += problem.delay_up[rank - 1];
    first_forward_end[rank] = time += problem.costs[rank].forward;
  }

  std::vector<int> counts(problem.ranks);
  Ticks gradient = time;  // when the first input gradient can start
  for (int rank = last; rank >= 0; --rank) {
    if (rank < last) gradient += problem.delay_down[rank];
    const Ticks forward = std::max<Ticks>(problem.costs[rank].forward, 1);
    const Ticks wait = gradient - first_forward_end[rank];
    const int64_t fitting = wait / forward + (overrun && wait % forward != 0 ? 1 : 0);
    const int64_t wanted = std::max<int64_t>(1 + fitting, rank == last ? 1 : counts[rank + 1] + 1);
    counts[rank] = static_cast<int>(std::min<int64_t>(wanted, forwards_that_fit(problem, rank)));
    const Ticks warm = first_forward_end[rank] + (counts[rank] - 1) * problem.costs[rank].forward;
    gradient = std::max(gradient, warm) + problem.costs[rank].input_gradient;
  }
  for (int rank = 1; rank <= last; ++rank)
    counts[rank] = std::clamp(counts[rank], 1, std::max(counts[rank - 1] - 1, 1));
  return counts;
}

Orders list_schedule(const Problem& problem, const ListPolicy& policy) {
  return ListScheduler(problem, policy).run();
}

}  // namespace penstock::plan::internal
