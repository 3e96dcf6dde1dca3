// `restart: {from: CHECKPOINT}` in the text of a job file: a job that goes on with another one's training.
//
// CHECKPOINT is the folder of a checkpoint, a directory of them, or the name of a job. The text is the spec on the wire
// and its reader opens no file. So whoever submits finds the checkpoint and puts what it is into the text, in the same
// line:
//     from: quickstart     becomes     from: {path: "/state/.../step-000000050", step: 50, samples: 1600}
// To begin at step 0 with the weights of a folder alone is `model: {from: DIR}` (model_source.h).
#pragma once

#include <string>

#include "base/status.h"
#include "plan/spec/job_spec.h"

namespace penstock::plan {

// What is written there; "" where there is nothing to find: no such key, or it was found already. InvalidArgument when
// the text is no YAML that parse_job_spec reads.
StatusOr<std::string> restart_source(const std::string& yaml);

// The text, line for line, with what was found in place of it. `start.path` is absolute. InvalidArgument when it does not
// stand on one line, or the text has none.
StatusOr<std::string> with_restart_source(const std::string& yaml, const StartSpec& start);

}  // namespace penstock::plan
