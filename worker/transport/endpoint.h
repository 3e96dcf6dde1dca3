// Point-to-point messages between the ranks of one group, whatever carries them. One contract, one contract
// test.
//
// Ordering: messages of one (source, target) pair arrive in the order in which both ends post them.
// Progress: a transport moves data on its own threads; posting never blocks on the peer.
// Sizes: both ends must post the same size; a mismatch is an error on both, never a crash.
// Failure: when a peer is lost or abort() is called, every pending and later wait returns Aborted with the
// reason. Thread: post and wait from the interpreter's thread; abort from any.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"

namespace penstock::worker {

// Where the ranks of a group find each other. Keys are scoped to (job, attempt, communicator) by the
// implementer.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  // Once per (rank, item). AlreadyExists otherwise.
  virtual Status publish(RankIndex rank, const std::string& item, const std::string& value) = 0;
  // Waits for it. DeadlineExceeded names the missing rank.
  virtual StatusOr<std::string> look_up(RankIndex rank, const std::string& item, Duration timeout) = 0;
};

struct Group {
  std::string name;  // "pipeline"
  RankIndex rank;    // mine
  int ranks = 0;
  std::string bind_address;  // numeric
};

struct TransferId {
  int64_t value = -1;
};

class Endpoint {
 public:
  virtual ~Endpoint() = default;

  // Zeros that peers' messages are written into without a copy in between, where the transport has such memory; null
  // where it has none, and for no bytes. Before open(). Whoever holds it may use it also after the endpoint has ended.
  // ResourceExhausted: no memory.
  virtual StatusOr<std::shared_ptr<void>> receive_memory(int64_t bytes) {
    (void)bytes;
    return nullptr;
  }

  // Connects to every other rank of the group. Call once.
  virtual Status open(const Group& group, Rendezvous& rendezvous, Duration timeout) = 0;

  // The buffer stays the transport's until wait() has returned.
  virtual StatusOr<TransferId> post_send(RankIndex target, const void* data, int64_t bytes) = 0;
  virtual StatusOr<TransferId> post_receive(RankIndex source, void* data, int64_t bytes) = 0;

  // Ends the transfer: sent (the buffer may be written again) or received. Each id is waited for once.
  virtual Status wait(TransferId id) = 0;

  // Makes every wait return Aborted. The endpoint cannot be used again.
  virtual void abort(const std::string& reason) = 0;

  // Collective end: returns when nothing of ours is under way, then closes. FailedPrecondition when transfers
  // were posted and never waited for.
  virtual Status drain() = 0;
};

}  // namespace penstock::worker
