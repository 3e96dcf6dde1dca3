// Words for tests of jobs that go on from checkpoints.
#pragma once

#include <string>

#include "coordinator/core/testing/world.h"

namespace penstock::coordinator::testing {

inline const JobShape kKept = {.steps = 9,
                               .extra = "checkpoint: {every: 2}\nrestart: {max: 3, no_progress_limit: 2}\n"};
// Begins with another job's.
inline const JobShape kGoesOn = {
    .steps = 9,
    .extra =
        "checkpoint: {every: 2}\nrestart: {max: 3, from: {path: /other/step-000000004, step: 4, samples: 16}}\n"};

// Kills the executor of a rank and lets the others be stopped.
inline void lose_attempt(World& world, const std::string& name) {
  world.kill_rank(name, 1, 3);
  world.all_stopped(name);
}

}  // namespace penstock::coordinator::testing
