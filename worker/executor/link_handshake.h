// Both ends of every edge compare what will pass on it, and ranks of several pipelines with the same stages what they will
// run, before the first step: the whole program of a job never travels, so this is where ranks that were told different
// programs find out.
#pragma once

#include "base/status.h"
#include "plan/schedule/lowered.h"
#include "worker/executor/group_endpoints.h"
#include "worker/transport/endpoint.h"

namespace penstock::worker {

// Collective over an open endpoint, before any other message. FailedPrecondition, on both ends of the edge,
// names the link and both digests.
Status compare_link_digests(Endpoint& endpoint, const plan::RankProgram& program);

// Collective over the group, which is open. FailedPrecondition on every rank names the first two that differ.
Status compare_work(const JoinedGroup& group, const plan::RankProgram& program);

}  // namespace penstock::worker
