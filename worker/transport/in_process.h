// Ranks that are threads of one process: a rendezvous in memory, and an endpoint that copies.
//
// The simplest transport that keeps the contract of Endpoint: what an interpreter is tested over, and what
// shows that the contract asks for nothing that only a network can give. Thread: any number of ranks, each on
// its own thread.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "worker/transport/endpoint.h"

namespace penstock::worker {

class InProcessRendezvous final : public Rendezvous {
 public:
  Status publish(RankIndex rank, const std::string& item, const std::string& value) override;
  StatusOr<std::string> look_up(RankIndex rank, const std::string& item, Duration timeout) override;

 private:
  std::mutex mutex_;
  std::condition_variable published_;
  std::map<std::pair<RankIndex, std::string>, std::string> values_;
};

// Where the endpoints of one group meet. Endpoints keep it alive.
class InProcessHub;
std::shared_ptr<InProcessHub> make_in_process_hub();
std::unique_ptr<Endpoint> make_in_process_endpoint(std::shared_ptr<InProcessHub> hub);

}  // namespace penstock::worker
