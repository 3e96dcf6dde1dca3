// The digest of a whole model's weights from what its ranks sent.
#pragma once

#include <span>
#include <string>

#include "base/status.h"
#include "plan/spec/job_spec.h"
#include "proto/codec/messages.h"

namespace penstock::coordinator {

// That of plan/spec/weights_digest.h. `replicas`: ranks that hold each parameter; all of them send its digest.
// InvalidArgument names the first parameter that is unknown, missing, sent by more or fewer ranks, or different on two.
StatusOr<std::string> combine_digests(const plan::ModelSpec& model, std::span<const ParameterDigest> digests,
                                      int replicas = 1);

}  // namespace penstock::coordinator
