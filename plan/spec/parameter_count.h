// How many parameters a model has, and a rank of its job. Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/spec/job_spec.h"

namespace penstock::plan {

struct ParameterCount {
  int64_t dense = 0;    // shared experts among them
  int64_t experts = 0;  // of routed experts

  int64_t total() const { return dense + experts; }
  bool operator==(const ParameterCount&) const = default;
};

// A tied matrix counts once.
ParameterCount count_parameters(const ModelSpec& model);

// Exactly, what a rank holds of each stage that it has: of experts those of its share, which all ranks have alike. A tied
// matrix counts where the embedding is. [stage]
std::vector<ParameterCount> parameters_of_stages(const JobSpec& job);

// Roughly, of any rank: (dense + experts / M_E) / P, as if every rank of a pipeline had the same share. Source: the report
// on how Olmo is parallelized, its section on pipeline parallelism.
double rough_parameters_of_rank(const JobSpec& job);

}  // namespace penstock::plan
