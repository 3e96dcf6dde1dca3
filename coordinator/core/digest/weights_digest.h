// The digest of a whole model's weights from what its ranks sent.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/spec/job_spec.h"
#include "proto/codec/messages.h"

namespace penstock::coordinator {

// How many ranks hold a parameter, each with all of it.
struct ReplicaCounts {
  int of_dense = 1;
  int of_experts = 1;  // a parameter of a routed expert
};

// That of plan/spec/weights_digest.h. `digests`: [rank], of the parameters that it holds; those of a parameter must agree.
// InvalidArgument names the first parameter that is unknown, missing, sent by more or fewer ranks, or different on two.
StatusOr<std::string> combine_digests(const plan::ModelSpec& model,
                                      std::span<const std::vector<ParameterDigest>> digests,
                                      const ReplicaCounts& replicas = {});

}  // namespace penstock::coordinator
