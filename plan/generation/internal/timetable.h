// Orders with their earliest times, kept up to date while steps move.
//
// A move re-times only what starts at or after the first start that it can change: nothing earlier depends
// on it.
#pragma once

#include <compare>
#include <vector>

#include "plan/generation/internal/problem.h"

namespace penstock::plan::internal {

// Smaller is better, from the first field on.
struct Score {
  Ticks max_stage_span = INT64_MAX;
  Ticks makespan = INT64_MAX;
  Ticks sum_of_spans = INT64_MAX;  // tells apart what the maximum does not: progress on the other ranks

  auto operator<=>(const Score&) const = default;
};

// A step of a rank taken out at `from` and put in at `to` (its position afterwards).
struct Move {
  int rank = 0;
  int from = 0;
  int to = 0;
};

class Timetable {
 public:
  explicit Timetable(const Problem& problem);  // which must outlive this

  // Takes these orders and times them. False: they wait for each other for ever; then assign again before
  // anything else.
  bool assign(Orders orders);

  const Orders& orders() const { return orders_; }
  const Score& score() const { return score_; }
  Ticks start(int rank, int position) const { return starts_[rank][position]; }
  Ticks end(int rank, int position) const {
    return starts_[rank][position] + problem_.lane(rank, orders_[rank][position]).duration;
  }
  // When the step's input is there; 0 for one without.
  Ticks input_ready(int rank, const Step& step) const;
  // Idle time right before the step.
  Ticks gap_before(int rank, int position) const;

  // Whether the move keeps the order that a microbatch and a lane demand on the rank, and its memory limit.
  bool can_move(const Move& move) const;
  // Moves, and keeps it when the score is no worse than `worst`; otherwise everything is as before. The
  // move must be possible.
  bool move_unless_worse(const Move& move, const Score& worst);

 private:
  void shift(const Move& move);
  void count_memory(int rank);
  bool run();  // times what lies behind cursor_
  void run_rank(int rank);
  void rewind(Ticks time, const Move& move);
  void restore();
  void note_end(const Lane& lane, const Step& step, Ticks end);
  Score measure() const;

  const Problem& problem_;
  Orders orders_;
  std::vector<std::vector<Ticks>> starts_;
  std::vector<std::vector<int64_t>> memory_;    // [rank][position]: in use after the step
  std::vector<Ticks> ends_;                     // Problem::row + microbatch; -1: has not run
  std::vector<size_t> cursor_;                  // [rank]: the next step to time
  std::vector<size_t> rewound_to_;              // [rank]: where the last move set the cursor
  std::vector<std::vector<Ticks>> old_starts_;  // [rank]: from rewound_to_ on, before the last move
  std::vector<int> waiting_;                    // ranks to run
  std::vector<char> is_waiting_;
  Score score_;
};

}  // namespace penstock::plan::internal
