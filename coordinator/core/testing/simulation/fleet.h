// Worker daemons with executors that do nothing but tell of it: sessions that break, processes that restart, executors
// that die, reports in any interleaving, doubled and forged.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>

#include "coordinator/core/command.h"
#include "coordinator/core/event.h"
#include "coordinator/core/state.h"
#include "coordinator/core/testing/simulation/scene.h"

namespace penstock::coordinator::testing {

// The loss of every job's step, of all its pipelines.
double loss_at(int64_t step);

struct Executor {
  Assignment assignment;
  bool ready = false;
  bool finished = false;
  bool ending = false;  // told to stop
  bool failed = false;  // has said so; its process lives on for a while
  int64_t step = 0;     // that it does next

  bool is_over() const { return finished || ending || failed; }
};

struct Daemon {
  std::string name;
  std::string host;
  int devices = 1;
  int64_t incarnation = 1;
  SessionId session = 0;  // 0: none
  TimePoint away_since{};
  bool draining = false;
  std::map<int, Executor> executors{};  // by device
  std::deque<WorkerMessage> unsent{};   // in order; survives a broken session
};

// What a daemon does returns what the coordinator sees of it, if anything.
class SimulatedFleet {
 public:
  static constexpr int kDevices = 6;

  explicit SimulatedFleet(Scene& scene);

  std::map<std::string, Daemon>& daemons() { return daemons_; }  // by name
  Daemon& any();
  Daemon* find(SessionId session);  // null: a broken session

  std::optional<Event> open_session(Daemon& daemon);
  std::optional<Event> break_session(Daemon& daemon);
  std::optional<Event> restart(Daemon& daemon);
  // Sends its oldest message, once or so.
  std::optional<Event> deliver(Daemon& daemon);
  // Sends something that was true once, or never, from anybody.
  std::optional<Event> forge(Daemon& daemon);
  void drain(Daemon& daemon);
  void kill_executor(Daemon& daemon);
  // One thing that one executor does; it waits for its peers until `state` has assigned them.
  void work(Daemon& daemon, const State& state);

  // Time has passed: without a coordinator executors go on for 30 s.
  void end_orphans();
  void close(SessionId session);
  void close_all();
  void receive(Daemon& daemon, const CoordinatorMessage& message);
  // A job is retired, and its name may be given again. That is safe since its executors are gone and sessions are in
  // order: nothing of it is under way any more but what this world doubles.
  void forget(const std::string& job);

 private:
  void lose_session(Daemon& daemon);
  void start(Daemon& daemon, const Assignment& assignment);
  void abort(Daemon& daemon, const Abort& abort);
  void train(Daemon& daemon, Executor& executor);
  void write_checkpoint(Daemon& daemon, const Executor& executor);
  std::optional<int64_t> slowest_peer(const Executor& executor) const;
  void tell(const Daemon& daemon, const WorkerMessage& message) const;

  Scene& scene_;
  std::map<std::string, Daemon> daemons_;
  std::deque<WorkerMessage> old_messages_;
  SessionId last_session_ = 0;
};

}  // namespace penstock::coordinator::testing
