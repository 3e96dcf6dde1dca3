// One digest of a whole model's weights, whatever ranks held them: of (name, shape, digest) in model order.
#pragma once

#include <span>
#include <string>

#include "base/status.h"
#include "plan/spec/job_spec.h"
#include "proto/codec/messages.h"

namespace penstock::coordinator {

// 32 hexadecimal digits: XXH3-128 over, for each parameter in model order, its name, a zero byte, its
// dimensions as 64-bit little-endian numbers, and the 16 bytes of its digest. InvalidArgument names the first
// parameter that is missing, given twice or unknown.
StatusOr<std::string> combine_digests(const plan::ModelSpec& model, std::span<const ParameterDigest> digests);

}  // namespace penstock::coordinator
