#include "plan/diagnosis/diagnose.h"

#include <algorithm>
#include <cmath>

#include "plan/diagnosis/statistics.h"

namespace penstock::plan {
namespace {

constexpr double kVariable = 0.08;
constexpr double kSlowStage = 1.05;
constexpr double kSlowWorker = 1.10;
constexpr double kVariesTogether = 0.9;
constexpr int kPolishRounds = 10;
constexpr size_t kOutlierOneOf = 50;
constexpr size_t kStagesMax = 4'096;
constexpr size_t kReplicasMax = 4'096;

using Grid = std::vector<std::vector<double>>;  // [stage][replica]

// --- what is given.

Status check_cell(const CellSamples& cell, size_t stage, size_t replica) {
  if (cell.forward_ms.empty() || cell.forward_ms.size() != cell.backward_ms.size()) {
    return invalid_argument(
        "stage {} replica {}: expected as many forwards as backwards, at least one, found {} and {}", stage,
        replica, cell.forward_ms.size(), cell.backward_ms.size());
  }
  for (const std::vector<double>* samples : {&cell.forward_ms, &cell.backward_ms}) {
    for (const double ms : *samples) {
      if (!(std::isfinite(ms) && ms > 0 && ms < 1e12)) {
        return invalid_argument("stage {} replica {}: expected times above 0, found {} ms", stage, replica,
                                ms);
      }
    }
  }
  return ok_status();
}

Status check(const StageTrace& trace) {
  if (trace.cells.empty() || trace.cells.size() > kStagesMax) {
    return invalid_argument("stages: expected 1 to {}, found {}", kStagesMax, trace.cells.size());
  }
  const size_t replicas = trace.cells[0].size();
  if (replicas < 1 || replicas > kReplicasMax) {
    return invalid_argument("replicas: expected 1 to {}, found {}", kReplicasMax, replicas);
  }
  for (size_t stage = 0; stage < trace.cells.size(); ++stage) {
    if (trace.cells[stage].size() != replicas) {
      return invalid_argument("stage {}: expected {} replicas, found {}", stage, replicas,
                              trace.cells[stage].size());
    }
    for (size_t replica = 0; replica < replicas; ++replica) {
      PENSTOCK_RETURN_IF_ERROR(check_cell(trace.cells[stage][replica], stage, replica));
    }
  }
  return ok_status();
}

std::vector<double> totals_of(const CellSamples& cell) {
  std::vector<double> totals;
  for (size_t i = 0; i < cell.forward_ms.size(); ++i)
    totals.push_back(cell.forward_ms[i] + cell.backward_ms[i]);
  return totals;
}

// --- effects.

// Takes the lower median of every row out of `grid` and into `effects`, and its transpose.
void polish_rows(Grid& grid, std::vector<double>& effects) {
  for (size_t row = 0; row < grid.size(); ++row) {
    const double middle = lower_median(grid[row]);
    effects[row] += middle;
    for (double& value : grid[row]) value -= middle;
  }
}

void polish_columns(Grid& grid, std::vector<double>& effects) {
  for (size_t column = 0; column < effects.size(); ++column) {
    std::vector<double> values;
    for (const auto& row : grid) values.push_back(row[column]);
    const double middle = lower_median(values);
    effects[column] += middle;
    for (auto& row : grid) row[column] -= middle;
  }
}

std::vector<double> factors_of(std::vector<double> effects) {
  const double middle = median(effects);
  for (double& effect : effects) effect = std::exp(effect - middle);
  return effects;
}

void take_apart(Diagnosis& diagnosis) {
  Grid grid = diagnosis.median_ms;
  for (auto& row : grid) {
    for (double& value : row) value = std::log(value);
  }
  std::vector<double> stages(grid.size()), replicas(grid[0].size());
  for (int round = 0; round < kPolishRounds; ++round) {
    polish_rows(grid, stages);
    polish_columns(grid, replicas);
  }
  for (auto& row : grid) {
    for (double& value : row) value = std::exp(value);
  }
  diagnosis.stage_factor = factors_of(stages);
  diagnosis.replica_factor = factors_of(replicas);
  diagnosis.residual_factor = std::move(grid);
}

// --- variance.

// A machine that hiccups once in a hundred is not the data.
std::vector<double> without_outliers(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  values.resize(values.size() - values.size() / kOutlierOneOf);
  return values;
}

double spread_of(const std::vector<double>& totals) {
  const double middle = median(totals);
  const double width =
      (quantile(totals, 0.9) - quantile(totals, 0.1)) / 2.56;  // a normal's standard deviation
  return std::max(width, mean(without_outliers(totals)) - middle) / middle;
}

void add_spread(const StageTrace& trace, Diagnosis& diagnosis) {
  std::vector<double> forwards, backwards;
  for (const auto& stage : trace.cells) {
    std::vector<double> spreads;
    for (const CellSamples& cell : stage) {
      spreads.push_back(spread_of(totals_of(cell)));
      const double forward = median(cell.forward_ms), backward = median(cell.backward_ms);
      for (const double ms : cell.forward_ms) forwards.push_back(ms / forward);
      for (const double ms : cell.backward_ms) backwards.push_back(ms / backward);
    }
    diagnosis.spread.push_back(median(spreads));
  }
  diagnosis.forward_backward_correlation = correlation(forwards, backwards);
}

// --- the verdict.

struct Slowest {
  size_t stage = 0;
  size_t replica = 0;
  double factor = 0;
};

Slowest slowest_worker(const Grid& residuals) {
  Slowest slowest;
  for (size_t stage = 0; stage < residuals.size(); ++stage) {
    for (size_t replica = 0; replica < residuals[stage].size(); ++replica) {
      if (residuals[stage][replica] > slowest.factor) slowest = {stage, replica, residuals[stage][replica]};
    }
  }
  return slowest;
}

void say_variance(Diagnosis& diagnosis, double spread) {
  diagnosis.finding = Finding::DataVariance;
  const bool together = is_of_the_data(diagnosis);
  diagnosis.because = fmt::format(
      "microbatches of one stage vary by {:.0f} % (healthy: 2 to 3 %), forward and backward {} "
      "(correlation {:.2f})",
      100 * spread, together ? "together" : "apart", diagnosis.forward_backward_correlation);
  diagnosis.advice =
      together ? "pack sequences of mixed lengths into microbatches of equal cost; plan on medians only"
               : "look at what else runs on the machines; plan on medians only";
}

void say_straggler(Diagnosis& diagnosis, const Slowest& worker) {
  diagnosis.finding = Finding::Straggler;
  diagnosis.stage = static_cast<int>(worker.stage);
  diagnosis.replica = static_cast<int>(worker.replica);
  diagnosis.because =
      fmt::format("the worker of stage {} in replica {} takes {:.2f} times what its stage takes elsewhere",
                  worker.stage, worker.replica, worker.factor);
  diagnosis.advice = "derate or drain that worker; do not move layers";
}

void say_imbalance(Diagnosis& diagnosis, size_t stage) {
  const size_t stages = diagnosis.stage_factor.size();
  diagnosis.finding = Finding::Imbalance;
  diagnosis.stage = static_cast<int>(stage);
  diagnosis.because = fmt::format(
      "stage {} takes {:.2f} times the median stage; spread evenly, a stage would take {:.2f} times", stage,
      diagnosis.stage_factor[stage], mean(diagnosis.stage_factor));
  const char* kind = stage + 1 == stages ? ", which holds the head,"
                     : stage == 0        ? ", which holds the embedding,"
                                         : "";
  diagnosis.advice = fmt::format("move layers away from stage {}{} to the others", stage, kind);
  if (diagnosis.replica_factor.size() == 1) {
    diagnosis.note =
        "with one replica a slow worker looks like a heavy stage; move the stage to another worker to tell";
  }
}

void conclude(Diagnosis& diagnosis) {
  const double spread = median(diagnosis.spread);
  const auto stage =
      static_cast<size_t>(std::max_element(diagnosis.stage_factor.begin(), diagnosis.stage_factor.end()) -
                          diagnosis.stage_factor.begin());
  const double stage_factor = diagnosis.stage_factor[stage];
  const Slowest worker = slowest_worker(diagnosis.residual_factor);
  if (spread > kVariable) return say_variance(diagnosis, spread);
  if (worker.factor > kSlowWorker && worker.factor >= stage_factor) return say_straggler(diagnosis, worker);
  if (stage_factor > kSlowStage) return say_imbalance(diagnosis, stage);
  diagnosis.because = fmt::format(
      "stages differ by at most {:.1f} %, workers of a stage by {:.1f} %, microbatches by {:.1f} %",
      100 * (stage_factor - 1), 100 * (worker.factor - 1), 100 * spread);
  diagnosis.advice = "nothing to move";
}

}  // namespace

const char* name_of(Finding finding) {
  switch (finding) {
    case Finding::Balanced:
      return "balanced";
    case Finding::Imbalance:
      return "imbalance";
    case Finding::Straggler:
      return "straggler";
    case Finding::DataVariance:
      return "data-variance";
  }
  return "unknown";
}

bool is_of_the_data(const Diagnosis& diagnosis) {
  return diagnosis.finding == Finding::DataVariance &&
         diagnosis.forward_backward_correlation >= kVariesTogether;
}

StatusOr<Diagnosis> diagnose(const StageTrace& trace) {
  PENSTOCK_RETURN_IF_ERROR(check(trace));
  Diagnosis diagnosis;
  for (const auto& stage : trace.cells) {
    std::vector<double>& medians = diagnosis.median_ms.emplace_back();
    for (const CellSamples& cell : stage) medians.push_back(median(totals_of(cell)));
  }
  take_apart(diagnosis);
  add_spread(trace, diagnosis);
  conclude(diagnosis);
  return diagnosis;
}

}  // namespace penstock::plan
