// One order of all messages for ranks whose transfers all sit on one in-order queue.
//
// The order is that in which the producers end when F, I and W take 1 each and nothing but inputs is waited
// for; ties go by rank. A rank posts a receive before its first action that ends after the message's producer.
// Its queue then holds its messages in that order, sends included, since a send stands behind its producer.
// So the first message that has not passed always can: everything that either end has to do or to pass before
// it depends on earlier messages only.
#pragma once

#include <vector>

#include "base/status.h"
#include "plan/schedule/internal/message_plan.h"

namespace penstock::plan::internal {

using ReceiveQueues = std::vector<std::vector<QueuedReceive>>;  // [rank], in order

// Sets receive_slots in `links` (the plan's own) to what that order takes: the most receives between post and
// reader at once. Internal when the program has a cycle.
StatusOr<ReceiveQueues> order_receives(const ComputeProgram& program, const MessagePlan& plan,
                                       std::vector<PlannedLink>& links);

}  // namespace penstock::plan::internal
