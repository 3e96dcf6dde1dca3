// How rows came to the experts of a job, as the coordinator tells it, as figures and as what diagnosis takes. Rows of sequences
// that fill up a step's last microbatch count (worker/model/expert_load.h). Pure.
#pragma once

#include <vector>

#include "penstock/v1/jobs.pb.h"
#include "plan/diagnosis/routing_drift.h"
#include "plan/spec/job_spec.h"

namespace penstock::client {

// Rows an expert of one layer in a step, mean of the newest steps, those of all ranks together.
struct LayerRows {
  int layer = 0;
  int stage = 0;
  int experts = 0;
  double least = 0;
  double mean = 0;
  double most = 0;
  double ratio = 0;  // most to mean; 0: no row came
};

// By layer; none of a job without experts, or whose attempt has no step yet.
std::vector<LayerRows> layer_rows(const v1::AttemptMeasurements& attempt);

// The stages with experts over the whole attempt.
std::vector<plan::RoutedStage> routed_stages(const v1::AttemptMeasurements& attempt);

// Rows of the rank's experts in that stage to those of the mean rank of its expert group; 0 where every rank has all experts, or
// nothing is known.
double load_of_rank(const v1::AttemptMeasurements& attempt, const plan::JobSpec& job, int stage, int rank);

}  // namespace penstock::client
