#include "plan/diagnosis/routing_drift.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "plan/diagnosis/statistics.h"

namespace penstock::plan {
namespace {

constexpr size_t kPointsLeast = 16;
constexpr size_t kQuarters = 4;
constexpr double kLoadMoves = 0.05;
constexpr double kTimeMoves = 0.03;
constexpr double kTogether = 0.4;
constexpr double kBeyondChance = 3.5;  // standard deviations

struct Quarter {
  double load = 0;
  double seconds = 0;
};

RoutedStage without_empty_points(const RoutedStage& stage) {
  RoutedStage kept{.stage = stage.stage, .load = {}, .seconds = {}};
  for (size_t i = 0; i < std::min(stage.load.size(), stage.seconds.size()); ++i) {
    if (!(stage.load[i] > 0 && stage.seconds[i] > 0)) continue;
    kept.load.push_back(stage.load[i]);
    kept.seconds.push_back(stage.seconds[i]);
  }
  return kept;
}

double median_of(const std::vector<double>& values, size_t quarter) {
  const auto at = [&](size_t part) {
    return values.begin() + static_cast<std::ptrdiff_t>(values.size() * part / kQuarters);
  };
  return median({at(quarter), at(quarter + 1)});
}

std::array<Quarter, kQuarters> quarters_of(const RoutedStage& stage) {
  std::array<Quarter, kQuarters> quarters;
  for (size_t q = 0; q < kQuarters; ++q)
    quarters[q] = {median_of(stage.load, q), median_of(stage.seconds, q)};
  return quarters;
}

double rise(double least, double most) {
  return most / least - 1;
}

// Of `points` points without any relation, the standard deviation of their rank correlation is 1 / sqrt(points - 1).
double beyond_chance(size_t points) {
  return std::max(kTogether, kBeyondChance / std::sqrt(static_cast<double>(points) - 1));
}

RoutingJudgement judge_stage(const RoutedStage& stage) {
  const std::array<Quarter, kQuarters> quarters = quarters_of(stage);
  const auto by_load = [](const Quarter& a, const Quarter& b) { return a.load < b.load; };
  const auto [least, most] = std::minmax_element(quarters.begin(), quarters.end(), by_load);
  RoutingJudgement judgement{.stage = stage.stage,
                             .least_load = least->load,
                             .most_load = most->load,
                             .least_seconds = least->seconds,
                             .most_seconds = most->seconds,
                             .high_load = quantile(stage.load, 0.9),
                             .correlation = rank_correlation(stage.load, stage.seconds)};
  const bool load_moves = rise(least->load, most->load) >= kLoadMoves;
  const bool time_follows = rise(least->seconds, most->seconds) >= kTimeMoves &&
                            judgement.correlation >= beyond_chance(stage.load.size());
  judgement.routing = !load_moves ? Routing::Steady : time_follows ? Routing::Drift : Routing::Harmless;
  return judgement;
}

// Drift before harmless before steady; of equals the one whose time, or else whose load, moves most.
bool is_further(const RoutingJudgement& a, const RoutingJudgement& b) {
  if (a.routing != b.routing) return a.routing > b.routing;
  if (a.routing == Routing::Drift)
    return rise(a.least_seconds, a.most_seconds) > rise(b.least_seconds, b.most_seconds);
  return rise(a.least_load, a.most_load) > rise(b.least_load, b.most_load);
}

void explain(RoutingJudgement& judgement) {
  const std::string numbers = fmt::format(
      "of stage {} between quarters of the attempt: busiest to mean {:.2f} to {:.2f}, time {:.4g} to {:.4g} ms",
      judgement.stage, judgement.least_load, judgement.most_load, 1e3 * judgement.least_seconds,
      1e3 * judgement.most_seconds);
  switch (judgement.routing) {
    case Routing::Unknown:
      return;
    case Routing::Steady:
      judgement.because = fmt::format("rows of experts stay where they are, {}", numbers);
      return;
    case Routing::Harmless:
      judgement.because =
          fmt::format("rows of experts move and the time does not follow, {} (rank correlation {:.2f})",
                      numbers, judgement.correlation);
      return;
    case Routing::Drift:
      judgement.because =
          fmt::format("rows of experts move and the time follows, {} (rank correlation {:.2f})", numbers,
                      judgement.correlation);
      judgement.advice = fmt::format(
          "do not move layers for what one run measured: plan for a load of {:.2f}, which nine steps in ten stay below; a larger "
          "model.moe.router_aux_loss_coef keeps experts even",
          judgement.high_load);
      return;
  }
}

}  // namespace

const char* name_of(Routing routing) {
  switch (routing) {
    case Routing::Unknown:
      return "unknown";
    case Routing::Steady:
      return "steady";
    case Routing::Harmless:
      return "harmless";
    case Routing::Drift:
      return "drift";
  }
  return "unknown";
}

RoutingJudgement judge_routing(const std::vector<RoutedStage>& stages) {
  RoutingJudgement furthest;
  for (const RoutedStage& each : stages) {
    const RoutedStage stage = without_empty_points(each);
    if (stage.load.size() < kPointsLeast) continue;
    const RoutingJudgement judgement = judge_stage(stage);
    if (furthest.stage < 0 || is_further(judgement, furthest)) furthest = judgement;
  }
  explain(furthest);
  return furthest;
}

}  // namespace penstock::plan
