#include "coordinator/core/broker/broker.h"

namespace penstock::coordinator {
namespace {

std::string describe(const CommunicatorKey& key) {
  return fmt::format("job {} attempt {}: {} of rank {} in communicator {}", key.attempt.job,
                     key.attempt.attempt, key.item, key.rank.value, key.communicator);
}

Status check_names(const CommunicatorKey& key, const Options& options) {
  if (key.communicator.empty() || key.communicator.size() > options.broker_item_bytes) {
    return invalid_argument("broker: communicator: expected a name of 1 to {} bytes, found {}",
                            options.broker_item_bytes, key.communicator.size());
  }
  if (key.item.empty() || key.item.size() > options.broker_item_bytes) {
    return invalid_argument("broker: item: expected a name of 1 to {} bytes, found {}",
                            options.broker_item_bytes, key.item.size());
  }
  return ok_status();
}

}  // namespace

Broker::Place Broker::place_of(const CommunicatorKey& key) {
  return {key.communicator, key.rank, key.item};
}

Broker::Published Broker::publish(const CommunicatorKey& key, std::string value, const Options& options) {
  if (Status status = check_names(key, options); !status.ok()) return {status, {}};
  if (value.size() > options.broker_value_bytes) {
    return {invalid_argument("{}: expected at most {} bytes, found {}", describe(key),
                             options.broker_value_bytes, value.size()),
            {}};
  }
  Board& board = boards_[{key.attempt.job, key.attempt.attempt}];
  const Place place = place_of(key);
  if (board.values.contains(place)) return {already_exists("{} was published before", describe(key)), {}};
  const size_t bytes = value.size() + key.item.size() + key.communicator.size() + sizeof(Place);
  if (board.bytes + bytes > options.broker_bytes_per_attempt) {
    return {resource_exhausted("{}: the attempt has published {} bytes of at most {}", describe(key),
                               board.bytes, options.broker_bytes_per_attempt),
            {}};
  }
  Published published;
  if (auto waiting = board.waiting.extract(place)) {
    for (ReplyId reply : waiting.mapped()) {
      published.answers.push_back({reply, value});
      auto pending = pending_.find(reply);
      by_deadline_.erase({pending->second.deadline, reply});
      pending_.erase(pending);
    }
  }
  board.bytes += bytes;
  board.values.emplace(place, std::move(value));
  return published;
}

std::vector<Broker::Answer> Broker::look_up(ReplyId reply, const CommunicatorKey& key, TimePoint deadline,
                                            const Options& options) {
  if (Status status = check_names(key, options); !status.ok()) return {{reply, status}};
  Board& board = boards_[{key.attempt.job, key.attempt.attempt}];
  const Place place = place_of(key);
  if (auto found = board.values.find(place); found != board.values.end()) return {{reply, found->second}};
  if (pending_.size() >= options.look_ups_pending) {
    return {{reply, resource_exhausted("{}: {} look-ups wait already", describe(key), pending_.size())}};
  }
  board.waiting[place].insert(reply);
  pending_.emplace(reply, Pending{key, deadline});
  by_deadline_.insert({deadline, reply});
  return {};
}

std::vector<Broker::Answer> Broker::abandon(ReplyId reply) {
  if (!pending_.contains(reply)) return {};
  forget(reply);
  return {{reply, cancelled("the look-up was abandoned")}};
}

std::vector<Broker::Overdue> Broker::take_overdue(TimePoint time) {
  std::vector<Overdue> overdue;
  while (!by_deadline_.empty() && by_deadline_.begin()->first <= time) {
    const ReplyId reply = by_deadline_.begin()->second;
    overdue.push_back({reply, pending_.at(reply).key});
    forget(reply);
  }
  return overdue;
}

std::vector<Broker::Answer> Broker::end_attempt(const std::string& job, int64_t attempt,
                                                const std::string& reason) {
  std::vector<Answer> answers;
  auto found = boards_.find({job, attempt});
  if (found == boards_.end()) return answers;
  for (const auto& [place, replies] : found->second.waiting) {
    for (ReplyId reply : replies) {
      answers.push_back({reply, aborted("job {} attempt {} has ended: {}", job, attempt, reason)});
      auto pending = pending_.find(reply);
      by_deadline_.erase({pending->second.deadline, reply});
      pending_.erase(pending);
    }
  }
  boards_.erase(found);
  return answers;
}

size_t Broker::bytes_of(const std::string& job, int64_t attempt) const {
  auto found = boards_.find({job, attempt});
  return found == boards_.end() ? 0 : found->second.bytes;
}

void Broker::forget(ReplyId reply) {
  auto pending = pending_.find(reply);
  const CommunicatorKey& key = pending->second.key;
  Board& board = boards_[{key.attempt.job, key.attempt.attempt}];
  auto waiting = board.waiting.find(place_of(key));
  waiting->second.erase(reply);
  if (waiting->second.empty()) board.waiting.erase(waiting);
  by_deadline_.erase({pending->second.deadline, reply});
  pending_.erase(pending);
}

}  // namespace penstock::coordinator
