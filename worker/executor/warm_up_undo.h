// Takes back what a program has done before its ValidateStep, so that it can run from its start again: every rank
// does, since all see the same gradient norm (plan/schedule/post_validation.h).
//
//     transfers under way    are waited for, and what came is not read
//     leases, boundary slots are free again
//     messages that the neighbour sent before its own ValidateStep, and for which no receive was posted yet,
//                            are received and dropped, so that the link's next message is the first of the new run
//
// Every wait ends. A rank tells the one before it of the norm before it comes here, so that what that one has still to
// do before it takes back its own is its warm-up, which needs nobody but ranks before it, and receives here, which
// stand.
#pragma once

#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "plan/schedule/lowered.h"
#include "worker/buffers/activation_pool.h"
#include "worker/buffers/boundary_slots.h"
#include "worker/executor/link_buffers.h"
#include "worker/transport/endpoint.h"

namespace penstock::worker {

// Of one incoming link: provisional messages beyond the receives that stand before the ValidateStep.
struct UnpostedMessages {
  RankIndex source;
  BoundarySlots* slots = nullptr;
  int count = 0;
};

// Of a program with ValidateStep, its incoming links. NotFound: a link that `links` does not have.
StatusOr<std::vector<UnpostedMessages>> unposted_messages(const plan::RankProgram& program,
                                                          LinkBuffers& links);

struct WarmUpState {
  std::span<ActivationLease> leases;
  std::span<TransferId> transfers;  // unset where none is under way
  LinkBuffers& links;
  Endpoint& endpoint;
};

// Errors: those of the endpoint. Allocates nothing.
Status undo_warm_up(const WarmUpState& state, std::span<const UnpostedMessages> unposted);

}  // namespace penstock::worker
