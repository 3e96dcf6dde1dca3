// The links of an emulated device: real messages of at most 4 KiB over the ranks' endpoint, that arrive when tensors
// of the job's size would have.
//
// The model is plan/simulation's. A transfer starts when it is sent and its receive is posted; it holds its link, after
// the transfers before it, for `occupancy`, leaves it then, and has come `latency` later:
//     left[n]    = max(left[n-1], sent[n], posted[n]) + occupancy
//     arrived[n] = left[n] + latency
// Each end keeps the recursion of its own times, left as far as sends go and left as far as posts go; the larger of
// the two is left[n], since occupancy is the same for all. A message carries the sender's, as time of CLOCK_MONOTONIC:
// all ranks are on one host. The device is busy with other things meanwhile; a wait sleeps until the arrival.
// A send slot is free when the message has left as far as the sender knows, and has really gone.
//
// Errors: those of the carrier; DataLoss when what came was not sent by such a link. Thread: the interpreter's;
// abort from any.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "worker/emulation/device.h"
#include "worker/transport/endpoint.h"

namespace penstock::worker {

struct EmulatedLinkOptions {
  int ranks = 1;
  Duration latency{};
  Duration occupancy{};
};

class EmulatedLinks final : public Endpoint {
 public:
  // Of a real message.
  static constexpr int64_t kLeastBytes = sizeof(int64_t);
  static constexpr int64_t kMostBytes = 4096;

  // `carrier` is open; both outlive it.
  EmulatedLinks(Endpoint& carrier, EmulatedDevice& device, const EmulatedLinkOptions& options);

  // FailedPrecondition: the carrier is open already, and ended by its owner.
  Status open(const Group& group, Rendezvous& rendezvous, Duration timeout) override;
  Status drain() override;
  // `data` is not read: what is sent is the link's own, as many bytes.
  StatusOr<TransferId> post_send(RankIndex target, const void* data, int64_t bytes) override;
  StatusOr<TransferId> post_receive(RankIndex source, void* data, int64_t bytes) override;
  Status wait(TransferId id) override;
  void abort(const std::string& reason) override { carrier_.abort(reason); }

 private:
  struct Transfer {
    bool is_receive = false;
    bool in_use = false;
    TransferId carried;
    TimePoint left;                 // as far as this end knows
    const void* message = nullptr;  // begins with the sender's `left`
    std::vector<char> sent;         // the message of a send
  };

  int64_t take();
  void give_back(int64_t id);
  Status check(RankIndex peer, int64_t bytes) const;
  TimePoint pass(TimePoint& link_free_since);
  StatusOr<TransferId> keep(int64_t id, const StatusOr<TransferId>& carried);
  Status end_receive(const Transfer& transfer);
  void end_send(const Transfer& transfer, TimePoint began);

  Endpoint& carrier_;
  EmulatedDevice& device_;
  EmulatedLinkOptions options_;
  std::vector<TimePoint> out_free_since_;  // [target], as far as sends go
  std::vector<TimePoint> in_free_since_;   // [source], as far as posts go
  std::deque<Transfer> transfers_;         // reused; as many as are under way at once
  std::vector<int64_t> free_;
};

}  // namespace penstock::worker
