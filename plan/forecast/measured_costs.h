// What the layers of a job cost, from measured runs of jobs like it: plan/rebalancing's fit, with what their optimizer took.
//
// Jobs are alike when a layer of either does the same work: shapes, sequence length, where documents end, dtype, device with its
// threads or its emulated costs, expert degree; number of blocks, split, schedule, ranks and batch may differ. Two jobs whose
// microbatches are of two sizes give costs of any size; one size speaks for that size alone. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "plan/forecast/cost_model.h"
#include "plan/rebalancing/measured_run.h"

namespace penstock::plan {

struct MeasuredJobRuns {
  std::string name;  // as the service calls it
  JobSpec job;
  std::vector<MeasuredRun> runs;  // oldest first
};

// Its error is the largest that it makes on the steps of the newest runs, or on a stage on average where there are more stages than
// unknown costs; where neither is known it is kRatesError. InvalidArgument: no runs, jobs that
// are not alike, types of layers that cannot be told apart. Asked for a job that is not like these, or has layers of a type that
// none of them has, it says what would have to be measured.
StatusOr<LayerCostModel> measured_model(std::vector<MeasuredJobRuns> jobs);

// "": a layer of either job does the same work; else the first difference: "model.hidden_size 64, found 128".
std::string why_layers_differ(const JobSpec& measured, const JobSpec& job);

}  // namespace penstock::plan
