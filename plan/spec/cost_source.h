// `device: {costs: FILE}` in the text of a job file.
//
// The text is the spec on the wire and its reader opens no file. So whoever submits reads FILE, the costs of an emulated
// device, and puts them in its place:
//     costs: h100.json      becomes      costs: {file: "h100.json", latency: 0.02, stages: [{forward: 5, ...}, ...]}
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "plan/spec/job_spec.h"

namespace penstock::plan {

// Numbers as they are written: milliseconds, and bytes a second. "" where the file says nothing.
struct CostNumbers {
  struct Stage {
    std::string forward;
    std::string input_gradient;
    std::string weight_gradient;
    std::string backward;
  };
  std::vector<Stage> stages;
  std::string overlapped_pair;
  std::string latency;
  std::string bytes_per_second;
};

// The path as it is written; "" where there is none to read: no such key, or its costs stand there already.
// InvalidArgument when the text is no YAML that parse_job_spec reads.
StatusOr<std::string> cost_source(const std::string& yaml);

// The text, line for line, with the costs in place of the path. InvalidArgument when the path does not stand on one
// line, the text has none, or it would be too long a job file.
StatusOr<std::string> with_costs(const std::string& yaml, const CostNumbers& costs);

// What each item of the model takes, in model order, where the costs of the job's emulated device are by layer; empty where
// they are not.
StatusOr<std::vector<EmulatedCosts::Stage>> costs_of_layers(const JobSpec& job);

}  // namespace penstock::plan
