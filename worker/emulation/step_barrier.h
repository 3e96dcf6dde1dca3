// Every rank leaves it after every rank has come, in log2(ranks) rounds of one message a rank: the dissemination
// barrier of Hensgen, Finkel and Manber (1988). In round k a rank tells the one 2^k after it, and hears of the one
// 2^k before it.
//
// Errors: those of the endpoint. Thread: the interpreter's. Nothing is allocated after construction.
#pragma once

#include <array>
#include <cstdint>

#include "base/ids.h"
#include "base/status.h"
#include "worker/transport/endpoint.h"
#include "worker/transport/pending_transfers.h"

namespace penstock::worker {

class StepBarrier {
 public:
  // `endpoint` outlives it.
  StepBarrier(Endpoint& endpoint, RankIndex rank, int ranks)
      : rank_(rank.value), ranks_(ranks), transfers_(endpoint, 2) {}

  // Collective, at the same place among the messages of all ranks.
  Status meet() {
    for (int64_t distance = 1; distance < ranks_; distance *= 2) {
      const Status posted = post(distance);
      if (!posted.ok()) return transfers_.give_up(posted);
      PENSTOCK_RETURN_IF_ERROR(transfers_.wait());
    }
    return ok_status();
  }

 private:
  Status post(int64_t distance) {
    const RankIndex after((rank_ + distance) % ranks_), before((rank_ - distance + ranks_) % ranks_);
    PENSTOCK_RETURN_IF_ERROR(transfers_.post_receive(before, heard_.data(), sizeof(heard_)));
    return transfers_.post_send(after, told_.data(), sizeof(told_));
  }

  int64_t rank_;
  int64_t ranks_;
  std::array<char, 8> told_{};
  std::array<char, 8> heard_{};
  PendingTransfers transfers_;  // into heard_: ends before it
};

}  // namespace penstock::worker
