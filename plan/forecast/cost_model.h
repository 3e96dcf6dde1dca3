// What the layers of a job cost before it runs, whoever says so: a file, measured runs of jobs like it (measured_costs.h), the
// cost table of its emulated devices, or a device's rates over what the model computes (plan/cost/operations.h). Each says
// by how much of a step it may be wrong.
//
// Pure; any thread. A model may be asked for many jobs: for other sizes of microbatch and other blocks that recompute.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/status.h"
#include "plan/cost/operations.h"
#include "plan/interop/layer_costs.h"
#include "plan/spec/job_spec.h"

namespace penstock::plan {

struct JobCosts {
  LayerCosts layers;       // one an item; bytes where the source knows them, else 0
  int64_t latency_ns = 0;  // of a message between two ranks
};

struct LayerCostModel {
  std::string source;  // as a sentence goes on after "planned from"
  double error = 0;    // part of a step
  bool is_measured = true;
  std::string one_size;  // why it speaks for one size of microbatch alone; "": for any
  // Times of the job as it stands, with what it recomputes. InvalidArgument: a job that this source does not speak for.
  std::function<StatusOr<JobCosts>(const JobSpec&)> costs;
};

// Of a step, between predictions of one and the same source. Published stages of a 4B model on A100s (arXiv 2411.05288): gains of
// splits that rates predict are met within 3.3 % of a step (cost_model_test.cc).
constexpr double kRatesError = 0.04;

// InvalidArgument: rates that are none.
StatusOr<LayerCostModel> rates_model(const DeviceRates& rates);

// Of a file that job_profile.h reads. InvalidArgument: it is none.
StatusOr<LayerCostModel> file_model(const std::string& text, const std::string& path);

// Of the job's emulated devices; nothing where they are none, or their costs are by stage.
StatusOr<std::optional<LayerCostModel>> emulated_model(const JobSpec& job);

}  // namespace penstock::plan
