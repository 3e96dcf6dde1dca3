// Gives every rank's numbers to every rank, over point-to-point messages, in a fixed shape that is known
// beforehand.
//
// Values are copied, never added: what is summed, and in which order, is the caller's.
// Errors: those of the endpoint. Thread: the interpreter's. Nothing is allocated after construction.
#pragma once

#include <span>
#include <vector>

#include "base/check.h"
#include "base/ids.h"
#include "base/status.h"
#include "worker/transport/endpoint.h"
#include "worker/transport/pending_transfers.h"

namespace penstock::worker {

class AllGather {
 public:
  // counts[r]: how many numbers rank r gives; every rank passes the same counts. `endpoint` outlives this.
  AllGather(Endpoint& endpoint, RankIndex rank, std::vector<int> counts)
      : rank_(rank),
        counts_(std::move(counts)),
        transfers_(endpoint, 2 * static_cast<int64_t>(counts_.size())) {
    offsets_.reserve(counts_.size());
    int total = 0;
    for (const int count : counts_) {
      offsets_.push_back(total);
      total += count;
    }
    values_.resize(total);
  }

  // This rank's part of values(), to be written before run().
  std::span<double> mine() { return part(rank_); }
  std::span<double> part(RankIndex rank) {
    PENSTOCK_CHECK(rank.value >= 0 && rank.value < ranks(), "rank {} of {}", rank.value, ranks());
    return std::span(values_).subspan(offsets_[rank.value], counts_[rank.value]);
  }

  // Fills every other rank's part. Every rank of the group calls it, at the same place among its messages.
  // After an error the endpoint is aborted, and nothing writes here any more.
  Status run() {
    const Status posted = post();
    return posted.ok() ? transfers_.wait() : transfers_.give_up(posted);
  }

 private:
  Status post() {
    for (int peer = 0; peer < ranks(); ++peer) {
      if (peer == rank_.value) continue;
      const RankIndex other(peer);
      const std::span<double> theirs = part(other);
      PENSTOCK_RETURN_IF_ERROR(
          transfers_.post_receive(other, theirs.data(), static_cast<int64_t>(theirs.size_bytes())));
      PENSTOCK_RETURN_IF_ERROR(
          transfers_.post_send(other, mine().data(), static_cast<int64_t>(mine().size_bytes())));
    }
    return ok_status();
  }

  int ranks() const { return static_cast<int>(counts_.size()); }

  RankIndex rank_;
  std::vector<int> counts_;
  std::vector<int> offsets_;
  std::vector<double> values_;
  PendingTransfers transfers_;  // into values_: ends before it
};

}  // namespace penstock::worker
