// Both ends of every edge compare what will pass on it, before the first step: the whole program of a job
// never travels, so this is where two ranks that were told different programs find out.
#pragma once

#include "base/status.h"
#include "plan/schedule/lowered.h"
#include "worker/transport/endpoint.h"

namespace penstock::worker {

// Collective over an open endpoint, before any other message. FailedPrecondition, on both ends of the edge,
// names the link and both digests.
Status compare_link_digests(Endpoint& endpoint, const plan::RankProgram& program);

}  // namespace penstock::worker
