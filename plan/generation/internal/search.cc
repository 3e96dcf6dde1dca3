#include "plan/generation/internal/search.h"

#include <algorithm>
#include <array>
#include <random>

#include "plan/generation/internal/bounds.h"
#include "plan/generation/internal/budget.h"
#include "plan/generation/internal/building_blocks.h"
#include "plan/generation/internal/closed_forms.h"
#include "plan/generation/internal/justify.h"
#include "plan/generation/internal/list_schedule.h"
#include "plan/generation/internal/local_search.h"

namespace penstock::plan::internal {
namespace {

constexpr int kBestMax = 8;
constexpr int64_t kStepsKeptMax = int64_t{1} << 23;  // of all the best together
constexpr int kJustifyRounds = 3;

// The same program when everything takes one tick: its schedules are regular, and regular ones are often
// good for costs that differ a little.
Problem evened(Problem problem) {
  problem.costs.assign(problem.stages(), StageCosts{});
  problem.delay_up.assign(problem.stages() - 1, 0);
  problem.delay_down.assign(problem.stages() - 1, 0);
  add_lanes(problem);
  return problem;
}

// Whether its own lists are those of the evened one.
bool is_even(const Problem& problem) {
  const Ticks tick = problem.costs.front().forward;
  for (const StageCosts& cost : problem.costs)
    if (cost.forward != tick || cost.input_gradient != tick || cost.weight_gradient != tick) return false;
  const auto is_zero = [](Ticks delay) { return delay == 0; };
  return std::all_of(problem.delay_up.begin(), problem.delay_up.end(), is_zero) &&
         std::all_of(problem.delay_down.begin(), problem.delay_down.end(), is_zero);
}

class Search {
 public:
  Search(const Problem& problem, const SearchLimits& limits)
      : problem_(problem),
        budget_(limits),
        random_(limits.seed),
        even_(evened(problem)),
        is_even_(is_even(problem)),
        timetable_(problem),
        best_max_(std::clamp<int64_t>(kStepsKeptMax / problem.steps(), 1, kBestMax)),
        target_(bound_of(problem).max_stage_span) {}

  Found run() {
    for (Orders& orders : closed_forms_within_limits(problem_))
      if (may_try()) consider(std::move(orders));
    if (problem_.stages_per_rank == 1) {
      try_zero_bubble();
    } else {
      try_v_lists();
      try_blocks();
    }
    if (best_.empty()) consider(one_at_a_time(problem_));
    while (may_try()) {
      if (below(2) == 0) {
        explore();
      } else {
        polish();
      }
    }
    Found found = std::move(best_.front());
    found.evaluations = budget_.used();
    return found;
  }

 private:
  bool is_optimal() const { return !best_.empty() && best_.front().score.max_stage_span <= target_; }

  // The first program is free, since there must be one.
  bool may_try() { return !is_optimal() && (budget_.take() || best_.empty()); }

  int below(int64_t count) { return static_cast<int>(random_() % static_cast<uint64_t>(count)); }

  // Zero Bubble's runs: how far forwards run ahead, what goes first, and what a short gap takes.
  void try_zero_bubble() {
    for (const bool overrun : {false, true}) {
      for (const int more_ahead : {0, 1, problem_.microbatches}) {
        std::vector<int> ahead = warm_up(problem_, overrun);
        for (int& count : ahead) count += more_ahead;
        for (const int gap_percent : {100, 50, 0}) {
          try_list({{kInputGradient, kForward}, ahead, false, gap_percent});
          try_list({{kForward, kInputGradient}, ahead, false, gap_percent});
        }
      }
    }
  }

  void try_v_lists() {
    constexpr std::array<int, 4> kForwardsOfSecondFirst = {
        kKinds + kForward, kForward, kInputGradient, kKinds + kInputGradient};  // makes ZB-V of even costs
    ListPolicy policy{.priority = kForwardsOfSecondFirst,
                      .ahead_max = without_limit(),
                      .weight_gradients_first = true,
                      .gap_percent = 0};
    try_list(policy);
    for (const bool weight_gradients_first : {true, false}) {
      policy.weight_gradients_first = weight_gradients_first;
      std::sort(policy.priority.begin(), policy.priority.end());
      do try_list(policy);
      while (std::next_permutation(policy.priority.begin(), policy.priority.end()));
    }
  }

