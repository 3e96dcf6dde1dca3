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

namespace penstock::worker {

class AllGather {
 public:
  // counts[r]: how many numbers rank r gives; every rank passes the same counts. `endpoint` outlives this.
  AllGather(Endpoint& endpoint, RankIndex rank, std::vector<int> counts)
      : endpoint_(endpoint), rank_(rank), counts_(std::move(counts)) {
    transfers_.reserve(2 * counts_.size());
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
  Status run() {
    transfers_.clear();
    for (int peer = 0; peer < ranks(); ++peer) {
      if (peer == rank_.value) continue;
      const std::span<double> theirs = part(RankIndex(peer));
      PENSTOCK_ASSIGN_OR_RETURN(
          const TransferId receive,
          endpoint_.post_receive(RankIndex(peer), theirs.data(), static_cast<int64_t>(theirs.size_bytes())));
      PENSTOCK_ASSIGN_OR_RETURN(
          const TransferId send,
          endpoint_.post_send(RankIndex(peer), mine().data(), static_cast<int64_t>(mine().size_bytes())));
      transfers_.push_back(receive);
      transfers_.push_back(send);
    }
    for (const TransferId transfer : transfers_) PENSTOCK_RETURN_IF_ERROR(endpoint_.wait(transfer));
    return ok_status();
  }

 private:
  int ranks() const { return static_cast<int>(counts_.size()); }

  Endpoint& endpoint_;
  RankIndex rank_;
  std::vector<int> counts_;
  std::vector<int> offsets_;
  std::vector<double> values_;
  std::vector<TransferId> transfers_;
};

}  // namespace penstock::worker
