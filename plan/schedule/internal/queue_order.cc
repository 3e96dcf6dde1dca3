#include "plan/schedule/internal/queue_order.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

namespace penstock::plan::internal {
namespace {

constexpr int64_t kNotYet = -1;

int64_t length_of(const Work& work) {
  return work.kind == ActionKind::Backward ? 2 : 1;
}

int64_t length_of(const Action& action) {
  return length_of(action.work) + (action.overlapped ? length_of(*action.overlapped) : 0);
}

// Ends of all actions and messages; a message's is that of its producer.
class UnitTimes {
 public:
  UnitTimes(const ComputeProgram& program, const MessagePlan& plan)
      : program_(program), plan_(plan), ends_(program.ranks) {
    for (const PlannedLink& link : plan.links()) sent_.emplace_back(link.messages.size(), kNotYet);
    for (int rank = 0; rank < program.ranks; ++rank) {
      ends_[rank].reserve(program.actions[rank].size());
      ready_.push_back(rank);
    }
  }

  Status run() {
    while (!ready_.empty()) {
      const int rank = ready_.front();
      ready_.pop_front();
      while (ends_[rank].size() < program_.actions[rank].size() && advance(rank)) {
      }
    }
    for (int rank = 0; rank < program_.ranks; ++rank) {
      if (ends_[rank].size() == program_.actions[rank].size()) continue;
      return internal_error("lowering a program that was not verified: rank {} stops before {}", rank,
                            to_string(program_.actions[rank][ends_[rank].size()]));
    }
    return ok_status();
  }

  int64_t end_of_action(int rank, size_t position) const { return ends_[rank][position]; }
  int64_t end_of_producer(int link, size_t message) const { return sent_[link][message]; }

 private:
  // When the tensor that `work` reads was made. On the same rank that is before anything that can follow.
  int64_t input_of(const Work& work) const {
    const auto passage = incoming(work, program_.stages());
    if (!passage) return 0;
    const Delivery delivery = plan_.delivery(*passage);
    return delivery.link < 0 ? 0 : sent_[delivery.link][delivery.message];
  }

  bool advance(int rank) {
    const Action& action = program_.actions[rank][ends_[rank].size()];
    const int64_t first = input_of(action.work);
    const int64_t second = action.overlapped ? input_of(*action.overlapped) : 0;
    if (first == kNotYet || second == kNotYet) return false;
    const int64_t free_since = ends_[rank].empty() ? 0 : ends_[rank].back();
    ends_[rank].push_back(std::max({free_since, first, second}) + length_of(action));
    send(action.work, ends_[rank].back());
    if (action.overlapped) send(*action.overlapped, ends_[rank].back());
    return true;
  }

  void send(const Work& work, int64_t end) {
    const auto passage = outgoing(work, program_.stages());
    if (!passage) return;
    const Delivery delivery = plan_.delivery(*passage);
    if (delivery.link < 0) return;
    sent_[delivery.link][delivery.message] = end;
    ready_.push_back(plan_.links()[delivery.link].target.value);
  }

  const ComputeProgram& program_;
  const MessagePlan& plan_;
  std::vector<std::vector<int64_t>> ends_;  // [rank][position]
  std::vector<std::vector<int64_t>> sent_;  // [link][message]
  std::deque<int> ready_;
};

struct Arrival {
  int64_t end;  // of the producer
  int source;
  int link;

  auto operator<=>(const Arrival&) const = default;
};

// Stable: messages of one producer keep the order of its sends, whichever link they take.
std::vector<Arrival> arrivals_at(RankIndex rank, const MessagePlan& plan, const UnitTimes& times) {
  std::vector<Arrival> arrivals;
  for (const int link : plan.links_into(rank)) {
    const PlannedLink& planned = plan.links()[link];
    for (size_t message = 0; message < planned.messages.size(); ++message)
      arrivals.push_back({times.end_of_producer(link, message), planned.source.value, link});
  }
  std::stable_sort(arrivals.begin(), arrivals.end());
  return arrivals;
}

std::vector<QueuedReceive> queue_of(RankIndex rank, size_t actions, const MessagePlan& plan,
                                    const UnitTimes& times) {
  std::vector<QueuedReceive> queue;
  size_t next = 0;
  for (const Arrival& arrival : arrivals_at(rank, plan, times)) {
    const std::pair message(arrival.end, arrival.source);
    while (next < actions && std::pair(times.end_of_action(rank.value, next), rank.value) < message) ++next;
    queue.push_back({static_cast<int>(next), arrival.link});
  }
  return queue;
}

// Counts the receives of a rank between post and reader, by link.
void set_slots(const ComputeProgram& program, RankIndex rank, const std::vector<QueuedReceive>& queue,
               const MessagePlan& plan, std::vector<PlannedLink>& links) {
  std::map<int, int> open;  // [link]
  for (const int link : plan.links_into(rank)) links[link].receive_slots = 1;
  const auto read = [&](const Work& work) {
    const auto passage = incoming(work, program.stages());
    if (!passage) return;
    if (const int link = plan.delivery(*passage).link; link >= 0) --open[link];
  };
  size_t next = 0;
  const auto& actions = program.actions[rank.value];
  for (size_t position = 0; position < actions.size(); ++position) {
    for (; next < queue.size() && queue[next].action == static_cast<int>(position); ++next) {
      const int link = queue[next].link;
      links[link].receive_slots = std::max(links[link].receive_slots, ++open[link]);
    }
    read(actions[position].work);
    if (actions[position].overlapped) read(*actions[position].overlapped);
  }
}

}  // namespace

StatusOr<ReceiveQueues> order_receives(const ComputeProgram& program, const MessagePlan& plan,
                                       std::vector<PlannedLink>& links) {
  UnitTimes times(program, plan);
  PENSTOCK_RETURN_IF_ERROR(times.run());
  ReceiveQueues queues;
  for (int rank = 0; rank < program.ranks; ++rank) {
    queues.push_back(queue_of(RankIndex(rank), program.actions[rank].size(), plan, times));
    set_slots(program, RankIndex(rank), queues.back(), plan, links);
  }
  return queues;
}

}  // namespace penstock::plan::internal
