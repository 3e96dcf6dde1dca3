// Whether a job whose attempt has failed gets another one, and when.
#pragma once

#include <string>

#include "base/clock.h"
#include "coordinator/core/views.h"
#include "plan/spec/job_spec.h"

namespace penstock::coordinator {

struct RestartVerdict {
  bool restarts = false;
  Duration delay{};  // before it is placed again: doubles with every barren attempt, up to 30 s
  ExitCode exit_code = ExitCode::Failed;  // of a job that does not
  std::string why{};  // what the reason of its end adds; "" where it was not to restart at all
};

// `restarts` it has had; `barren_attempts`, this one included, brought no new checkpoint, behind one another. A job that
// makes no progress ends with an exit code of its own: to submit it again would help nobody.
RestartVerdict judge_restart(const plan::RestartSpec& spec, int64_t restarts, int64_t barren_attempts);

}  // namespace penstock::coordinator
