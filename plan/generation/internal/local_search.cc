#include "plan/generation/internal/local_search.h"

#include <algorithm>
#include <optional>

namespace penstock::plan::internal {
namespace {

class LocalSearch {
 public:
  LocalSearch(Timetable& timetable, const Problem& problem, std::mt19937_64& random)
      : timetable_(timetable), problem_(problem), random_(random) {}

  // Nothing when the drawn move is not possible.
  std::optional<Move> propose() {
    const int rank = below(3) == 0 ? below(problem_.ranks) : longest_rank();
    const int steps = size_of(rank);
    if (steps < 2) return std::nullopt;
    const int gap = below(3) == 0 ? -1 : random_gap(rank);
    const Move move = gap < 0         ? anywhere(rank)
                      : below(2) == 0 ? into_gap(rank, gap)
                                      : towards_producer(rank, gap);
    if (move.from == move.to || !timetable_.can_move(move)) return std::nullopt;
    return move;
  }

  int below(int count) { return static_cast<int>(random_() % static_cast<uint64_t>(count)); }

 private:
  int size_of(int rank) const { return static_cast<int>(timetable_.orders()[rank].size()); }

  int longest_rank() const {
    int longest = 0;
    Ticks span = -1;
    for (int rank = 0; rank < problem_.ranks; ++rank) {
      const Ticks own = timetable_.end(rank, size_of(rank) - 1) - timetable_.start(rank, 0);
      if (own > span) {
        span = own;
        longest = rank;
      }
    }
    return longest;
  }

  // A position whose step waits; -1: none found.
  int random_gap(int rank) {
    const int first = below(size_of(rank));
    for (int i = 0; i < size_of(rank); ++i) {
      const int position = (first + i) % size_of(rank);
      if (timetable_.gap_before(rank, position) > 0) return position;
    }
    return -1;
  }

  Move anywhere(int rank) {
    constexpr int kFarthest = 8;
    const int from = below(size_of(rank));
    const int far = 1 + below(kFarthest);
    const int to = below(2) == 0 ? from - far : from + far;
    return {rank, from, std::clamp(to, 0, size_of(rank) - 1)};
  }

  // A later step of the rank in front of the one that waits.
  Move into_gap(int rank, int gap) {
    constexpr int kFarthest = 24;
    const int later = std::min(size_of(rank) - 1 - gap, kFarthest);
    return later == 0 ? Move{rank, gap, gap} : Move{rank, gap + 1 + below(later), gap};
  }

  // Follows the wait to the step that ends it, back through steps without a gap before them, and moves one
  // of those up.
  Move towards_producer(int rank, int position) {
    constexpr int kHops = 64;
    for (int hop = 0; hop < kHops; ++hop) {
      const Step& step = timetable_.orders()[rank][position];
      const Lane& lane = problem_.lane(rank, step);
      const bool waits_for_input =
          lane.input >= 0 && timetable_.start(rank, position) == timetable_.input_ready(rank, step);
      if (!waits_for_input || below(8) == 0) break;
      const int kind = step.lane % kKinds;
      const int producer_stage = kind == kForward ? lane.stage - 1 : lane.stage + 1;
      const int producer_rank = problem_.rank_of(producer_stage);
      const Step wanted{step.microbatch, (producer_stage < problem_.ranks ? 0 : kKinds) + kind};
      position = position_of(producer_rank, wanted, timetable_.input_ready(rank, step) - lane.delay);
      rank = producer_rank;
      if (timetable_.gap_before(rank, position) == 0) break;
    }
    const int up = 1 + below(3);
    return {rank, position, std::max(position - up, 0)};
  }

  // By its end, since starts ascend; the lane tells equal ones apart.
  int position_of(int rank, const Step& step, Ticks end) const {
    const Ticks start = end - problem_.lane(rank, step).duration;
    int low = 0, high = size_of(rank);
    while (low < high) {
      const int middle = (low + high) / 2;
      if (timetable_.start(rank, middle) < start) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    while (!(timetable_.orders()[rank][low] == step)) ++low;
    return low;
  }

  Timetable& timetable_;
  const Problem& problem_;
  std::mt19937_64& random_;
};

}  // namespace

void improve(Timetable& timetable, const Problem& problem, Ticks target, Budget& budget,
             std::mt19937_64& random) {
  constexpr int kPatience = 300;
  LocalSearch search(timetable, problem, random);
  int since_better = 0;
  while (timetable.score().max_stage_span > target && since_better < kPatience) {
    ++since_better;
    const std::optional<Move> move = search.propose();
    if (!move) continue;
    if (!budget.take()) return;
    const Score before = timetable.score();
    if (timetable.move_unless_worse(*move, before) && timetable.score() < before) since_better = 0;
  }
}

void kick(Timetable& timetable, const Problem& problem, int moves, Budget& budget, std::mt19937_64& random) {
  LocalSearch search(timetable, problem, random);
  for (int i = 0; i < moves; ++i) {
    const std::optional<Move> move = search.propose();
    if (!move) continue;
    if (!budget.take()) return;
    timetable.move_unless_worse(*move, Score{});
  }
}

}  // namespace penstock::plan::internal
