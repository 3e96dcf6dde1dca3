// Plays the daemons of all ranks of one attempt for tests: forks an executor a rank, answers its broker
// requests from memory and keeps what it reports.
//
// Thread: one; no other may run when it forks.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "proto/codec/codec.h"

namespace penstock::worker {

struct ExecutorOutcome {
  std::optional<RankReady> ready;
  std::vector<StepReport> steps;
  std::vector<StepTrace> traces;
  std::vector<CheckpointWritten> checkpoints;
  std::optional<RankFinished> finished;
  std::optional<RankFailed> failed;
  TimePoint failed_at;  // when that came
  int exit_code = -1;   // -1: ended by a signal
  int signal = 0;
};

class FakeDaemon {
 public:
  // Starts an executor for each assignment and hands it over.
  explicit FakeDaemon(const std::vector<ExecutorAssignment>& assignments);
  ~FakeDaemon();
  FakeDaemon(const FakeDaemon&) = delete;
  FakeDaemon& operator=(const FakeDaemon&) = delete;

  // Serves until every executor has ended, and returns what each did; call once. `on_report` sees every step
  // report as it comes.
  std::vector<ExecutorOutcome> serve(const std::function<void(const StepReport&)>& on_report = {});

  void kill(int rank);     // SIGKILL
  void hang_up(int rank);  // closes the daemon's end of the socket and waits for the executor's end

 private:
  struct Child {
    pid_t pid = -1;
    int socket = -1;
    ExecutorOutcome outcome;
    std::map<int64_t, CommunicatorKey> waiting;  // look-ups without an answer, by id
  };
  void start(Child& child, const ExecutorAssignment& assignment);
  void handle(Child& child, const codec::ExecutorFrame& frame,
              const std::function<void(const StepReport&)>& on_report);
  void publish(Child& child, const codec::BrokerPublish& request);
  void answer_waiting();
  void end(Child& child);

  std::vector<Child> children_;
  std::map<CommunicatorKey, std::string> published_;
};

}  // namespace penstock::worker
