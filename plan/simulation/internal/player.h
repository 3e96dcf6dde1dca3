// Gives every action of a compute program its time.
#pragma once

#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "plan/schedule/dataflow.h"
#include "plan/simulation/internal/deliveries.h"
#include "plan/simulation/internal/links.h"
#include "plan/simulation/simulate.h"

namespace penstock::plan::internal {

class Player {
 public:
  // Both must outlive this. `costs` has been checked against the program.
  Player(const ComputeProgram& program, const SimulationCosts& costs);

  Status play_earliest();
  Status play_aligned();
  Simulation summarise() &&;

 private:
  // How tensors get from a stage to its neighbour, for one replica.
  struct Route {
    RankIndex target;
    int32_t link = -1;    // -1: both stages are on one rank
    Ticks occupancy = 0;  // of the link, by one message
  };
  struct Link {
    Ticks latency = 0;
    Ticks free_since = 0;
  };
  static constexpr Ticks kUnknown = -1;

  void plan_routes();
  void plan_route(Flow flow, int stage, int replica, const Links& links);
  const Route& route_of(const Passage& passage) const;
  // When the action's inputs are there; kUnknown when one has not been made.
  Ticks arrival_of(const Work& work) const;
  Ticks arrival_of(const Action& action) const;
  void run(int rank, Ticks start);
  void deliver(const Work& work, Ticks end);
  void wake(int rank);

  Status check_aligned() const;
  size_t warm_up_of(int rank) const;
  void align_rank(int rank);

  const ComputeProgram& program_;
  const SimulationCosts& costs_;
  size_t replicas_ = 1;
  std::vector<Route> routes_;  // [flow, source stage, replica]
  std::vector<Link> links_;
  std::map<std::pair<RankIndex, RankIndex>, int32_t> link_of_;
  Deliveries deliveries_;
  std::deque<int> ready_;
  std::vector<bool> is_blocked_;  // [rank]: waits for a tensor, and nobody has woken it
  Simulation result_;
};

}  // namespace penstock::plan::internal
