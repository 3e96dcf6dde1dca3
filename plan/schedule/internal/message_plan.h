// Which message every boundary tensor is, on which link, and how many slots each link needs.
//
// All messages of a link pass in the order in which the source's program produces them. The slots start from
// the options; where ranks would wait for each other in a circle because a sender finds no posted receive
// (rendezvous), one link of that circle gets one receive slot more. With a slot for every message nothing but
// the compute program's own dependencies is left, so that this ends for every program without a cycle. Posted
// in queue order (queue_order.h), slots are what that order takes.
#pragma once

#include <optional>
#include <vector>

#include "base/status.h"
#include "plan/schedule/dataflow.h"
#include "plan/schedule/lowered.h"
#include "plan/schedule/program.h"

namespace penstock::plan::internal {

struct PlannedLink {
  RankIndex source;
  RankIndex target;
  std::vector<Passage> messages;  // in order
  int receive_slots = 0;
  int send_slots = 0;
  int provisional = 0;  // StepRule::PostValidated: messages that the source sends before its ValidateStep
};

struct QueuedReceive {
  int action;  // before which it is posted
  int link;    // whose next message it is
};

struct Delivery {
  int link = -1;     // -1: both stages are on one rank, no transfer
  int message = -1;  // place in the link's order
};

class MessagePlan {
 public:
  // Internal when the program has an index out of range, a tensor without producer or consumer, or a cycle.
  static StatusOr<MessagePlan> make(const ComputeProgram& program, const LoweringOptions& options);

  const std::vector<PlannedLink>& links() const { return links_; }
  const std::vector<int>& links_into(RankIndex rank) const { return into_[rank.value]; }
  const std::vector<int>& links_out_of(RankIndex rank) const { return out_of_[rank.value]; }
  Posting posting() const { return posting_; }
  // The action before which a rank's ValidateStep stands; nothing with a barrier.
  std::optional<int> validation_point(RankIndex rank) const {
    return validation_points_.empty() ? std::nullopt : std::optional(validation_points_[rank.value]);
  }
  // Posting::InQueueOrder: the receives of a rank, in order.
  const std::vector<QueuedReceive>& queued_receives(RankIndex rank) const { return queues_[rank.value]; }
  Delivery delivery(const Passage& passage) const { return deliveries_[index(passage)]; }

 private:
  explicit MessagePlan(const ComputeProgram& program);

  size_t index(const Passage& passage) const {
    const auto flow = static_cast<size_t>(passage.flow);
    return (flow * stages_ + passage.target.value) * microbatches_ + passage.microbatch.value;
  }
  Status number_messages(const ComputeProgram& program);
  void count_provisional_messages(const ComputeProgram& program);
  void set_first_slots(const ComputeProgram& program, const LoweringOptions& options);

  Posting posting_ = Posting::Early;
  std::vector<int> validation_points_;  // [rank], or empty
  size_t stages_;
  size_t microbatches_;
  std::vector<PlannedLink> links_;
  std::vector<std::vector<int>> into_;              // [rank], by source
  std::vector<std::vector<int>> out_of_;            // [rank], by target
  std::vector<std::vector<QueuedReceive>> queues_;  // [rank]
  std::vector<Delivery> deliveries_;                // [flow, target stage, microbatch]
};

}  // namespace penstock::plan::internal
