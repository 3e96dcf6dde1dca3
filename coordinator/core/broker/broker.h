// The board of communicator ids: values that ranks of one attempt publish for each other.
//
// A key is published once. A look-up of a missing key waits until it is published, its deadline passes, or
// the attempt ends. The publisher is (rank, item) of the key; who asks does not matter here: the core has
// checked that both belong to the live attempt.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "coordinator/core/event.h"
#include "coordinator/core/options.h"

namespace penstock::coordinator {

class Broker {
 public:
  struct Answer {
    ReplyId reply = 0;
    StatusOr<std::string> value;
  };
  struct Published {
    Status status;                  // AlreadyExists, ResourceExhausted, InvalidArgument
    std::vector<Answer> answers{};  // look-ups that this publication ends
  };

  Published publish(const CommunicatorKey& key, std::string value, const Options& options);

  // Answers at once, or keeps the look-up: then the result is empty.
  std::vector<Answer> look_up(ReplyId reply, const CommunicatorKey& key, TimePoint deadline,
                              const Options& options);

  // Cancelled; nothing when it was answered before.
  std::vector<Answer> abandon(ReplyId reply);

  struct Overdue {
    ReplyId reply = 0;
    CommunicatorKey key{};
  };
  std::vector<Overdue> take_overdue(TimePoint time);

  // Drops the attempt's values and ends its look-ups with Aborted.
  std::vector<Answer> end_attempt(const std::string& job, int64_t attempt, const std::string& reason);

  size_t attempts() const { return boards_.size(); }
  size_t pending() const { return pending_.size(); }
  size_t bytes_of(const std::string& job, int64_t attempt) const;

 private:
  using Place = std::tuple<std::string, RankIndex, std::string>;  // communicator, rank, item
  struct Pending {
    CommunicatorKey key{};
    TimePoint deadline{};
  };
  struct Board {
    std::map<Place, std::string> values{};
    std::map<Place, std::set<ReplyId>> waiting{};
    size_t bytes = 0;
  };

  static Place place_of(const CommunicatorKey& key);
  void forget(ReplyId reply);

  std::map<std::pair<std::string, int64_t>, Board> boards_{};
  std::map<ReplyId, Pending> pending_{};
  std::set<std::pair<TimePoint, ReplyId>> by_deadline_;
};

}  // namespace penstock::coordinator
