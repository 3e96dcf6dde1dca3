// Executes the ranks' instructions against a clock, event after event.
#pragma once

#include <map>
#include <queue>
#include <set>
#include <utility>
#include <vector>

#include "plan/simulation/internal/deliveries.h"
#include "plan/simulation/internal/links.h"
#include "plan/simulation/simulate.h"

namespace penstock::plan::internal {

class LoweredPlayer {
 public:
  // Both must outlive this; the program is valid, `costs` has been checked against it.
  LoweredPlayer(const LoweredProgram& program, const SimulationCosts& costs);

  StatusOr<Simulation> play();

 private:
  static constexpr Ticks kNever = -1;

  struct Message {
    Ticks sent = kNever;    // posted by its source
    Ticks posted = kNever;  // by its target
    Ticks left = kNever;    // its send slot is free again
    Ticks arrived = kNever;
  };
  struct Link {
    RankIndex source;
    RankIndex target;
    LinkCosts costs;
    Ticks free_since = 0;
    std::vector<Message> messages;
    size_t sent = 0;
    size_t posted = 0;
    std::vector<size_t> sent_in_slot;    // [send slot]: the message in it
    std::vector<size_t> posted_in_slot;  // [receive slot]
  };
  // One rank: where it stands, and the computation that it runs. Work is counted in ticks x blocks, of which
  // `speed` are done in a tick.
  struct Rank {
    size_t next = 0;
    bool computes = false;
    Action action;
    Ticks start = 0;
    int64_t work_left = 0;
    Ticks measured = 0;  // when work_left was true
    int waits = 0;       // posts of this rank without their match
    int version = 0;     // of its end: earlier ends in the queue are void
  };
  struct Event {
    Ticks time = 0;
    int rank = 0;
    int version = -1;  // of a computation's end; -1: look again

    bool operator>(const Event& other) const { return time > other.time; }
  };

  const Instruction& now_of(int rank) const { return program_.ranks[rank].instructions[ranks_[rank].next]; }
  Link& link(RankIndex source, RankIndex target) { return links_[link_of_.at({source, target})]; }
  bool is_shared(const Instruction& instruction) const {
    return instruction.kind == InstructionKind::ReduceGradients &&
           holders_.contains(instruction.work.stage.value);
  }

  void advance(int rank, Ticks now);
  // Whether the instruction may pass now; where the time is known when it may, an event looks again.
  bool may_pass(int rank, const Instruction& instruction, Ticks now);
  bool has_met(int rank, const Instruction& instruction, Ticks now);
  void pass(int rank, const Instruction& instruction, Ticks now);
  void start(int rank, Ticks now);
  void end(int rank, Ticks now);
  void hand_over(const Work& work, Ticks now);
  void post_send(int rank, const Instruction& instruction, Ticks now);
  void post_receive(int rank, const Instruction& instruction, Ticks now);
  void match(Link& link, size_t number, Ticks now, const Passage& passage);
  void change_waits(int rank, int by, Ticks now);
  int64_t speed_of(const Rank& rank) const;
  void schedule_end(int rank, Ticks now);

  const LoweredProgram& program_;
  const SimulationCosts& costs_;
  const Links link_costs_;
  int64_t blocks_;  // 1 where waits cost nothing
  Deliveries deliveries_;
  std::vector<Rank> ranks_;
  std::vector<Link> links_;
  std::map<std::pair<RankIndex, RankIndex>, size_t> link_of_;
  std::map<int, std::vector<int>> holders_;                // stages on more than one rank
  std::map<std::pair<int, int>, std::set<int>> meetings_;  // [stage, update]: ranks that have come
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  Simulation result_;
};

}  // namespace penstock::plan::internal
