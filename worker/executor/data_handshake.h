// The ranks that read data compare it before the first step: inputs and targets come from two hosts' copies
// of the files, and nothing else would tell that these differ.
#pragma once

#include "base/status.h"
#include "worker/data/data_digest.h"
#include "worker/executor/group_endpoints.h"

namespace penstock::worker {

// Collective over the group, which is open, between the other messages of all ranks. `mine`: null on a rank that
// reads none. FailedPrecondition on a rank that finds its data to differ from another's: names both, the file
// and the sizes.
Status compare_data(const JoinedGroup& group, const DataFingerprint* mine);

}  // namespace penstock::worker
