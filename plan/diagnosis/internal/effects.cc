#include "plan/diagnosis/internal/effects.h"

#include <algorithm>
#include <cmath>

#include "plan/diagnosis/statistics.h"

namespace penstock::plan::internal {
namespace {

constexpr double kSlowWorker = 1.10;
constexpr double kStandardErrors = 4;  // of thousands of ranks none is that far by chance
constexpr double kLevel = 0.05;        // works without fault of a pipeline in balance
constexpr int kRounds = 4;             // each takes slow replicas out of the levels that the next one sees

std::vector<double> levels_of(const Grid& ms, const std::vector<double>& replica_factor) {
  std::vector<double> levels;
  for (const std::vector<double>& row : ms) {
    std::vector<double> without;
    for (size_t replica = 0; replica < row.size(); ++replica)
      without.push_back(row[replica] / replica_factor[replica]);
    levels.push_back(lower_median(std::move(without)));
  }
  return levels;
}

double unevenness(const std::vector<double>& levels) {
  return *std::max_element(levels.begin(), levels.end()) / mean(levels);
}

class Search {
 public:
  explicit Search(const RankTimes& times) : times_(times) {
    for (size_t work = 0; work < times.works(); ++work) {
      effects_.error_ms.push_back(lower_median(times.error_ms[work]));
      std::vector<double> row = times.ms[work];
      std::sort(row.begin(), row.end());
      fastest_.push_back(row[0]);
      second_.push_back(row.size() > 1 ? row[1] : row[0]);
    }
    effects_.replica_factor.assign(times.replicas(), 1);
    effects_.level_ms = levels_of(times.ms, effects_.replica_factor);
  }

  Effects found() {
    if (times_.works() > 1) {
      for (int round = 0; round < kRounds && takes_out_replicas(); ++round) continue;
      lower_levels_to_the_fastest();
    }
    add_slow_ranks();
    return std::move(effects_);
  }

 private:
  bool is_slow(size_t work, size_t replica, double than_ms) const {
    return is_longer(times_.ms[work][replica], times_.error_ms[work][replica], than_ms,
                     effects_.error_ms[work]);
  }

  // That it is slow although it is at its work's level: against the fastest, or as those beside it are slower still.
  bool may_be_slow(size_t work, size_t replica) const {
    const double error = effects_.error_ms[work];
    return is_slow(work, replica, fastest_[work]) || (times_.ms[work][replica] <= fastest_[work] &&
                                                      is_longer(second_[work], error, fastest_[work], error));
  }

  double factor_of(size_t replica) const {
    std::vector<double> factors;
    for (size_t work = 0; work < times_.works(); ++work)
      factors.push_back(times_.ms[work][replica] / effects_.level_ms[work]);
    return lower_median(std::move(factors));
  }

  // Whether anything came of it.
  bool takes_out_replicas() {
    std::vector<double> whole(times_.replicas(), 1), most;
    for (size_t replica = 0; replica < times_.replicas(); ++replica) {
      size_t slow = 0, maybe = 0;
      for (size_t work = 0; work < times_.works(); ++work) {
        if (is_slow(work, replica, effects_.level_ms[work]))
          ++slow;
        else if (may_be_slow(work, replica))
          ++maybe;
      }
      if (slow == times_.works()) whole[replica] = factor_of(replica);
      most.push_back(2 * slow > times_.works() && slow + maybe == times_.works() ? factor_of(replica) : 1);
    }
    const std::vector<double> before = effects_.replica_factor;
    const std::vector<double> of_whole = levels_of(times_.ms, whole), of_most = levels_of(times_.ms, most);
    const bool takes_most = unevenness(of_most) < unevenness(of_whole);
    effects_.replica_factor = takes_most ? most : whole;
    effects_.level_ms = takes_most ? of_most : of_whole;
    return effects_.replica_factor != before;
  }

  void lower_levels_to_the_fastest() {
    const std::vector<double> levels = effects_.level_ms;
    for (size_t work = 0; work < levels.size(); ++work) {
      std::vector<double> others = levels;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(work));
      const double usual = median(std::move(others));
      const bool is_level = std::abs(fastest_[work] / usual - 1) <= kLevel;
      const double error = effects_.error_ms[work];
      if (is_level && is_longer(levels[work], error, fastest_[work], error))
        effects_.level_ms[work] = fastest_[work];
    }
  }

  void add_slow_ranks() {
    for (size_t work = 0; work < times_.works(); ++work) {
      for (size_t replica = 0; replica < times_.replicas(); ++replica) {
        const double expected = effects_.level_ms[work] * effects_.replica_factor[replica];
        if (is_slow(work, replica, expected) && is_slow(work, replica, fastest_[work]))
          effects_.slow.push_back({work, replica, times_.ms[work][replica] / expected});
      }
    }
    std::stable_sort(effects_.slow.begin(), effects_.slow.end(),
                     [](const SlowRank& a, const SlowRank& b) { return a.factor > b.factor; });
  }

  const RankTimes& times_;
  std::vector<double> fastest_, second_;  // [work] the least two
  Effects effects_;
};

}  // namespace

bool is_longer(double ms, double error_ms, double than_ms, double than_error_ms) {
  return ms > kSlowWorker * than_ms && ms - than_ms > kStandardErrors * std::hypot(error_ms, than_error_ms);
}

Effects effects_of(const RankTimes& times) {
  return Search(times).found();
}

}  // namespace penstock::plan::internal
