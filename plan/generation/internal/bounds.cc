#include "plan/generation/internal/bounds.h"

#include <algorithm>

namespace penstock::plan::internal {
namespace {

using Wide = __int128;  // products of times and memory

// What may stand at once within a memory limit: `work` done for each, `memory` held by each.
struct Holding {
  Ticks work = 0;
  int64_t memory = 0;
};

struct Group {
  std::vector<Holding> choices;  // each item is one of these, or left out
  int64_t items_max = 0;
};

// At most this much work fits into `room`: the Lagrangian bound (work + price x (room - memory), maximised
// item by item) at the best price, which is one at which an item changes its choice.
Ticks most_work(const std::vector<Group>& groups, int64_t room) {
  std::vector<Holding> prices{{0, 1}};  // work per memory
  for (const Group& group : groups) {
    for (const Holding& choice : group.choices) {
      if (choice.memory > 0) prices.push_back(choice);
      for (const Holding& other : group.choices)
        if (choice.memory > other.memory && choice.work > other.work)
          prices.push_back({choice.work - other.work, choice.memory - other.memory});
    }
  }
  Ticks least = INT64_MAX;
  for (const Holding& price : prices) {
    Wide total = Wide{price.work} * room;
    for (const Group& group : groups) {
      Wide best = 0;
      for (const Holding& choice : group.choices)
        best = std::max(best, Wide{choice.work} * price.memory - Wide{price.work} * choice.memory);
      total += best * group.items_max;
    }
    least = static_cast<Ticks>(std::min<Wide>(least, total / price.memory));
  }
  return least;
}

// Sums along the pipeline, so that every path is a difference.
class Paths {
 public:
  explicit Paths(const Problem& problem)
      : stages_(problem.stages()),
        forward_(stages_ + 1),
        gradient_(stages_ + 1),
        up_(stages_),
        down_(stages_) {
    for (int stage = 0; stage < stages_; ++stage) {
      forward_[stage + 1] = forward_[stage] + problem.costs[stage].forward;
      gradient_[stage + 1] = gradient_[stage] + problem.costs[stage].input_gradient;
      if (stage == 0) continue;
      up_[stage] = up_[stage - 1] + problem.delay_up[stage - 1];
      down_[stage] = down_[stage - 1] + problem.delay_down[stage - 1];
    }
  }

  // From the start of a microbatch's forward in stage 0 to that in `stage`; the same for gradients, end to
  // end, back.
  Ticks forward_from_first(int stage) const { return forward_[stage] + up_[stage]; }
  Ticks gradient_to_first(int stage) const { return gradient_[stage] + down_[stage]; }

  // From the end of a microbatch's forward in `from` to the start of its input gradient in `to`.
  Ticks turn(int from, int to) const {
    const Ticks up = forward_[stages_] - forward_[from + 1] + up_.back() - up_[from];
    const Ticks down = gradient_[stages_] - gradient_[to + 1] + down_.back() - down_[to];
    return up + down;
  }

  // From the start of its forward in `from`.
  Ticks turn_with_forward(int from, int to) const {
    return turn(from, to) + forward_[from + 1] - forward_[from];
  }

 private:
  int stages_;
  std::vector<Ticks> forward_, gradient_;  // [stage]: of the stages before
  std::vector<Ticks> up_, down_;           // [stage]: delays of the boundaries before
};

class RankBounds {
 public:
  RankBounds(const Problem& problem, const Paths& paths, int rank)
      : problem_(problem),
        paths_(paths),
        rank_(rank),
        microbatches_(problem.microbatches),
        limit_(problem.limits[rank]),
        first_(problem.stage_of(rank, 0)),
        last_(problem.stage_of(rank, problem.stages_per_rank - 1)) {
    for (int chunk = 0; chunk < problem.stages_per_rank; ++chunk)
      stages_.push_back(problem.stage_of(rank, chunk));
  }

  Ticks idle_at_start() const {
    std::vector<Group> groups;
    for (const int stage : stages_)
      groups.push_back({{{costs(stage).forward, deltas(stage).forward}}, microbatches_});
    return std::max<Ticks>(paths_.turn_with_forward(first_, last_) - most_work(groups, limit_), 0);
  }

  // Zero where all forwards could stand before the first input gradient.
  Ticks idle_at_end() const { return all_forwards_fit() ? 0 : std::max<Ticks>(wait_at_end(), 0); }

  // From the start of the rank's first forward to the end of its last input gradient.
  Ticks until_last_input_gradient() const {
    const Ticks work = problem_.busy(rank_) - costs(first_).weight_gradient;
    const Ticks start = idle_at_start();
    // Weight gradients that are left until then do not fill the wait: what they spare here they cost there.
    const Ticks end = std::max(wait_at_end(), -most_weight_gradients_left());
    if (!all_forwards_fit()) return work + start + end;
    return work + std::max(start - most_weight_gradients_left(), end);
  }

