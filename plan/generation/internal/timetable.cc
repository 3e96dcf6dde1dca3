#include "plan/generation/internal/timetable.h"

#include <algorithm>

namespace penstock::plan::internal {

Timetable::Timetable(const Problem& problem)
    : problem_(problem),
      starts_(problem.ranks),
      memory_(problem.ranks),
      ends_(int64_t{2} * problem.stages() * problem.microbatches, -1),
      cursor_(problem.ranks),
      rewound_to_(problem.ranks),
      old_starts_(problem.ranks),
      is_waiting_(problem.ranks) {}

bool Timetable::assign(Orders orders) {
  orders_ = std::move(orders);
  std::fill(ends_.begin(), ends_.end(), Ticks{-1});
  for (int rank = 0; rank < problem_.ranks; ++rank) {
    starts_[rank].assign(orders_[rank].size(), 0);
    memory_[rank].assign(orders_[rank].size(), 0);
    count_memory(rank);
    cursor_[rank] = 0;
  }
  if (!run()) return false;
  score_ = measure();
  return true;
}

void Timetable::count_memory(int rank) {
  int64_t held = 0;
  for (size_t position = 0; position < orders_[rank].size(); ++position) {
    held += problem_.lane(rank, orders_[rank][position]).memory;
    memory_[rank][position] = held;
  }
}

Ticks Timetable::input_ready(int rank, const Step& step) const {
  const Lane& lane = problem_.lane(rank, step);
  return lane.input < 0 ? 0 : ends_[lane.input + step.microbatch] + lane.delay;
}

Ticks Timetable::gap_before(int rank, int position) const {
  return position == 0 ? 0 : start(rank, position) - end(rank, position - 1);
}

bool Timetable::run() {
  for (int rank = 0; rank < problem_.ranks; ++rank) {
    if (cursor_[rank] == orders_[rank].size()) continue;
    waiting_.push_back(rank);
    is_waiting_[rank] = 1;
  }
  while (!waiting_.empty()) {
    const int rank = waiting_.back();
    waiting_.pop_back();
    is_waiting_[rank] = 0;
    run_rank(rank);
  }
  for (int rank = 0; rank < problem_.ranks; ++rank)
    if (cursor_[rank] != orders_[rank].size()) return false;
  return true;
}

void Timetable::run_rank(int rank) {
  const std::vector<Step>& order = orders_[rank];
  size_t position = cursor_[rank];
  Ticks free = position == 0 ? 0 : end(rank, static_cast<int>(position) - 1);
  for (; position < order.size(); ++position) {
    const Step& step = order[position];
    const Lane& lane = problem_.lanes[rank][step.lane];
    if (lane.input >= 0) {
      const Ticks produced = ends_[lane.input + step.microbatch];
      if (produced < 0) break;
      free = std::max(free, produced + lane.delay);
    }
    starts_[rank][position] = free;
    free += lane.duration;
    note_end(lane, step, free);
  }
  cursor_[rank] = position;
}

void Timetable::note_end(const Lane& lane, const Step& step, Ticks end) {
  const int kind = step.lane % kKinds;
  if (kind == kWeightGradient) return;
  ends_[problem_.row(lane.stage, kind) + step.microbatch] = end;
  if (lane.consumer < 0 || is_waiting_[lane.consumer]) return;
  is_waiting_[lane.consumer] = 1;
  waiting_.push_back(lane.consumer);
}

Score Timetable::measure() const {
  Score score{0, 0, 0};
  for (int rank = 0; rank < problem_.ranks; ++rank) {
    const Ticks last = end(rank, static_cast<int>(orders_[rank].size()) - 1);
    const Ticks span = last - starts_[rank].front();
    score.max_stage_span = std::max(score.max_stage_span, span);
    score.makespan = std::max(score.makespan, last);
    score.sum_of_spans += span;
  }
  return score;
}

bool Timetable::can_move(const Move& move) const {
  const std::vector<Step>& order = orders_[move.rank];
  const Step& moved = order[move.from];
  const int64_t memory = problem_.lane(move.rank, moved).memory;
  const int64_t limit = problem_.limits[move.rank];
  if (move.to < move.from) {
    // What it overtakes has its memory beside it.
    for (int position = move.from - 1; position >= move.to; --position) {
      if (must_precede(order[position], moved)) return false;
      if (memory > 0 && memory_[move.rank][position] + memory > limit) return false;
    }
    const int64_t before = move.to == 0 ? 0 : memory_[move.rank][move.to - 1];
    return before + memory <= limit;
  }
  for (int position = move.from + 1; position <= move.to; ++position) {
    if (must_precede(moved, order[position])) return false;
    if (memory < 0 && memory_[move.rank][position] - memory > limit) return false;
  }
  return true;
}

void Timetable::shift(const Move& move) {
  std::vector<Step>& order = orders_[move.rank];
  const auto [first, last] = std::minmax(move.from, move.to);
  const auto begin = order.begin() + first, end = order.begin() + last + 1;
  std::rotate(begin, move.to < move.from ? end - 1 : begin + 1, end);
  int64_t held = first == 0 ? 0 : memory_[move.rank][first - 1];
  for (int position = first; position <= last; ++position) {
    held += problem_.lane(move.rank, order[position]).memory;
    memory_[move.rank][position] = held;
  }
}

// Forgets the times of all that starts at `time` or later, and all from the move's first position on.
void Timetable::rewind(Ticks time, const Move& move) {
  for (int rank = 0; rank < problem_.ranks; ++rank) {
    auto& starts = starts_[rank];
    size_t position = std::lower_bound(starts.begin(), starts.end(), time) - starts.begin();
    if (rank == move.rank) position = std::min<size_t>(position, std::min(move.from, move.to));
    rewound_to_[rank] = cursor_[rank] = position;
    old_starts_[rank].assign(starts.begin() + position, starts.end());
    for (; position < starts.size(); ++position) {
      const Step& step = orders_[rank][position];
      const int kind = step.lane % kKinds;
      if (kind == kWeightGradient) continue;
      ends_[problem_.row(problem_.lanes[rank][step.lane].stage, kind) + step.microbatch] = -1;
    }
  }
}

void Timetable::restore() {
  for (int rank = 0; rank < problem_.ranks; ++rank) {
    auto& starts = starts_[rank];
    std::copy(old_starts_[rank].begin(), old_starts_[rank].end(), starts.begin() + rewound_to_[rank]);
    for (size_t position = rewound_to_[rank]; position < starts.size(); ++position) {
      const Step& step = orders_[rank][position];
      const int kind = step.lane % kKinds;
      if (kind == kWeightGradient) continue;
      const Lane& lane = problem_.lanes[rank][step.lane];
      ends_[problem_.row(lane.stage, kind) + step.microbatch] = starts[position] + lane.duration;
    }
    cursor_[rank] = starts.size();
  }
}

bool Timetable::move_unless_worse(const Move& move, const Score& worst) {
  const int first = std::min(move.from, move.to);
  // The first start that changes: of what now stands at `first`, not before the step before it ends.
  const Ticks time = first == 0 ? 0 : end(move.rank, first - 1);
  rewind(time, move);
  shift(move);
  if (run()) {
    const Score score = measure();
    if (score <= worst) {
      score_ = score;
      return true;
    }
  }
  shift({move.rank, move.to, move.from});
  restore();
  return false;
}

}  // namespace penstock::plan::internal