  // Longer periods hold less; the shortest with which a block fits is best.
  void try_blocks() {
    constexpr int kPeriodMin = 6, kPeriodMax = 12, kBlocksMax = 64;
    bool fits = false;
    for (int period = kPeriodMin; period <= kPeriodMax && !fits; ++period) {
      for (const BuildingBlock& block : building_blocks(problem_, period, kBlocksMax)) {
        if (!may_try()) return;
        std::optional<Orders> orders = stamped(problem_, block);
        if (!orders) continue;
        fits = true;
        consider(*std::move(orders));
      }
    }
  }

  void try_list(const ListPolicy& policy) {
    try_list_of(even_, policy);
    if (!is_even_) try_list_of(problem_, policy);
  }

  void try_list_of(const Problem& problem, const ListPolicy& policy) {
    if (!may_try()) return;
    std::optional<Orders> orders = list_schedule(problem, policy);
    if (orders) consider(*std::move(orders));
  }

  // A list by a random policy, its end by another one. Closing gaps makes good programs out of bad ones,
  // and of different ones different ones.
  void explore() {
    const Problem& problem = below(2) == 0 ? even_ : problem_;
    std::optional<Orders> orders = list_schedule(problem, random_policy(/*may_limit=*/true));
    if (!orders || !timetable_.assign(*std::move(orders))) return;
    if (below(2) == 0) rebuild_end();
    justify();
    keep();
  }

  // One of the best, shaken, then improved step by step.
  void polish() {
    const int count = static_cast<int>(best_.size());
    timetable_.assign(best_[std::min(below(count), below(count))].orders);
    if (below(2) == 0) {
      kick(timetable_, problem_, below(6), budget_, random_);
    } else {
      rebuild_end();
      justify();
    }
    improve(timetable_, problem_, target_, budget_, random_);
    keep();
  }

  void rebuild_end() {
    const Orders before = timetable_.orders();
    const auto time = static_cast<Ticks>(random_() % static_cast<uint64_t>(timetable_.score().makespan + 1));
    std::optional<Orders> orders =
        list_schedule_from(timetable_, time, problem_, random_policy(/*may_limit=*/false));
    if (orders && !timetable_.assign(*std::move(orders))) timetable_.assign(before);
  }

  ListPolicy random_policy(bool may_limit) {
    ListPolicy policy{.priority = {kForward, kInputGradient, kKinds + kForward, kKinds + kInputGradient},
                      .ahead_max = without_limit(),
                      .weight_gradients_first = below(2) == 0,
                      .gap_percent = 50 * below(3)};
    const int lanes = 2 * problem_.stages_per_rank;
    for (int i = lanes - 1; i > 0; --i) std::swap(policy.priority[i], policy.priority[below(i + 1)]);
    if (may_limit && below(4) != 0) policy.ahead_max = random_limits();
    return policy;
  }

  std::vector<int> without_limit() const { return std::vector<int>(problem_.ranks, problem_.microbatches); }

  // A straight line over the ranks.
  std::vector<int> random_limits() {
    const int first = 1 + below(2 * problem_.ranks), slope = below(9) - 4;
    std::vector<int> limits;
    for (int rank = 0; rank < problem_.ranks; ++rank) limits.push_back(std::max(first + slope * rank / 2, 1));
    return limits;
  }

  void consider(Orders orders) {
    if (!timetable_.assign(std::move(orders))) return;
    keep();
    justify();
    keep();
  }

  void justify() {
    for (int round = 0; round < kJustifyRounds && budget_.goes_on(); ++round) {
      const Score before = timetable_.score();
      timetable_.assign(pulled_left(problem_, timetable_));
      const Score pulled = timetable_.score();
      const Orders kept = timetable_.orders();
      timetable_.assign(pushed_right_and_pulled_left(problem_, timetable_));
      if (pulled < timetable_.score()) timetable_.assign(kept);
      if (!(timetable_.score() < before)) return;
    }
  }

  // Among the best, if it is one of them.
  void keep() {
    const Score score = timetable_.score();
    const auto place =
        std::lower_bound(best_.begin(), best_.end(), score,
                         [](const Found& found, const Score& other) { return found.score < other; });
    if (place != best_.end() && place->score == score) return;  // most often the same program
    best_.insert(place, {timetable_.orders(), score});
    if (static_cast<int64_t>(best_.size()) > best_max_) best_.pop_back();
  }

  const Problem& problem_;
  Budget budget_;
  std::mt19937_64 random_;
  const Problem even_;
  const bool is_even_;
  Timetable timetable_;
  int64_t best_max_;
  Ticks target_;
  std::vector<Found> best_;  // best first
};

}  // namespace

Found search(const Problem& problem, const SearchLimits& limits) {
  return Search(problem, limits).run();
}

}  // namespace penstock::plan::internal
