// Gloo's key-value store on top of a Rendezvous: how the ranks of one context find each other.
//
// Gloo's keys "rank_N" and "N" become items "host" and "address" of rank N. get() blocks, because Gloo calls
// it without waiting first. Errors leave as RendezvousError, which carries the Status through Gloo's code.
// Thread: the one that connects.
#pragma once

#include <gloo/rendezvous/store.h>

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "worker/transport/endpoint.h"

namespace penstock::worker {

struct RendezvousError : std::runtime_error {
  explicit RendezvousError(Status s) : std::runtime_error(s.ToString()), status(std::move(s)) {}
  Status status;
};

class RendezvousStore final : public ::gloo::rendezvous::Store {
 public:
  // Every look-up ends at `deadline`.
  RendezvousStore(Rendezvous& rendezvous, TimePoint deadline)
      : rendezvous_(rendezvous), deadline_(deadline) {}

  void set(const std::string& key, const std::vector<char>& data) override;
  std::vector<char> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

 private:
  const std::string& look_up(const std::string& key);

  Rendezvous& rendezvous_;
  TimePoint deadline_;
  std::map<std::string, std::string> known_;
  size_t address_bytes_ = 0;  // of my own address list; the peers' have the same size
};

}  // namespace penstock::worker
