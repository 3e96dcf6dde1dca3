#include "plan/simulation/internal/player.h"

#include <algorithm>

#include "plan/simulation/internal/durations.h"
#include "plan/simulation/internal/summary.h"

namespace penstock::plan::internal {

Player::Player(const ComputeProgram& program, const SimulationCosts& costs)
    : program_(program),
      costs_(costs),
      deliveries_(program.stages(), program.total_microbatches()),
      is_blocked_(program.ranks, false) {
  result_.ranks.resize(program.ranks);
  for (int rank = 0; rank < program.ranks; ++rank) {
    result_.ranks[rank].actions.reserve(program.actions[rank].size());
    if (!costs.updates.empty()) result_.ranks[rank].update = costs.updates[rank];
  }
  plan_routes();
}

void Player::plan_routes() {
  for (const int replica : program_.replica_of)
    replicas_ = std::max(replicas_, static_cast<size_t>(replica) + 1);
  routes_.resize(2 * static_cast<size_t>(program_.stages()) * replicas_);
  const Links links(costs_);
  for (const Flow flow : {Flow::Activation, Flow::Gradient}) {
    for (int stage = 0; stage < program_.stages(); ++stage) {
      for (int replica = 0; replica < static_cast<int>(replicas_); ++replica)
        plan_route(flow, stage, replica, links);
    }
  }
}

void Player::plan_route(Flow flow, int stage, int replica, const Links& links) {
  const int next = flow == Flow::Activation ? stage + 1 : stage - 1;
  if (next < 0 || next >= program_.stages()) return;
  const RankIndex source = program_.placement[stage][replica];
  Route& route = routes_[(static_cast<size_t>(flow) * program_.stages() + stage) * replicas_ + replica];
  route.target = program_.placement[next][replica];
  if (source == route.target) return;
  const LinkCosts costs = links.between(source, route.target);
  const auto [entry, is_new] =
      link_of_.try_emplace({source, route.target}, static_cast<int32_t>(links_.size()));
  if (is_new) links_.push_back({costs.latency, 0});
  route.link = entry->second;
  route.occupancy = links.occupancy(costs, std::min(stage, next));
}

const Player::Route& Player::route_of(const Passage& passage) const {
  const size_t replica =
      program_.replica_of.empty() ? 0 : static_cast<size_t>(program_.replica_of[passage.microbatch.value]);
  const auto row = static_cast<size_t>(passage.flow) * static_cast<size_t>(program_.stages()) +
                   static_cast<size_t>(passage.source.value);
  return routes_[row * replicas_ + replica];
}

Ticks Player::arrival_of(const Work& work) const {
  const TimedDelivery* input = deliveries_.input_of(work);
  if (input == nullptr) return 0;
  return input->produced < 0 ? kUnknown : input->arrived;
}

Ticks Player::arrival_of(const Action& action) const {
  const Ticks first = arrival_of(action.work);
  if (first == kUnknown || !action.overlapped) return first;
  const Ticks second = arrival_of(*action.overlapped);
  return second == kUnknown ? kUnknown : std::max(first, second);
}

Status Player::play_earliest() {
  for (int rank = 0; rank < program_.ranks; ++rank) ready_.push_back(rank);
  while (!ready_.empty()) {
    const int rank = ready_.front();
    ready_.pop_front();
    const auto& actions = program_.actions[rank];
    const auto& played = result_.ranks[rank].actions;
    while (played.size() < actions.size()) {
      const Ticks arrival = arrival_of(actions[played.size()]);
      is_blocked_[rank] = arrival == kUnknown;
      if (is_blocked_[rank]) break;
      const Ticks free_since = played.empty() ? result_.ranks[rank].update : played.back().end;
      run(rank, std::max(free_since, arrival));
    }
  }
  for (int rank = 0; rank < program_.ranks; ++rank) {
    const size_t position = result_.ranks[rank].actions.size();
    if (position == program_.actions[rank].size()) continue;
    return failed_precondition("the program stops on rank {} before {} at position {}; verify says why", rank,
                               to_string(program_.actions[rank][position]), position);
  }
  return ok_status();
}

void Player::run(int rank, Ticks start) {
  auto& timed = result_.ranks[rank].actions;
  const Action& action = program_.actions[rank][timed.size()];
  const Ticks end = start + duration_of(costs_, action);
  timed.push_back({action, start, end});
  deliver(action.work, end);
  if (action.overlapped) deliver(*action.overlapped, end);
}

// All messages of a link come from one rank, in the order in which it runs: the link's queue needs no clock.
void Player::deliver(const Work& work, Ticks end) {
  const auto passage = outgoing(work, program_.stages());
  if (!passage) return;
  const Route& route = route_of(*passage);
  TimedDelivery& delivery = deliveries_[*passage];
  delivery = {end, end, route.link >= 0};
  if (delivery.is_remote) {
    Link& link = links_[route.link];
    link.free_since = std::max(link.free_since, end) + route.occupancy;
    delivery.arrived = link.free_since + link.latency;
  }
  wake(route.target.value);
}

void Player::wake(int rank) {
  if (!is_blocked_[rank]) return;
  is_blocked_[rank] = false;
  ready_.push_back(rank);
}

Simulation Player::summarise() && {
  internal::summarise(deliveries_, result_);
  return std::move(result_);
}

}  // namespace penstock::plan::internal
