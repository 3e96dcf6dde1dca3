// Traces of stages, microbatch by microbatch, as published ones are shaped, and what they were found to say as JSON.
//
//   {"traces": {"NAME": {"meta": {"pp_size": 4, "dp_size": 2},
//                        "raw_ms": {"dp0_stage0_F": {"23": [67.6, 67.1, ...], ...}, "dp0_stage0_B": ..., ...}}}}
// or the inner object alone. The keys of raw_ms name replica, stage and direction, below them stand steps with a list of
// microbatches each; every stage has every replica, and every forward its backward. Where ranks hold several stages,
// "stage_ranks": [0, 1, 1, 0] beside raw_ms names the rank of each; without it every stage has a rank of its own.
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

// {"verdict": "imbalance", "where": {"stage": 3}, "factor", "gain", "because", "advice", "workers"?, "also": [{"verdict", ...}],
// "notes": [], "evidence": {...}}: what else was found is told under "also". Of several traces {"traces": {NAME: that}}.
std::string diagnoses_to_json(const std::vector<std::pair<std::string, Diagnosis>>& diagnoses);

}  // namespace penstock::plan
