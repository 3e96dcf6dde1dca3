#include "plan/diagnosis/diagnose.h"

#include <algorithm>
#include <cmath>

#include "plan/diagnosis/internal/effects.h"
#include "plan/diagnosis/internal/rank_times.h"
#include "plan/diagnosis/internal/verdicts.h"
#include "plan/diagnosis/statistics.h"

namespace penstock::plan {
namespace {

using internal::Effects;
using internal::Grid;
using internal::RankTimes;
using internal::Variation;

constexpr double kLeastMs = 1e-9;
constexpr double kMostMs = 1e12;
constexpr size_t kStagesMax = 4'096;
constexpr size_t kReplicasMax = 4'096;

Status check_cell(const CellSamples& cell, size_t stage, size_t replica) {
  if (cell.forward_ms.empty() || cell.forward_ms.size() != cell.backward_ms.size()) {
    return invalid_argument(
        "stage {} replica {}: expected as many forwards as backwards, at least one, found {} and {}", stage,
        replica, cell.forward_ms.size(), cell.backward_ms.size());
  }
  for (const std::vector<double>* samples : {&cell.forward_ms, &cell.backward_ms}) {
    for (const double ms : *samples) {
      if (!(std::isfinite(ms) && ms >= kLeastMs && ms <= kMostMs)) {
        return invalid_argument("stage {} replica {}: expected times above 0, {} to {} ms, found {} ms",
                                stage, replica, kLeastMs, kMostMs, ms);
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

std::vector<double> to_their_median(std::vector<double> values) {
  const double middle = median(values);
  for (double& value : values) value /= middle;
  return values;
}

void add_factors(const RankTimes& times, const Effects& effects, Diagnosis& diagnosis) {
  const size_t stages = diagnosis.median_ms.size();
  std::vector<double> stage_levels(stages), ranks(stages);
  diagnosis.worker_factor.resize(stages);
  const std::vector<double> rank_factor = to_their_median(effects.level_ms);
  for (size_t work = 0; work < times.works(); ++work) {
    std::vector<double> factors;
    for (const double ms : times.ms[work]) factors.push_back(ms / effects.level_ms[work]);
    for (const int stage : times.stages[work]) {
      const auto index = static_cast<size_t>(stage);
      std::vector<double> without;
      for (size_t replica = 0; replica < times.replicas(); ++replica)
        without.push_back(diagnosis.median_ms[index][replica] / effects.replica_factor[replica]);
      stage_levels[index] =
          times.stages[work].size() == 1 ? effects.level_ms[work] : lower_median(std::move(without));
      ranks[index] = rank_factor[work];
      diagnosis.worker_factor[index] = factors;
    }
  }
  diagnosis.stages_share_ranks = times.hold_several();
  diagnosis.stage_factor = to_their_median(std::move(stage_levels));
  diagnosis.rank_factor = std::move(ranks);
  diagnosis.replica_factor = effects.replica_factor;
}

void add_variation(const Variation& variation, Diagnosis& diagnosis) {
  for (const std::vector<double>& stage : variation.spread) diagnosis.spread.push_back(lower_median(stage));
  diagnosis.forward_backward_correlation = variation.forward_backward_correlation;
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
    case Finding::SlowReplica:
      return "slow-replica";
    case Finding::DataVariance:
      return "data-variance";
  }
  return "unknown";
}

const Judgement* Diagnosis::of(Finding finding) const {
  const auto found = std::find_if(verdicts.begin(), verdicts.end(),
                                  [&](const Judgement& verdict) { return verdict.finding == finding; });
  return found == verdicts.end() ? nullptr : &*found;
}

bool is_of_the_data(const Diagnosis& diagnosis) {
  return diagnosis.of(Finding::DataVariance) != nullptr &&
         diagnosis.forward_backward_correlation >= kVariesTogether;
}

StatusOr<Diagnosis> diagnose(const StageTrace& trace) {
  PENSTOCK_RETURN_IF_ERROR(check(trace));
  Diagnosis diagnosis;
  diagnosis.median_ms = internal::medians_of(trace);
  PENSTOCK_ASSIGN_OR_RETURN(const RankTimes times, internal::rank_times(trace, diagnosis.median_ms));
  const Effects effects = internal::effects_of(times);
  add_factors(times, effects, diagnosis);
  add_variation(internal::variation_of(trace), diagnosis);
  diagnosis.verdicts = internal::verdicts_of(times, effects, diagnosis);
  diagnosis.notes = internal::notes_of(trace, times, effects, diagnosis);
  return diagnosis;
}

}  // namespace penstock::plan
