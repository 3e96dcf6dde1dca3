// Traces of stages, microbatch by microbatch, as published ones are shaped, and what they were found to say as JSON.
//
//   {"traces": {"NAME": {"meta": {"pp_size": 4, "dp_size": 2},
//                        "raw_ms": {"dp0_stage0_F": {"23": [67.6, 67.1, ...], ...}, "dp0_stage0_B": ..., ...}}}}
// or the inner object alone. The keys of raw_ms name replica, stage and direction, below them stand steps with a list of
// microbatches each; every stage has every replica, and every forward its backward.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "plan/diagnosis/diagnose.h"

namespace penstock::plan {

using NamedTraces = std::vector<std::pair<std::string, StageTrace>>;  // at least one

// InvalidArgument: "PATH: traces.ST.raw_ms.dp0_stage0_F: ...".
StatusOr<NamedTraces> stage_traces_from_json(const std::string& text, const std::string& path);

// {"verdict": "imbalance", "where": {"stage": 3}, "evidence": {...}, "because", "advice", "note"?}; of several traces
// {"traces": {NAME: that}}.
std::string diagnoses_to_json(const std::vector<std::pair<std::string, Diagnosis>>& diagnoses);

}  // namespace penstock::plan
