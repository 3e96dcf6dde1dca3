#include "worker/agent/outbox.h"

namespace penstock::worker {

void Outbox::push(v1::WorkerMessage message) {
  if (message.has_log_batch()) {
    v1::LogBatch& batch = *message.mutable_log_batch();
    const auto key = std::pair(batch.attempt().job(), batch.rank());
    if (logs_ >= kMostLogs) {
      if (dropped_lines_.size() >= kMostLogs) dropped_lines_.clear();
      dropped_lines_[key] += batch.lines_size() + batch.dropped();
      return;
    }
    if (const auto dropped = dropped_lines_.find(key); dropped != dropped_lines_.end()) {
      batch.set_dropped(batch.dropped() + dropped->second);
      dropped_lines_.erase(dropped);
    }
    ++logs_;
  }
  messages_.push_back(std::move(message));
  bound();
}

void Outbox::put_back(std::vector<v1::WorkerMessage> unsent) {
  for (auto message = unsent.rbegin(); message != unsent.rend(); ++message) {
    if (message->has_heartbeat() || message->has_register_()) continue;
    logs_ += message->has_log_batch() ? 1 : 0;
    messages_.push_front(std::move(*message));
  }
  bound();
}

void Outbox::pop() {
  if (messages_.front().has_log_batch()) --logs_;
  messages_.pop_front();
}

void Outbox::bound() {
  while (messages_.size() > kMostReports) {
    if (!messages_.front().has_log_batch()) ++lost_;
    pop();
  }
}

}  // namespace penstock::worker
