// A world that does everything to the core that the real one may, drawn from a seed, and checks after each
// event what must always hold. The same seed plays the same history.
//
// Simulated: worker daemons with executors (fleet.h), a planner and a disk of checkpoints (planner.h), a store that
// commits late and in groups, clients that submit, pause, recut, cancel and look up, and a coordinator that crashes and
// starts again from what was durable. What is checked: promises.h.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>

#include "coordinator/core/core.h"
#include "coordinator/core/testing/simulation/fleet.h"
#include "coordinator/core/testing/simulation/planner.h"
#include "coordinator/core/testing/simulation/promises.h"
#include "coordinator/core/testing/simulation/scene.h"

namespace penstock::coordinator::testing {

class Simulation {
 public:
  // Silent, or every line of the coordinator's log and every message of consequence on stdout.
  enum class Trace { Off, On };

  // Adds what happens to `tally`.
  Simulation(uint64_t seed, Tally& tally, Trace trace = Trace::Off);

  // Plays `events` random events, then lets everything come to rest and checks that it did.
  void run(int events);

 private:
  // Events.
  void one_event();
  void advance();
  void beat_all();
  void answer_one();
  void assign_one();
  void commit_some();
  void crash();
  // Of clients.
  void submit();
  void cancel();
  void pause_or_resume();
  void cordon_or_uncordon(const Daemon& daemon);
  void resume(const std::string& job);
  void use_broker(const Daemon& daemon);

  // With healthy workers, a store that commits and enough time, every job must end and every device be free.
  void come_to_rest();
  void one_healthy_round();
  void resume_all();
  bool is_at_rest() const;
  std::string what_is_left() const;

  // The core, and what it wants.
  std::string any_job_there();
  ReplyId ask();
  void answered(ReplyId reply);
  void tell(std::optional<Event> event);
  template <typename Command>
  void obey(Command& command) {
    if constexpr (requires { planner_.take(command); }) {
      planner_.take(command);
    } else if constexpr (requires { command.reply; }) {
      answered(command.reply);
    }  // the others want nothing that is looked at
  }
  void obey(AnswerSubmit& command);
  void obey(CommitCheckpoint& command);
  void obey(Save& command) { queued_.push_back(std::move(command)); }
  void obey(CallAgain&);
  void obey(Say& command) { scene_.tell("{}", command.line); }
  void obey(Observed& command);
  void obey(CloseSession& command) { fleet_.close(command.session); }
  void obey(SendToWorker& command);

  Scene scene_;
  Tally& tally_;
  State state_;
  Archive durable_;
  std::deque<Save> queued_;  // by the store, not durable yet
  bool store_fails_ = false;
  bool call_again_ = false;  // the core wants an AssignMore
  std::set<ReplyId> unanswered_;
  ReplyId last_reply_ = 0;
  SimulatedFleet fleet_{scene_};
  SimulatedPlanner planner_{scene_};
  Promises promises_{{state_, durable_, planner_, scene_}, tally_};
};

}  // namespace penstock::coordinator::testing