  Ticks memory_over_time() const {
    Wide area = 0;
    for (const int stage : stages_) {
      const StageCosts& cost = costs(stage);
      area += Wide{deltas(stage).forward} * (paths_.turn_with_forward(stage, stage) + cost.input_gradient) +
              Wide{after_input_gradient(stage)} * cost.weight_gradient;
    }
    return static_cast<Ticks>((area * microbatches_ + limit_ - 1) / limit_);
  }

  // The rank's first stage alone; K microbatches fit between forward and input gradient.
  Ticks turns() const {
    const StageCosts& cost = costs(first_);
    const int64_t fitting = limit_ / deltas(first_).forward;
    const Ticks turn = paths_.turn_with_forward(first_, first_) + cost.input_gradient;
    return turns_of(fitting, turn) + cost.weight_gradient;
  }

  // The same between forward and weight gradient.
  Ticks whole_turns() const {
    const StageCosts& cost = costs(first_);
    const int64_t least = std::min(deltas(first_).forward, after_input_gradient(first_));
    if (least == 0) return 0;
    const Ticks turn = paths_.turn_with_forward(first_, first_) + cost.input_gradient + cost.weight_gradient;
    return turns_of(limit_ / least, turn);
  }

 private:
  bool all_forwards_fit() const {
    Wide all_forwards = 0;
    for (const int stage : stages_) all_forwards += Wide{deltas(stage).forward} * microbatches_;
    return all_forwards <= limit_;
  }

  // From the end of the rank's last forward to the start of its last input gradient: what the work that the
  // rank then has does not fill; negative when there is more work than wait.
  Ticks wait_at_end() const {
    std::vector<Group> groups;
    int64_t room = limit_;
    for (const int stage : stages_) {
      const StageCosts& cost = costs(stage);
      groups.push_back({{{cost.input_gradient + cost.weight_gradient, deltas(stage).forward},
                         {cost.weight_gradient, after_input_gradient(stage)}},
                        microbatches_ - 1});
      room -= deltas(stage).forward;  // the last forward's own microbatch
    }
    const Ticks own = last_ == first_ ? 0 : costs(last_).input_gradient + costs(last_).weight_gradient;
    return paths_.turn(last_, first_) - own - most_work(groups, room);
  }

  // When the last input gradient starts; without its own.
  Ticks most_weight_gradients_left() const {
    std::vector<Group> left;
    for (const int stage : stages_) {
      left.push_back({{{costs(stage).weight_gradient, after_input_gradient(stage)}},
                      microbatches_ - (stage == first_ ? 1 : 0)});
    }
    return most_work(left, limit_ - deltas(first_).forward);
  }

  const StageCosts& costs(int stage) const { return problem_.costs[stage]; }
  const MemoryDeltas& deltas(int stage) const { return problem_.deltas[stage]; }
  int64_t after_input_gradient(int stage) const { return -deltas(stage).weight_gradient; }

  Ticks turns_of(int64_t fitting, Ticks turn) const {
    return (microbatches_ - 1) / fitting * turn + (microbatches_ - 1) % fitting * costs(first_).forward +
           turn;
  }

  const Problem& problem_;
  const Paths& paths_;
  int rank_;
  int64_t microbatches_;
  int64_t limit_;
  int first_, last_;  // stages
  std::vector<int> stages_;
};

void raise(Bound& bound, Ticks max_stage_span, auto&& reason) {
  if (max_stage_span > bound.max_stage_span) bound = {max_stage_span, reason()};
}

}  // namespace

Bound bound_of(const Problem& problem) {
  const Paths paths(problem);
  Bound bound;
  Ticks through = 0;  // the longest way through this rank or one behind it, from and to the pipeline's start
  int by = 0;
  for (int rank = problem.ranks - 1; rank >= 0; --rank) {
    const RankBounds bounds(problem, paths, rank);
    const Ticks there_and_back = paths.forward_from_first(rank) + paths.gradient_to_first(rank);
    if (const Ticks own = there_and_back + bounds.until_last_input_gradient(); own > through) {
      through = own;
      by = rank;
    }
    const Ticks start = bounds.idle_at_start(), end = bounds.idle_at_end();
    raise(bound, problem.busy(rank) + start + end, [&] {
      return fmt::format(
          "rank {}: all its work, at least {} ticks idle before its first input gradient, and {} after its last "
          "forward",
          rank, start, end);
    });
    raise(bound, through - there_and_back + problem.costs[rank].weight_gradient, [&] {
      return fmt::format("rank {}: the way to rank {}, its forwards and input gradients, and the way back",
                         rank, by);
    });
    raise(bound, bounds.memory_over_time(), [&] {
      return fmt::format("rank {}: the memory that its microbatches hold, times how long they hold it", rank);
    });
    raise(bound, std::max(bounds.turns(), bounds.whole_turns()), [&] {
      return fmt::format("rank {}: turns through the pipeline of as many microbatches as fit into its memory",
                         rank);
    });
  }
  return bound;
}

}  // namespace penstock::plan::internal
