// What the stages of a job took and its ranks held, beside what was planned: for the terminal, as a picture, for programs.
// Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/present/expert_loads.h"
#include "client/present/job_json.h"
#include "penstock/v1/jobs.pb.h"
#include "plan/rebalancing/measured_run.h"
#include "plan/rebalancing/planned_stages.h"
#include "plan/render/glyphs.h"
#include "plan/spec/job_spec.h"

namespace penstock::client {

struct StageTimes {
  int stage = 0;
  std::vector<int> ranks;
  std::string items;       // "embedding 0-2"
  double measured_ms = 0;  // forward and backward of a microbatch, median
  double p95_ms = 0;
  double planned_ms = 0;
};

struct KindMemory {
  std::string kind;  // "parameters", "activations"
  int64_t peak_bytes = 0;
  int64_t predicted_bytes = 0;
};
struct RankMemory {
  int rank = 0;
  int64_t peak_bytes = 0;
  int64_t predicted_bytes = 0;
  std::vector<KindMemory> kinds;  // none: not told
};

// What a rank waited for in a step; medians.
struct RankWaits {
  int rank = 0;
  double wait_ms = 0;  // for peers, of whatever kind
  std::optional<double>
      dependency_ms;  // for tensors, before their producers had ended; of traced steps, as the next one
  std::optional<double> transfer_ms;  // for tensors, after that
};

// An earlier attempt, or the newest, in a line.
struct AttemptFigures {
  int64_t attempt = 0;
  std::string schedule;
  int64_t steps = 0;  // measured
  double step_ms = 0;
  int64_t largest_rank_bytes = 0;  // 0: not measured
};

struct StageCurves {
  std::string job;
  int64_t attempt = 0;
  int64_t steps = 0;  // measured
  double step_seconds = 0;
  plan::PlannedBy planned_by = plan::PlannedBy::Mean;
  std::vector<StageTimes> stages;
  std::vector<RankMemory> ranks;
  std::vector<RankWaits> waits;
  std::vector<LayerRows> layers;         // with experts
  std::vector<AttemptFigures> attempts;  // oldest first, the newest last
};

StageCurves stage_curves(const std::string& name, const plan::JobSpec& job,
                         const v1::MeasurementsResponse& response,
                         const std::vector<plan::MeasuredRun>& runs);

struct CurvesStyle {
  plan::Glyphs glyphs = plan::Glyphs::Ascii;
  int columns = 100;  // of the terminal: as many kinds of memory as there is room for, the others together
};
std::string curves_text(const StageCurves& curves, const CurvesStyle& style = {});
// job, attempt, steps, step_seconds, planned ("device.costs", "costs": of earlier splits, "submit" or "mean"), stages[] {stage,
// ranks, items, measured_ms, p95_ms, planned_ms}, ranks[] {rank, peak_bytes, predicted_bytes, kinds{kind: {peak_bytes,
// predicted_bytes}}}, waits[] {rank, wait_ms, dependency_ms, transfer_ms}, experts[] {layer, stage, experts, rows_min,
// rows_mean, rows_max, max_over_mean} and attempts[] {attempt, schedule, steps, step_ms, largest_rank_bytes}.
Json curves_json(const StageCurves& curves);
std::string curves_svg(const StageCurves& curves);

}  // namespace penstock::client
