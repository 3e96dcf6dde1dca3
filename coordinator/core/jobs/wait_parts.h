// What a rank waited for tensors of other ranks in a traced step, in two: as long as their producers were still at work
// (a dependency: another split or schedule would change it), and as long as they were under way after that (a transfer).
//
// Only traces can tell. To a receiver a message that is not there yet is one and the same, whether its sender computes or the
// link is slow: what a transport sees first, the announcement on Gloo's control channel or the put of a one-sided one,
// comes when the sender has posted, and a posted message of a large tensor is announced long before it is there. A trace has
// the end of the producer's action on the clock that all ranks of a host share, right after which the interpreter posts the
// message. Between hosts it is as exact as their wall clocks agree.
// Not in either part: what a rank waits for in sums over ranks, norms and sends. Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/spec/job_spec.h"
#include "proto/codec/messages.h"

namespace penstock::coordinator {

struct WaitParts {
  int64_t dependency_ns = 0;
  int64_t transfer_ns = 0;

  bool operator==(const WaitParts&) const = default;
};

// [rank] of `ranks`, the traces of all ranks of one step. A wait whose producer no trace has is in neither part. Empty where the
// clocks of two hosts are further apart than a trace is long.
std::vector<WaitParts> wait_parts(const std::vector<StepTrace>& ranks, const plan::ParallelSpec& parallel,
                                  int stages);

}  // namespace penstock::coordinator
