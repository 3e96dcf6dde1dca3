// The digest of a whole model's weights from what its ranks sent.
#pragma once

#include <span>
#include <string>

#include "base/status.h"
#include "plan/spec/job_spec.h"
#include "proto/codec/messages.h"

namespace penstock::coordinator {

// That of plan/spec/weights_digest.h. InvalidArgument names the first parameter that is missing, given twice or
// unknown.
StatusOr<std::string> combine_digests(const plan::ModelSpec& model, std::span<const ParameterDigest> digests);

}  // namespace penstock::coordinator
