// The worker daemon: one session with the coordinator, one executor child per busy device, nothing else.
//
// AgentState decides; this carries out: it owns the stream, the children and the thread of both.
// Thread: run() is the agent's thread; it must be one that lives as long as the process, since the children
// end with the thread that spawned them. drain() from any thread.
#pragma once

#include <prometheus/registry.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "proto/codec/messages.h"
#include "worker/agent/agent_state.h"
#include "worker/agent/broker_calls.h"
#include "worker/agent/executor_process.h"
#include "worker/agent/inbox.h"
#include "worker/agent/outbox.h"
#include "worker/agent/rank_metrics.h"
#include "worker/agent/session.h"

namespace penstock::worker {

struct AgentOptions {
  std::string coordinator;  // "host:port"
  // Its incarnation is chosen by the caller, greater than any earlier one of the name.
  Registration registration;
  int threads = 1;  // compute threads of a rank whose job does not say
  ExecutorCommand executor;
  AgentLimits limits;
  std::function<void()> draining;  // called once, on the agent's thread, when it takes nothing on any more
};

class Agent {
 public:
  Agent(AgentOptions options, std::shared_ptr<prometheus::Registry> registry);

  // Serves until it has drained: all executors gone and reported, at most limits.drain_bound after the wish.
  // A readable `termination_fd` is that wish (a signalfd); -1 is none.
  // InvalidArgument, PermissionDenied: the coordinator does not take the registration, and would not take it
  // the next time. Aborted: a newer process has this worker's name. Its executors are gone then, too.
  Status run(int termination_fd = -1);

  // Wishes the end.
  void drain(const std::string& reason);

 private:
  struct Child {
    BrokerCalls::Executor number = 0;
    std::unique_ptr<ExecutorProcess> process;
    bool hung_up = false;
    TimePoint output_since{};  // when the oldest line that was not sent came
  };

  void wait_for_something(int termination_fd);
  void take_inbox();
  void take(FromCoordinator&& item);
  void take(SessionHasRoom&& item);
  void take(SessionGone&& item);
  void take(BrokerAnswered&& item);
  void take(DrainWanted&& item);
  void take_assignment(const v1::Assign& assign);
  void take_abort(const v1::Abort& abort);

  void serve_children();
  void serve_child(int device, Child& child);
  void take_frames(int device, Child& child);
  enum class Output { WhenDue, Now };
  void forward_output(int device, Child& child, Output output);

  void apply(const AgentEvent& event);
  void carry_out(Connect&& command);
  void carry_out(CloseSession&& command);
  void carry_out(FinishSession&& command);
  void carry_out(Send&& command);
  void carry_out(Spawn&& command);
  void carry_out(Kill&& command);
  void carry_out(CallBroker&& command);
  void carry_out(End&& command);
  void send_to_child(int device, const codec::DaemonFrame& frame);
  void fill_session();
  void end_session();

  const AgentOptions options_;
  const SystemClock clock_;
  AgentState state_;
  RankMetrics metrics_;
  std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  Outbox outbox_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Workers::Stub> workers_;
  std::unique_ptr<BrokerCalls> broker_;

  std::shared_ptr<Session> session_;  // null between sessions
  int64_t sessions_ = 0;
  bool registered_ = false;  // the session has answered: reports may go
  bool finish_when_sent_ = false;
  std::string last_failure_;  // of a connect, said once

  std::map<int, Child> children_;  // by device
  int64_t next_executor_ = 0;
  bool said_draining_ = false;
  bool ended_ = false;
  Status end_;  // why it ended; ok when it has drained
};

}  // namespace penstock::worker
