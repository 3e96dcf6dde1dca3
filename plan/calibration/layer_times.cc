#include "plan/calibration/layer_times.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "plan/calibration/least_squares.h"

namespace penstock::plan {
namespace {

constexpr int kFactorRounds = 20;  // between costs and factors; they settle in a few

bool is_time(double ms) {
  return ms == 0 || (ms >= 1e-9 && ms <= 1e9);
}

Status check(const std::vector<StageMeasurement>& measurements) {
  if (measurements.empty() || measurements.size() > kMeasurementsMax) {
    return invalid_argument("stages: expected 1 to {} measurements, found {}", kMeasurementsMax,
                            measurements.size());
  }
  for (size_t i = 0; i < measurements.size(); ++i) {
    const StageMeasurement& stage = measurements[i];
    int layers = 0;
    for (const auto& [type, count] : stage.layers) {
      if (count < 0 || count > 1'000'000)
        return invalid_argument("stages[{}].layers.{}: expected a count, found {}", i, type, count);
      layers += count;
    }
    if (layers == 0) return invalid_argument("stages[{}].layers: expected at least one layer", i);
    if (!is_time(stage.forward_ms) || !is_time(stage.backward_ms) ||
        stage.forward_ms + stage.backward_ms <= 0) {
      return invalid_argument("stages[{}]: expected times above 0, found forward {} ms, backward {} ms", i,
                              stage.forward_ms, stage.backward_ms);
    }
    if (stage.tokens.has_value() != measurements[0].tokens.has_value()) {
      return invalid_argument("stages[{}].tokens: expected of all stages or of none", i);
    }
    if (stage.tokens && !(*stage.tokens > 0 && *stage.tokens < 1e12)) {
      return invalid_argument("stages[{}].tokens: expected a number above 0, found {}", i, *stage.tokens);
    }
  }
  return ok_status();
}

std::vector<std::string> types_of(const std::vector<StageMeasurement>& measurements) {
  std::set<std::string> types;
  for (const StageMeasurement& stage : measurements) {
    for (const auto& [type, count] : stage.layers) {
      if (count > 0) types.insert(type);
    }
  }
  return {types.begin(), types.end()};
}

bool has_two_sizes(const std::vector<StageMeasurement>& measurements) {
  return std::any_of(measurements.begin(), measurements.end(), [&](const StageMeasurement& stage) {
    return stage.tokens && *stage.tokens != *measurements[0].tokens;
  });
}

double count_of(const LayerCounts& layers, const std::string& type) {
  const auto found = layers.find(type);
  return found == layers.end() ? 0 : found->second;
}

// --- costs by type.

// Columns: every type, and with two sizes every type by its tokens. Scaled to thousands of tokens, so that both kinds
// of column are of one size.
std::vector<double> row_of(const StageMeasurement& stage, const std::vector<std::string>& types,
                           bool by_tokens) {
  std::vector<double> row;
  for (const std::string& type : types) row.push_back(count_of(stage.layers, type));
  if (!by_tokens) return row;
  for (size_t c = 0; c < types.size(); ++c) row.push_back(row[c] * *stage.tokens / 1000);
  return row;
}

using Factors = std::map<std::string, double>;

double factor_of(const Factors& factors, const std::string& worker) {
  const auto found = factors.find(worker);
  return found == factors.end() ? 1 : found->second;
}

// Of one direction: what each type costs, where worker w takes factor_w as long as the fit says.
StatusOr<std::vector<LayerTime>> solve_types(const std::vector<StageMeasurement>& measurements,
                                             const std::vector<std::string>& types, bool by_tokens,
                                             double StageMeasurement::*time, const Factors& factors) {
  Matrix rows;
  std::vector<double> right;
  for (const StageMeasurement& stage : measurements) {
    const double measured = stage.*time / factor_of(factors, stage.worker);
    const double weight = measured > 0 ? 1 / measured : 1;
    std::vector<double> row = row_of(stage, types, by_tokens);
    for (double& value : row) value *= weight;
    rows.push_back(std::move(row));
    right.push_back(measured * weight);
  }
  const LeastSquares solved = solve_non_negative(rows, right);
  if (solved.inseparable) {
    const std::string& type = types[*solved.inseparable % types.size()];
    return invalid_argument(
        "stages: {} cannot be told from the other types; measure a stage that holds another number of them beside the "
        "rest{}",
        type, by_tokens ? ", at two sizes of microbatch" : "");
  }
  std::vector<LayerTime> times;
  for (size_t t = 0; t < types.size(); ++t) {
    times.push_back({solved.values[t], by_tokens ? solved.values[types.size() + t] / 1000 : 0});
  }
  return times;
}

Status fit_types(const std::vector<StageMeasurement>& measurements, const Factors& factors,
                 FittedTimes& fitted) {
  const std::vector<std::string> types = types_of(measurements);
  if (types.size() > kLayerTypesMax)
    return invalid_argument("layers: expected at most {} types, found {}", kLayerTypesMax, types.size());
  PENSTOCK_ASSIGN_OR_RETURN(
      const std::vector<LayerTime> forward,
      solve_types(measurements, types, fitted.by_tokens, &StageMeasurement::forward_ms, factors));
  PENSTOCK_ASSIGN_OR_RETURN(
      const std::vector<LayerTime> backward,
      solve_types(measurements, types, fitted.by_tokens, &StageMeasurement::backward_ms, factors));
  for (size_t t = 0; t < types.size(); ++t) fitted.types[types[t]] = {forward[t], backward[t]};
  return ok_status();
}

// --- speeds of workers.

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Workers that ran the same layers at the same size, together with those that they share another stage with: the largest
// such group. Fewer than two: nobody can be compared.
std::set<std::string> comparable_workers(const std::vector<StageMeasurement>& measurements) {
  std::map<std::pair<LayerCounts, double>, std::set<std::string>> together;
  for (const StageMeasurement& stage : measurements) {
    if (!stage.worker.empty()) together[{stage.layers, stage.tokens.value_or(0)}].insert(stage.worker);
  }
  std::vector<std::set<std::string>> groups;
  for (const auto& [stage, workers] : together) {
    std::set<std::string> merged = workers;
    std::erase_if(groups, [&](const std::set<std::string>& group) {
      const bool meets =
          std::any_of(group.begin(), group.end(), [&](const std::string& w) { return workers.contains(w); });
      if (meets) merged.insert(group.begin(), group.end());
      return meets;
    });
    groups.push_back(std::move(merged));
  }
  const auto largest = std::max_element(groups.begin(), groups.end(),
                                        [](const auto& a, const auto& b) { return a.size() < b.size(); });
  return largest == groups.end() || largest->size() < 2 ? std::set<std::string>() : *largest;
}

// The median of all factors is 1.
Factors factors_from(const std::vector<StageMeasurement>& measurements, const FittedTimes& fitted,
                     const std::set<std::string>& workers) {
  std::map<std::string, std::vector<double>> ratios;
  for (const StageMeasurement& stage : measurements) {
    if (!workers.contains(stage.worker)) continue;
    const StageTime nominal = *predict_stage(fitted, stage.layers, stage.tokens);
    if (nominal.total_ms() > 0)
      ratios[stage.worker].push_back((stage.forward_ms + stage.backward_ms) / nominal.total_ms());
  }
  Factors factors;
  std::vector<double> all;
  for (const auto& [worker, values] : ratios) all.push_back(factors[worker] = median_of(values));
  if (all.empty()) return factors;
  const double middle = median_of(all);
  for (auto& [worker, factor] : factors) factor /= middle;
  return factors;
}

Status fit_with_workers(const std::vector<StageMeasurement>& measurements, FittedTimes& fitted) {
  PENSTOCK_RETURN_IF_ERROR(fit_types(measurements, {}, fitted));
  const std::set<std::string> workers = comparable_workers(measurements);
  if (workers.empty()) return ok_status();
  for (int round = 0; round < kFactorRounds; ++round) {
    fitted.worker_factors = factors_from(measurements, fitted, workers);
    PENSTOCK_RETURN_IF_ERROR(fit_types(measurements, fitted.worker_factors, fitted));
  }
  return ok_status();
}

void add_errors(const std::vector<StageMeasurement>& measurements, FittedTimes& fitted) {
  double sum = 0;
  for (const StageMeasurement& stage : measurements) {
    StageTime time = *predict_stage(fitted, stage.layers, stage.tokens);
    const double factor = factor_of(fitted.worker_factors, stage.worker);
    time.forward_ms *= factor;
    time.backward_ms *= factor;
    const double measured = stage.forward_ms + stage.backward_ms;
    fitted.fitted.push_back(time);
    fitted.error_percent.push_back(100 * (time.total_ms() - measured) / measured);
    sum += std::abs(fitted.error_percent.back());
    fitted.largest_error_percent =
        std::max(fitted.largest_error_percent, std::abs(fitted.error_percent.back()));
  }
  fitted.mean_error_percent = sum / static_cast<double>(measurements.size());
  const size_t unknowns = fitted.types.size() * (fitted.by_tokens ? 2 : 1) + fitted.worker_factors.size() -
                          (fitted.worker_factors.empty() ? 0 : 1);
  fitted.degrees_of_freedom = static_cast<int>(measurements.size()) - static_cast<int>(unknowns);
}

}  // namespace

StatusOr<FittedTimes> fit_layer_times(const std::vector<StageMeasurement>& measurements) {
  PENSTOCK_RETURN_IF_ERROR(check(measurements));
  FittedTimes fitted;
  fitted.by_tokens = has_two_sizes(measurements);
  PENSTOCK_RETURN_IF_ERROR(fit_with_workers(measurements, fitted));
  add_errors(measurements, fitted);
  return fitted;
}

StatusOr<StageTime> predict_stage(const FittedTimes& times, const LayerCounts& layers,
                                  std::optional<double> tokens) {
  if (times.by_tokens && !tokens) {
    return invalid_argument("tokens: missing; the costs were measured at two sizes of microbatch");
  }
  StageTime stage;
  for (const auto& [type, count] : layers) {
    if (count == 0) continue;
    const auto found = times.types.find(type);
    if (found == times.types.end()) return invalid_argument("layers.{}: no measured stage holds one", type);
    stage.forward_ms += count * found->second.forward.at(tokens.value_or(0));
    stage.backward_ms += count * found->second.backward.at(tokens.value_or(0));
  }
  return stage;
}

}  // namespace penstock::plan
