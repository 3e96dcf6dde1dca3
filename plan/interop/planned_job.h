// A job with what was planned for it, as a job file says it, and the memory that its ranks then hold.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "plan/cost/memory.h"
#include "plan/planning/planner.h"
#include "plan/spec/job_spec.h"

namespace penstock::plan {

// Schedule, stages a rank, split and the blocks that recompute are the plan's, everything else the job's. Only blocks can
// recompute; what a file of costs says of embedding or head is left out.
JobSpec planned_job(const JobSpec& job, const PlannedStep& step);

// The sections `parallel` and, where a block recomputes, `recompute` of a planned job.
std::string job_fragment(const JobSpec& planned);

// Of every rank of any job, whose programs are generated, lowered and counted. Errors: those of compute_program, lower
// and predict_job_memory.
StatusOr<std::vector<MemoryPrediction>> memory_of_job(const JobSpec& job);

// Of the rank that holds most: "rank 3: 5242880 bytes (parameters 1048576, ...)".
std::string largest_memory_text(const std::vector<MemoryPrediction>& ranks);

}  // namespace penstock::plan
