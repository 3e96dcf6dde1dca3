// Brings rows of tokens to the ranks of their experts, and what the experts made of them back.
//
// N ranks share E experts out, rank e has experts [e E/N, (e + 1) E/N). A rank's own rows stand expert after expert
// (kernels/ops/routing.h), so that those for one rank are neighbours and leave from where they stand:
//
//     exchange_counts   every rank tells every other how many rows it has for each of that one's experts: small messages
//                       of a fixed size, so that nobody has to guess what comes
//     forth             own rows -> arrived rows: source after source, each one's expert after expert
//     back              arrived rows -> own rows, the same way
//
// For every tensor there is one message a peer and direction, none where there are no rows; the rank's own are copied.
// post_forth and post_back do not wait: work may stand between them and wait(). Their tensors belong to the exchange until
// then. plan_arrivals gives the arrived rows the order (expert, source, token) in which the experts take them.
//
// Order: the same calls at the same place among the messages of all ranks of the group; of two exchanges over one
// endpoint as well. Errors: those of the endpoint; DataLoss for counts that no rank can have, naming it. Afterwards nothing
// is under way. Memory: all tensors are the caller's and do not grow. Thread: the interpreter's.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "kernels/ops/routing.h"
#include "kernels/tensor/tensor.h"
#include "worker/collectives/group_member.h"
#include "worker/collectives/wait_meter.h"
#include "worker/transport/pending_transfers.h"

namespace penstock::worker {

// What one rank may have for another at most.
struct RowLimits {
  int64_t for_expert = 0;  // for one of its experts
  int64_t for_rank = 0;    // for all of them
};

// Where the rows of one exchange go.
struct RowRoute {
  kernels::TensorView offsets;  // [E + 1]   i32  own rows of expert e: offsets[e] to offsets[e + 1] - 1
  kernels::TensorView counts;   // [N, E/N]  i32  rows that rank n has for each of this rank's experts
  // Before the group is connected: rows for other ranks' experts go nowhere, and none come.
  bool alone = false;
};

class RowExchange {
 public:
  // `group` and `waits` outlive it; the group is connected before the first exchange that is not alone. `waits`: is told
  // how long wait() and exchange_counts() waited, unless it is null.
  RowExchange(const GroupMember& group, int64_t experts, const RowLimits& limits, WaitMeter* waits = nullptr);

  // Fills route.counts.
  Status exchange_counts(const RowRoute& route);
  // own, arrived: [rows, ...] of one type, tensors of the same rows one after another.
  Status post_forth(const RowRoute& route, kernels::TensorView own, kernels::TensorView arrived);
  Status post_back(const RowRoute& route, kernels::TensorView arrived, kernels::TensorView own);
  // Ends everything that was posted.
  Status wait();
  // The same at once, for `reason`, and the endpoint with it.
  void give_up(const Status& reason);

 private:
  struct Segment {
    void* data = nullptr;
    int64_t bytes = 0;
  };
  Status check(int rank, const int32_t* counts) const;
  Segment own_segment(const RowRoute& route, kernels::TensorView own, int rank) const;
  Segment arrived_segment(const RowRoute& route, kernels::TensorView arrived, int rank) const;
  Status post(const RowRoute& route, int peer, const Segment& sent, const Segment& received);
  PendingTransfers& pending();

  const GroupMember* group_;
  int64_t local_experts_;
  RowLimits limits_;
  WaitMeter* waits_;
  std::vector<int32_t> own_counts_;  // [E]
  std::optional<PendingTransfers> pending_;
};

// Of all ranks' rows for this rank's experts.
int64_t arrived_rows(kernels::TensorView counts);
// The dispatch of arrived rows, one choice each: gather_rows puts them in the order (expert, source, token), combine_rows
// brings them back. `room`: row [at least arrived_rows, 1], source, offsets [E/N + 1]; the result's row is as long as
// there are arrived rows.
kernels::Dispatch plan_arrivals(kernels::TensorView counts, const kernels::Dispatch& room);

}  // namespace penstock::worker
