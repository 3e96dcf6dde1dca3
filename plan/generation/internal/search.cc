#include "plan/generation/internal/search.h"

#include <algorithm>
#include <array>
#include <random>

#include "plan/generation/internal/bounds.h"
#include "plan/generation/internal/budget.h"
#include "plan/generation/internal/building_blocks.h"
#include "plan/generation/internal/justify.h"
#include "plan/generation/internal/local_search.h"
#include "plan/generation/internal/zero_bubble.h"

namespace penstock::plan::internal {
namespace {

constexpr size_t kStartsMax = 8;  // programs that are worth moving about

class Search {
 public:
  Search(const Problem& problem, const SearchLimits& limits)
      : problem_(problem),
        budget_(limits),
        random_(limits.seed),
        timetable_(problem),
        target_(bound_of(problem).max_stage_span) {}

  Found run() {
    if (problem_.stages_per_rank == 1) {
      start_with_lists();
    } else {
      start_with_v_lists();
      start_with_blocks();
    }
    if (starts_.empty()) consider(one_at_a_time(problem_));
    rebuild_drains();
    while (!is_done() && budget_.used() < INT64_MAX) {
      const int64_t before = budget_.used();
      polish();
      if (budget_.used() == before) break;  // spent, or nothing can move
    }
    Found best = std::move(starts_.front());
    best.evaluations = budget_.used();
    return best;
  }

 private:
  bool is_done() const { return !starts_.empty() && starts_.front().score.max_stage_span <= target_; }

  // False when the budget is spent; the first program is free, since there must be one.
  bool may_try() { return !is_done() && (budget_.take() || starts_.empty()); }

  void start_with_lists() {
    for (const bool overrun : {false, true}) {
      for (const int more_ahead : {0, 1, problem_.microbatches}) {
        std::vector<int> ahead = warm_up(problem_, overrun);
        for (int& count : ahead) count += more_ahead;
        try_lists({kInputGradient, kForward}, ahead);
        try_lists({kForward, kInputGradient}, ahead);
      }
    }
  }

  void start_with_v_lists() {
    const std::vector<int> ahead(problem_.ranks, problem_.microbatches);
    std::array<int, 4> priority = {kForward, kInputGradient, kKinds + kForward, kKinds + kInputGradient};
    do try_lists(priority, ahead);
    while (std::next_permutation(priority.begin(), priority.end()));
  }

  void try_lists(const std::array<int, 4>& priority, const std::vector<int>& ahead) {
    for (const bool weight_gradients_first : {true, false}) {
      for (const int gap_percent : {100, 50, 0}) {
        if (!may_try()) return;
        std::optional<Orders> orders =
            list_schedule(problem_, {priority, ahead, weight_gradients_first, gap_percent});
        if (orders) consider(*std::move(orders));
      }
    }
  }

  // Longer periods hold less; the shortest with which a block fits is best.
  void start_with_blocks() {
    constexpr int kPeriodMin = 6, kPeriodMax = 12;
    for (int period = kPeriodMin; period <= kPeriodMax && blocks_kept_ == 0; ++period) {
      for (const BuildingBlock& block : building_blocks(problem_, period)) {
        if (!may_try()) return;
        std::optional<Orders> orders = stamped(problem_, block);
        if (!orders) continue;
        ++blocks_kept_;
        consider(*std::move(orders));
      }
    }
  }

  // Of the best programs: the end once more, with weight gradients only where nothing else can run.
  void rebuild_drains() {
    constexpr int kCuts = 16;
    const std::vector<Found> starts = starts_;
    for (const Found& start : starts) {
      for (int cut = 1; cut < kCuts; ++cut) {
        for (const ListPolicy& policy : drain_policies()) {
          if (!may_try()) return;
          timetable_.assign(start.orders);
          rebuild_drain(start.score.makespan * cut / kCuts, policy);
        }
      }
    }
  }

  std::vector<ListPolicy> drain_policies() const {
    const std::vector<int> ahead(problem_.ranks, problem_.microbatches);
    std::vector<ListPolicy> policies;
    for (const int gap_percent : {100, 0})
      for (const auto& priority : priorities()) policies.push_back({priority, ahead, false, gap_percent});
    return policies;
  }

  std::vector<std::array<int, 4>> priorities() const {
    if (problem_.stages_per_rank == 1) return {{kInputGradient, kForward}, {kForward, kInputGradient}};
    constexpr int kSecond = kKinds;
    return {{kInputGradient, kSecond + kInputGradient, kSecond + kForward, kForward},
            {kSecond + kInputGradient, kInputGradient, kSecond + kForward, kForward},
            {kSecond + kForward, kSecond + kInputGradient, kInputGradient, kForward}};
  }

  void rebuild_drain(Ticks time, const ListPolicy& policy) {
    std::optional<Orders> orders = list_schedule_from(timetable_, time, problem_, policy);
    if (orders) consider(*std::move(orders));
  }

  // Closes its gaps, and keeps it if it is one of the best.
  void consider(Orders orders) {
    if (!timetable_.assign(std::move(orders))) return;
    justify();
    keep();
  }

  void justify() {
    for (int round = 0; round < kJustifyRounds; ++round) {
      const Score before = timetable_.score();
      timetable_.assign(pulled_left(problem_, timetable_));
      const Score pulled = timetable_.score();
      const Orders kept = timetable_.orders();
      timetable_.assign(pushed_right_and_pulled_left(problem_, timetable_));
      if (pulled < timetable_.score()) timetable_.assign(kept);
      if (!(timetable_.score() < before)) return;
    }
  }

  void keep() {
    const Score score = timetable_.score();
    const auto place =
        std::lower_bound(starts_.begin(), starts_.end(), score,
                         [](const Found& found, const Score& other) { return found.score < other; });
    if (place != starts_.end() && place->score == score) return;  // most often the same program
    if (place == starts_.end() && starts_.size() == kStartsMax) return;
    starts_.insert(place, {timetable_.orders(), score});
    if (starts_.size() > kStartsMax) starts_.pop_back();
  }

  // One of the starts, kicked, then improved.
  void polish() {
    const size_t chosen = std::min(random_() % kStartsMax, random_() % kStartsMax);
    timetable_.assign(starts_[std::min(chosen, starts_.size() - 1)].orders);
    kick(timetable_, problem_, static_cast<int>(random_() % 6), budget_, random_);
    if (random_() % 2 == 0) {
      const std::vector<ListPolicy> policies = drain_policies();
      const auto time = static_cast<Ticks>(random_() % (timetable_.score().makespan + 1));
      rebuild_drain(time, policies[random_() % policies.size()]);
    }
    improve(timetable_, problem_, target_, kPatience, budget_, random_);
    keep();
  }

  static constexpr int64_t kPatience = 2'000;
  static constexpr int kJustifyRounds = 3;

  const Problem& problem_;
  Budget budget_;
  std::mt19937_64 random_;
  Timetable timetable_;
  Ticks target_;
  int64_t blocks_kept_ = 0;
  std::vector<Found> starts_;  // best first
};

}  // namespace

Found search(const Problem& problem, const SearchLimits& limits) {
  return Search(problem, limits).run();
}

}  // namespace penstock::plan::internal
