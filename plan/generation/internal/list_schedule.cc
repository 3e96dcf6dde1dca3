#include "plan/generation/internal/list_schedule.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <queue>
#include <tuple>

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
      ranks_[rank].order.reserve(size_t(problem.lanes_per_rank()) * problem.microbatches);
      wake(rank, 0);
    }
    ranks_.front().arrivals[kForward].assign(problem.microbatches, 0);
  }

  // Plays what starts before `time`, so that run() goes on from there.
  void play(const Timetable& timetable, Ticks time) {
    play_until_ = time;
    std::vector<std::tuple<Ticks, int, Step>> played;
    for (int rank = 0; rank < problem_.ranks; ++rank) {
      const std::vector<Step>& order = timetable.orders()[rank];
      for (size_t i = 0; i < order.size() && timetable.start(rank, static_cast<int>(i)) < time; ++i)
        played.emplace_back(timetable.start(rank, static_cast<int>(i)), rank, order[i]);
    }
    std::stable_sort(played.begin(), played.end(), [](const auto& step, const auto& other) {
      return std::get<Ticks>(step) < std::get<Ticks>(other);
    });
    for (const auto& [start_time, rank, step] : played) start(rank, step, start_time);
  }

  std::optional<Orders> run() {
    while (!wakes_.empty()) {
      const auto [time, rank] = wakes_.top();
      wakes_.pop();
      if (time < ranks_[rank].free) continue;  // busy; it wakes again when it is free
      if (const std::optional<Step> step = choose(rank, time)) start(rank, *step, time);
    }
    Orders orders;
    for (RankState& state : ranks_) {
      if (state.order.size() != size_t(problem_.lanes_per_rank()) * problem_.microbatches)
        return std::nullopt;
      orders.push_back(std::move(state.order));
    }
    return orders;
  }

 private:
  static constexpr int kLanes = kKinds * kStagesPerRankMax;

  struct RankState {
    Ticks free = 0;
    int64_t memory = 0;
    int done[kLanes] = {};
    std::vector<Ticks> arrivals[kLanes];  // of forwards' and input gradients' inputs, as far as known
    std::deque<Step> weight_gradients;    // that could run, the oldest first
    std::vector<Step> order;
  };

  void wake(int rank, Ticks time) { wakes_.push({std::max(time, play_until_), rank}); }

  // When the lane's next step could start for all that is known, memory aside.
  Ticks arrival(int rank, int lane) const {
    const RankState& state = ranks_[rank];
    const auto next = static_cast<size_t>(state.done[lane]);
    if (next >= state.arrivals[lane].size()) return kUnknown;
    const bool is_too_far =
        lane == kForward && state.done[kForward] - state.done[kInputGradient] >= policy_.ahead_max[rank];
    return is_too_far ? kUnknown : state.arrivals[lane][next];
  }

  bool fits(int rank, int lane) const {
    const int64_t room = problem_.limits[rank] - ranks_[rank].memory;
    const MemoryDeltas& deltas = problem_.deltas[problem_.lanes[rank][lane].stage];
    if (lane % kKinds == kInputGradient) return deltas.input_gradient <= room;
    const bool keeps_room_for_second = lane == kForward && problem_.stages_per_rank == 2;
    const int64_t second =
        keeps_room_for_second ? memory_for_forward(problem_.deltas[problem_.stage_of(rank, 1)]) : 0;
    return memory_for_forward(deltas) + second <= room;
  }

  bool has_forwards_left(const RankState& state) const {
    return state.done[kKinds * (problem_.stages_per_rank - 1) + kForward] < problem_.microbatches;
  }

  std::optional<Step> choose(int rank, Ticks time) const {
    const RankState& state = ranks_[rank];
    if (policy_.weight_gradients_first && !state.weight_gradients.empty() && has_forwards_left(state))
      return state.weight_gradients.front();
    bool is_short_of_memory = false;
    Ticks next = kUnknown;
    for (int i = 0; i < 2 * problem_.stages_per_rank; ++i) {
      const int lane = policy_.priority[i];
      const Ticks arrived = arrival(rank, lane);
      if (!fits(rank, lane)) {
        is_short_of_memory |= arrived <= time;
      } else if (arrived <= time) {
        return Step{state.done[lane], lane};
      } else {
        next = std::min(next, arrived);
      }
    }
    if (state.weight_gradients.empty()) return std::nullopt;
    const Step& oldest = state.weight_gradients.front();
    const Ticks wanted_gap = problem_.lane(rank, oldest).duration * policy_.gap_percent / 100;
    if (!is_short_of_memory && next - time < wanted_gap) return std::nullopt;
    return oldest;
  }

  void start(int rank, const Step& step, Ticks time) {
    RankState& state = ranks_[rank];
    const Lane& lane = problem_.lane(rank, step);
    const int kind = step.lane % kKinds;
    ++state.done[step.lane];
    state.order.push_back(step);
    state.memory += lane.memory;
    state.free = time + lane.duration;
    wake(rank, state.free);
    if (kind == kWeightGradient) {
      std::erase(state.weight_gradients, step);  // most often the first
      return;
    }
    if (kind == kInputGradient)
      state.weight_gradients.push_back({step.microbatch, step.lane - kInputGradient + kWeightGradient});
    if (kind == kForward && lane.consumer < 0) {
      arrive(rank, step.lane - kForward + kInputGradient, state.free);  // the loss stage turns round
    } else if (lane.consumer >= 0) {
      const int consumer = kind == kForward ? lane.stage + 1 : lane.stage - 1;
      const Ticks delay = kind == kForward ? problem_.delay_up[lane.stage] : problem_.delay_down[consumer];
      arrive(lane.consumer, (consumer < problem_.ranks ? 0 : kKinds) + kind, state.free + delay);
    }
  }

  void arrive(int rank, int lane, Ticks time) {
    ranks_[rank].arrivals[lane].push_back(time);
    wake(rank, std::max(time, ranks_[rank].free));
  }

  const Problem& problem_;
  const ListPolicy& policy_;
  Ticks play_until_ = 0;
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

std::optional<Orders> list_schedule(const Problem& problem, const ListPolicy& policy) {
  return ListScheduler(problem, policy).run();
}

std::optional<Orders> list_schedule_from(const Timetable& timetable, Ticks time, const Problem& problem,
                                         const ListPolicy& policy) {
  ListScheduler scheduler(problem, policy);
  scheduler.play(timetable, time);
  return scheduler.run();
}

}  // namespace penstock::plan::internal
