#include "plan/schedule/internal/message_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "plan/schedule/internal/queue_order.h"
#include "plan/schedule/internal/rehearsal.h"
#include "plan/schedule/post_validation.h"

namespace penstock::plan::internal {
namespace {

Status check_index(const char* what, int64_t value, int64_t limit) {
  if (value >= 0 && value < limit) return ok_status();
  return internal_error("lowering a program that was not verified: {} {} is not below {}", what, value,
                        limit);
}

Status check_placement(const ComputeProgram& program) {
  if (static_cast<int>(program.actions.size()) != program.ranks || program.microbatches < 1 ||
      program.updates < 1) {
    return internal_error(
        "lowering a program that was not verified: {} ranks, {} action lists, {} microbatches", program.ranks,
        program.actions.size(), program.microbatches);
  }
  const int64_t total = int64_t{program.microbatches} * program.updates;
  constexpr int64_t kMaximumTensors = 1 << 26;
  PENSTOCK_RETURN_IF_ERROR(check_index("microbatches", total, kMaximumTensors));
  PENSTOCK_RETURN_IF_ERROR(check_index("tensors", total * program.stages(), kMaximumTensors));
  if (!program.replica_of.empty() && static_cast<int64_t>(program.replica_of.size()) != total) {
    return internal_error("lowering a program that was not verified: {} replica_of for {} microbatches",
                          program.replica_of.size(), total);
  }
  const auto [least, most] = std::minmax_element(program.replica_of.begin(), program.replica_of.end());
  const bool has_routes = !program.replica_of.empty();
  for (const auto& replicas : program.placement) {
    const auto count = static_cast<int64_t>(replicas.size());
    PENSTOCK_RETURN_IF_ERROR(check_index("replica", has_routes ? *least : 0, count));
    PENSTOCK_RETURN_IF_ERROR(check_index("replica", has_routes ? *most : 0, count));
    for (const RankIndex rank : replicas)
      PENSTOCK_RETURN_IF_ERROR(check_index("rank", rank.value, program.ranks));
  }
  return ok_status();
}

// Visits all work in order: visit(rank, work) returns a Status.
template <typename Visit>
Status for_each_work(const ComputeProgram& program, Visit&& visit) {
  for (int rank = 0; rank < program.ranks; ++rank) {
    for (const Action& action : program.actions[rank]) {
      PENSTOCK_RETURN_IF_ERROR(visit(RankIndex(rank), action.work));
      if (action.overlapped) PENSTOCK_RETURN_IF_ERROR(visit(RankIndex(rank), *action.overlapped));
    }
  }
  return ok_status();
}

Status check_works(const ComputeProgram& program) {
  std::vector<uint8_t> seen(size_t(program.stages()) * program.total_microbatches(), 0);
  return for_each_work(program, [&](RankIndex rank, const Work& work) {
    PENSTOCK_RETURN_IF_ERROR(check_index("stage", work.stage.value, program.stages()));
    PENSTOCK_RETURN_IF_ERROR(check_index("microbatch", work.microbatch.value, program.total_microbatches()));
    const int part = work.kind == ActionKind::Forward ? 1 : starts_backward(work.kind) ? 2 : 4;
    uint8_t& parts = seen[size_t(work.stage.value) * program.total_microbatches() + work.microbatch.value];
    if ((parts & part) != 0 || program.rank_of(work.stage, work.microbatch) != rank) {
      return internal_error("lowering a program that was not verified: {} on rank {}", to_string(work),
                            rank.value);
    }
    parts |= static_cast<uint8_t>(part);
    return ok_status();
  });
}

}  // namespace

MessagePlan::MessagePlan(const ComputeProgram& program)
    : stages_(program.stages()),
      microbatches_(program.total_microbatches()),
      into_(program.ranks),
      out_of_(program.ranks),
      deliveries_(2 * stages_ * microbatches_) {}

StatusOr<MessagePlan> MessagePlan::make(const ComputeProgram& program, const LoweringOptions& options) {
  PENSTOCK_RETURN_IF_ERROR(check_placement(program));
  PENSTOCK_RETURN_IF_ERROR(check_works(program));
  MessagePlan plan(program);
  PENSTOCK_RETURN_IF_ERROR(plan.number_messages(program));
  if (options.step_rule == StepRule::PostValidated) {
    plan.validation_points_ = validation_points(program);
    plan.count_provisional_messages(program);
  }
  plan.set_first_slots(program, options);
  plan.posting_ = options.posting;
  switch (options.posting) {
    case Posting::Early:
    case Posting::AtConsumer:
      PENSTOCK_RETURN_IF_ERROR(grow_receive_slots(program, plan, plan.links_));
      break;
    case Posting::InQueueOrder:
      PENSTOCK_ASSIGN_OR_RETURN(plan.queues_, order_receives(program, plan, plan.links_));
      break;
  }
  return plan;
}

Status MessagePlan::number_messages(const ComputeProgram& program) {
  std::map<std::pair<RankIndex, RankIndex>, int> link_of;
  int64_t unread = 0;
  const auto number = [&](RankIndex rank, const Work& work) {
    const auto passage = outgoing(work, program.stages());
    if (!passage) return ok_status();
    ++unread;
    const RankIndex target = program.rank_of(passage->target, passage->microbatch);
    Delivery& delivery = deliveries_[index(*passage)];
    delivery = Delivery{-1, 0};
    if (target == rank) return ok_status();
    const auto [entry, is_new] = link_of.try_emplace({rank, target}, static_cast<int>(links_.size()));
    if (is_new) links_.push_back(PlannedLink{rank, target, {}, 0, 0, 0});
    auto& messages = links_[entry->second].messages;
    delivery = Delivery{entry->second, static_cast<int>(messages.size())};
    messages.push_back(*passage);
    return ok_status();
  };
  PENSTOCK_RETURN_IF_ERROR(for_each_work(program, number));
  for (const auto& [ends, link] : link_of) {
    out_of_[ends.first.value].push_back(link);
    into_[ends.second.value].push_back(link);
  }
  const auto require_producer = [&](RankIndex, const Work& work) {
    const auto passage = incoming(work, program.stages());
    if (!passage) return ok_status();
    --unread;
    if (deliveries_[index(*passage)].message >= 0) return ok_status();
    return internal_error("lowering a program that was not verified: nothing produces the input of {}",
                          to_string(work));
  };
  PENSTOCK_RETURN_IF_ERROR(for_each_work(program, require_producer));
  if (unread == 0) return ok_status();
  return internal_error("lowering a program that was not verified: {} tensors are never read", unread);
}

void MessagePlan::count_provisional_messages(const ComputeProgram& program) {
  const auto count = [&](const Work& work) {
    const auto passage = outgoing(work, program.stages());
    if (!passage) return;
    if (const int link = delivery(*passage).link; link >= 0) ++links_[link].provisional;
  };
  for (int rank = 0; rank < program.ranks; ++rank) {
    for (int action = 0; action < validation_points_[rank]; ++action) {
      count(program.actions[rank][action].work);
      if (program.actions[rank][action].overlapped) count(*program.actions[rank][action].overlapped);
    }
  }
}

void MessagePlan::set_first_slots(const ComputeProgram& program, const LoweringOptions& options) {
  for (PlannedLink& link : links_) {
    const int messages = static_cast<int>(link.messages.size());
    link.receive_slots = std::clamp(options.receive_slots_per_link, 1, messages);
    link.send_slots = std::clamp(options.send_slots_per_link, 1, messages);
  }
  // Both halves of a pair write their outputs at once.
  for (const auto& actions : program.actions) {
    for (const Action& action : actions) {
      if (!action.overlapped) continue;
      const auto first = outgoing(action.work, program.stages());
      const auto second = outgoing(*action.overlapped, program.stages());
      if (!first || !second) continue;
      const int link = delivery(*first).link;
      if (link >= 0 && link == delivery(*second).link)
        links_[link].send_slots = std::max(2, links_[link].send_slots);
    }
  }
}

}  // namespace penstock::plan::internal
