#include "plan/generation/internal/justify.h"

#include <algorithm>

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
        ranks_(problem.ranks),
        starts_(int64_t{2} * problem.stages() * problem.microbatches) {
    for (int rank = 0; rank < problem.ranks; ++rank) {
      horizons_.push_back(timetable.start(rank, 0) + timetable.score().max_stage_span);
      int64_t held = 0;
      const auto& order = timetable.orders()[rank];
      for (size_t position = 0; position < order.size(); ++position) {
        held += problem.lane(rank, order[position]).memory;
        ranks_[rank].push_back({order[position], timetable.start(rank, static_cast<int>(position)), held});
        note_start(rank, ranks_[rank].back());
      }
    }
  }

  // Every rank's steps in order, each once its input has its final time. They keep their positions until it
  // is their turn: only earlier ones have moved, and those to the left.
  void pull_left() {
    in_turn([](int, int turn) { return turn; },
            [&](int rank, const Step& step) { return producer_of(rank, step); },
            [&](int rank, int position) { pull(rank, position); });
  }

  // From the end, each once who waits for it has its final time.
  void push_right() {
    in_turn([&](int rank, int turn) { return static_cast<int>(ranks_[rank].size()) - 1 - turn; },
            [&](int rank, const Step& step) { return consumer_of(rank, step); },
            [&](int rank, int position) { push(rank, position); });
  }

  Orders orders() const {
    Orders orders(problem_.ranks);
    for (int rank = 0; rank < problem_.ranks; ++rank)
      for (const Placed& placed : ranks_[rank]) orders[rank].push_back(placed.step);
    return orders;
  }

 private:
  // Where starts_ keeps a step, what it waits for, and who waits for it; -1: nowhere, nothing, nobody.
  int64_t place_of(int rank, const Step& step) const {
    const int kind = step.lane % kKinds;
    return kind == kWeightGradient ? -1
                                   : problem_.row(problem_.lane(rank, step).stage, kind) + step.microbatch;
  }
  int64_t producer_of(int rank, const Step& step) const {
    const Lane& lane = problem_.lane(rank, step);
    return lane.input < 0 ? -1 : lane.input + step.microbatch;
  }
  int64_t consumer_of(int rank, const Step& step) const {
    const Lane& lane = problem_.lane(rank, step);
    if (lane.consumer < 0) return -1;
    const int kind = step.lane % kKinds;
    return problem_.row(kind == kForward ? lane.stage + 1 : lane.stage - 1, kind) + step.microbatch;
  }

  // Visits every rank's steps in turn, each after the one that it awaits. The programs are valid, so that
  // all get their turn.
  template <typename Position, typename Awaited, typename Visit>
  void in_turn(Position&& position_of, Awaited&& awaited_by, Visit&& visit) {
    constexpr int kNobody = -1, kVisited = -2;
    std::vector<int> waiter(starts_.size(), kNobody);  // by place: the rank that stands still for it
    std::vector<int> turns(problem_.ranks, 0);
    std::vector<int> ready;
    for (int rank = problem_.ranks - 1; rank >= 0; --rank) ready.push_back(rank);
    while (!ready.empty()) {
      const int rank = ready.back();
      ready.pop_back();
      for (int& turn = turns[rank]; turn < static_cast<int>(ranks_[rank].size()); ++turn) {
        const int position = position_of(rank, turn);
        const Step step = ranks_[rank][position].step;
        const int64_t awaited = awaited_by(rank, step);
        if (awaited >= 0 && waiter[awaited] != kVisited) {
          waiter[awaited] = rank;
          break;
        }
        visit(rank, position);
        const int64_t place = place_of(rank, step);
        if (place < 0) continue;
        if (waiter[place] >= 0) ready.push_back(waiter[place]);
        waiter[place] = kVisited;
      }
    }
  }

  Ticks duration(int rank, const Placed& placed) const { return problem_.lane(rank, placed.step).duration; }
  Ticks end(int rank, const Placed& placed) const { return placed.start + duration(rank, placed); }

  void note_start(int rank, const Placed& placed) {
    if (const int64_t place = place_of(rank, placed.step); place >= 0) starts_[place] = placed.start;
  }

  Ticks input_ready(int rank, const Step& step) const {
    const int64_t input = producer_of(rank, step);
    if (input < 0) return 0;
    const Lane& lane = problem_.lane(rank, step);
    const StageCosts& producer =
        problem_.costs[step.lane % kKinds == kForward ? lane.stage - 1 : lane.stage + 1];
    const Ticks took = step.lane % kKinds == kForward ? producer.forward : producer.input_gradient;
    return starts_[input] + took + lane.delay;
  }

  // When its output must have left, so that nobody who waits for it starts later.
  Ticks due(int rank, const Step& step) const {
    const int64_t consumer = consumer_of(rank, step);
    if (consumer < 0) return horizons_[rank];
    const int stage = problem_.lane(rank, step).stage;
    const bool is_forward = step.lane % kKinds == kForward;
    return starts_[consumer] - (is_forward ? problem_.delay_up[stage] : problem_.delay_down[stage - 1]);
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
      return position == last ? horizons_[rank] : placed[position + 1].start;
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
  std::vector<Ticks> horizons_;  // [rank]: the latest end
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
