// The jobs of a simulation: what its clients submit, and what its planner answers on their splits.
#pragma once

#include <memory>
#include <string>

#include "coordinator/core/assignment/assignment.h"
#include "coordinator/core/jobs/rebalancing.h"
#include "coordinator/core/testing/simulation/scene.h"
#include "plan/spec/job_spec.h"

namespace penstock::coordinator::testing {

using Spec = std::shared_ptr<const plan::JobSpec>;

// Of any kind (with checkpoints, rebalanced, begun with another job's checkpoint of step 2, ...), cut into up to six ranks.
Spec any_job(Scene& scene);
// The same job in any cut. Null when its file is none that any_job() makes: its layers have moved.
Spec cut_anew(const plan::JobSpec& spec, Scene& scene);

// Whatever a planner may say; a split that it moves to is valid, new, and none that was undone.
SplitAnswer any_answer(const SplitQuestion& question, Scene& scene);

// Each text is parsed, and each job planned, once.
const Spec& parsed(const std::string& yaml);
const std::shared_ptr<const AttemptPlan>& plan_of(const plan::JobSpec& spec);

}  // namespace penstock::coordinator::testing
