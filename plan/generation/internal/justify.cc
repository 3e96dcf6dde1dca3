#include "plan/generation/internal/justify.h"

#include <algorithm>
#include <tuple>

namespace penstock::plan::internal {
namespace {

struct Placed {
  Step step;
  Ticks start = 0;
  int64_t held = 0;  // memory in use after it
};

class Justifier {
 public:
  Justifier(const Problem& problem, const Timetable& timetable)
      : problem_(problem),
        horizon_(timetable.score().makespan),
        ranks_(problem.ranks),
        starts_(int64_t{2} * problem.stages() * problem.microbatches) {
    for (int rank = 0; rank < problem.ranks; ++rank) {
      int64_t held = 0;
      const auto& order = timetable.orders()[rank];
      for (size_t position = 0; position < order.size(); ++position) {
        held += problem.lane(rank, order[position]).memory;
        ranks_[rank].push_back({order[position], timetable.start(rank, static_cast<int>(position)), held});
        note_start(rank, ranks_[rank].back());
      }
    }
  }

  // A rank's steps keep their positions until it is their turn: only earlier ones have moved, and those to the left.
  void pull_left() {
    for (const auto& [time, rank, position] : by_start()) pull(rank, position);
  }

  void push_right() {
    const auto order = by_start();
    for (auto each = order.rbegin(); each != order.rend(); ++each)
      push(std::get<1>(*each), std::get<2>(*each));
  }

  Orders orders() const {
    Orders orders(problem_.ranks);
    for (int rank = 0; rank < problem_.ranks; ++rank)
      for (const Placed& placed : ranks_[rank]) orders[rank].push_back(placed.step);
    return orders;
  }

 private:
  using Turn = std::tuple<Ticks, int, int>;  // start, rank, position

  std::vector<Turn> by_start() const {
    std::vector<Turn> turns;
    for (int rank = 0; rank < problem_.ranks; ++rank)
      for (size_t position = 0; position < ranks_[rank].size(); ++position)
        turns.emplace_back(ranks_[rank][position].start, rank, static_cast<int>(position));
    std::sort(turns.begin(), turns.end());
    return turns;
  }

  Ticks duration(int rank, const Placed& placed) const { return problem_.lane(rank, placed.step).duration; }
  Ticks end(int rank, const Placed& placed) const { return placed.start + duration(rank, placed); }

  void note_start(int rank, const Placed& placed) {
    const int kind = placed.step.lane % kKinds;
    if (kind == kWeightGradient) return;
    starts_[problem_.row(problem_.lane(rank, placed.step).stage, kind) + placed.step.microbatch] =
        placed.start;
  }

  Ticks input_ready(int rank, const Step& step) const {
    const Lane& lane = problem_.lane(rank, step);
    if (lane.input < 0) return 0;
    const StageCosts& producer =
        problem_.costs[step.lane % kKinds == kForward ? lane.stage - 1 : lane.stage + 1];
    const Ticks took = step.lane % kKinds == kForward ? producer.forward : producer.input_gradient;
    return starts_[lane.input + step.microbatch] + took + lane.delay;
  }

  // When its output must have left, so that nobody who waits for it starts later.
  Ticks due(int rank, const Step& step) const {
    const Lane& lane = problem_.lane(rank, step);
    if (lane.consumer < 0) return horizon_;
    const bool forward = step.lane % kKinds == kForward;
    const int consumer = forward ? lane.stage + 1 : lane.stage - 1;
    const Ticks delay = forward ? problem_.delay_up[lane.stage] : problem_.delay_down[consumer];
    return starts_[problem_.row(consumer, forward ? kForward : kInputGradient) + step.microbatch] - delay;
  }

  void pull(int rank, int from) {
    auto& placed = ranks_[rank];
    const Step step = placed[from].step;
    const Lane& lane = problem_.lane(rank, step);
    const Ticks ready = input_ready(rank, step);
    const auto free_before = [&](int position) {
      return position == 0 ? 0 : end(rank, placed[position - 1]);
    };
    int to = from;
    Ticks start = std::max(ready, free_before(from));
    for (int other = from - 1; other >= 0; --other) {
      if (placed[other].start <= ready || must_precede(placed[other].step, step)) break;
      if (lane.memory > 0 && placed[other].held + lane.memory > problem_.limits[rank]) break;
      const Ticks early = std::max(ready, free_before(other));
      const int64_t held_before = other == 0 ? 0 : placed[other - 1].held;
      if (early + lane.duration > placed[other].start || held_before + lane.memory > problem_.limits[rank])
        continue;
      to = other;
      start = early;
    }
    for (int position = to; position < from; ++position) placed[position].held += lane.memory;
    std::rotate(placed.begin() + to, placed.begin() + from, placed.begin() + from + 1);
    placed[to].start = start;
    placed[to].held = (to == 0 ? 0 : placed[to - 1].held) + lane.memory;
    note_start(rank, placed[to]);
  }

  void push(int rank, int from) {
    auto& placed = ranks_[rank];
    const Step step = placed[from].step;
    const Lane& lane = problem_.lane(rank, step);
    const Ticks latest_end = due(rank, step);
    const int last = static_cast<int>(placed.size()) - 1;
    const auto taken_after = [&](int position) {
      return position == last ? horizon_ : placed[position + 1].start;
    };
    int to = from;
    Ticks start = std::min(latest_end, taken_after(from)) - lane.duration;
    for (int other = from + 1; other <= last; ++other) {
      if (end(rank, placed[other]) >= latest_end || must_precede(step, placed[other].step)) break;
      if (lane.memory < 0 && placed[other].held - lane.memory > problem_.limits[rank]) break;
      const Ticks late = std::min(latest_end, taken_after(other)) - lane.duration;
      if (late < end(rank, placed[other])) continue;
      to = other;
      start = late;
    }
    const int64_t held_there = placed[to].held;
    for (int position = from + 1; position <= to; ++position) placed[position].held -= lane.memory;
    std::rotate(placed.begin() + from, placed.begin() + from + 1, placed.begin() + to + 1);
    placed[to].start = start;
    placed[to].held = held_there;
    note_start(rank, placed[to]);
  }

  const Problem& problem_;
  Ticks horizon_;
  std::vector<std::vector<Placed>> ranks_;
  std::vector<Ticks> starts_;  // Problem::row + microbatch
};

}  // namespace

Orders pulled_left(const Problem& problem, const Timetable& timetable) {
  Justifier justifier(problem, timetable);
  justifier.pull_left();
  return justifier.orders();
}

Orders pushed_right_and_pulled_left(const Problem& problem, const Timetable& timetable) {
  Justifier justifier(problem, timetable);
  justifier.push_right();
  justifier.pull_left();
  return justifier.orders();
}

}  // namespace penstock::plan::internal
