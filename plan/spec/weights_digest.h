// One digest of a whole model's weights, whatever ranks or files hold them.
//
// XXH3-128 over, for each parameter in model order, its name, a zero byte, its dimensions as 64-bit little-endian
// numbers, and the 16 bytes of its own digest: XXH3-128 of its FP32 bytes, most significant byte first.
#pragma once

#include <span>
#include <string>

#include "base/digest/digest.h"
#include "plan/spec/job_spec.h"

namespace penstock::plan {

// Of one parameter, whose values may come in pieces.
using TensorDigest = Digest;
using TensorDigester = Digester;

// 32 hexadecimal digits. `digests`: one a parameter, in model order.
std::string weights_digest(const ModelSpec& model, std::span<const TensorDigest> digests);

}  // namespace penstock::plan
