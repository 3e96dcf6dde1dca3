// Runs a search as a user would and checks what every answer must be, by means other than the search's own.
#pragma once

#include <string>
#include <vector>

#include "plan/generation/generate.h"
#include "plan/simulation/simulate.h"

namespace penstock::plan::testing {

inline GenerationRequest request_for(const std::string& name, int ranks, int microbatches,
                                     const StageCosts& costs, int64_t limit,
                                     const MemoryDeltas& deltas = {}) {
  GenerationRequest request;
  request.schedule.name = name;
  request.schedule.ranks = ranks;
  request.schedule.microbatches = microbatches;
  request.costs = uniform_costs(name == "v-auto" ? 2 * ranks : ranks, costs);
  request.memory.deltas = {deltas};
  request.memory.limits = {limit};
  return request;
}

int64_t memory_of(ActionKind kind, const MemoryDeltas& deltas);

// Most memory in use on each rank of a program, counted action by action. One entry of deltas is for all
// stages.
std::vector<int64_t> peaks_of(const ComputeProgram& program, const std::vector<MemoryDeltas>& deltas);

// The answer, which is valid, accumulates in microbatch order, keeps its limits, and takes the time that it
// says; a test fails otherwise.
SearchReport checked(const GenerationRequest& request);

}  // namespace penstock::plan::testing
