#include "plan/generation/internal/search.h"

#include <algorithm>
#include <random>

#include "plan/generation/internal/bounds.h"
#include "plan/generation/internal/budget.h"
#include "plan/generation/internal/local_search.h"
#include "plan/generation/internal/zero_bubble.h"

namespace penstock::plan::internal {
namespace {

class Search {
 public:
  Search(const Problem& problem, const SearchLimits& limits)
      : problem_(problem),
        budget_(limits),
        random_(limits.seed),
        timetable_(problem),
        target_(bound_of(problem).max_stage_span) {}

  Found run() {
    if (problem_.stages_per_rank == 1) start_with_lists();
    if (best_.orders.empty()) consider(one_at_a_time(problem_));
    polish();
    best_.evaluations = budget_.used();
    return std::move(best_);
  }

 private:
  void start_with_lists() {
    for (const bool overrun : {false, true}) {
      for (const int more_ahead : {0, 1, problem_.microbatches}) {
        std::vector<int> ahead = warm_up(problem_, overrun);
        for (int& count : ahead) count += more_ahead;
        for (const bool forward_first : {false, true}) {
          for (const int gap_percent : {100, 50, 0}) {
            if (!best_.orders.empty() && !budget_.take()) return;
            consider(list_schedule(problem_, {ahead, forward_first, gap_percent}));
          }
        }
      }
    }
  }

  void consider(Orders orders) {
    if (!timetable_.assign(std::move(orders))) return;
    if (timetable_.score() < best_.score) best_ = {timetable_.orders(), timetable_.score()};
  }

  void polish() {
    timetable_.assign(best_.orders);
    improve(timetable_, problem_, target_, 20'000, budget_, random_);
    if (timetable_.score() < best_.score) best_ = {timetable_.orders(), timetable_.score()};
  }

  const Problem& problem_;
  Budget budget_;
  std::mt19937_64 random_;
  Timetable timetable_;
  Ticks target_;
  Found best_;
};

}  // namespace

Found search(const Problem& problem, const SearchLimits& limits) {
  return Search(problem, limits).run();
}

}  // namespace penstock::plan::internal
