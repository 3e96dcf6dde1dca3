// That a rank holds what plan/cost says it will, kind by kind and to the byte. Tests only.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "plan/cost/memory.h"
#include "plan/spec/job_spec.h"
#include "proto/codec/messages.h"
#include "worker/executor/testing/fake_daemon.h"

namespace penstock::worker {

inline void expect_predicted_memory(const std::vector<ExecutorAssignment>& assignments,
                                    const std::vector<ExecutorOutcome>& outcomes) {
  using Kinds = std::vector<std::pair<std::string, int64_t>>;
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (outcomes[rank].steps.empty()) continue;
    const Assignment& assignment = assignments[rank].assignment;
    plan::JobSpec job = plan::parse_job_spec(assignment.spec_yaml).value();
    if (assignment.checkpoints.directory.empty()) job.checkpoint.every = 0;  // nobody copies anything
    const plan::MemoryOf of{.place = plan::place_of_rank(job.parallel, assignment.rank),
                            .validation = assignment.validation ? &*assignment.validation : nullptr};
    const Kinds predicted =
        plan::predict_memory(job, assignment.split, assignment.program, of).value().by_kind();
    Kinds held;
    for (const MemoryKind& kind : outcomes[rank].steps.back().memory)
      held.emplace_back(kind.kind, kind.bytes_peak);
    EXPECT_EQ(held, predicted) << "rank " << rank;
  }
}

}  // namespace penstock::worker
