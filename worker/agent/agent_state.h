// What a worker daemon decides: events in, commands out. No thread, socket, process or clock of its own.
//
//   session:  Disconnected --Connect--> Connecting --Registered--> Open --end of stream--> Disconnected
//                                           \--no answer-----------\--silence--> Closing --> Disconnected
//   device:   Free --assign--> Starting --RankReady--> Running --RankFinished--> Finished --exit--> Free
//                                  \-----------------------\--abort, drain, orphan bound, broken frame-->
//                                                                                Stopping --exit--> Free
//
// Ended for ever: drained, a registration that no second try would make good (malformed, not permitted), or
// a newer process with this worker's name.
//
// Fencing: a command or a frame whose (job, attempt, incarnation) is not the current one changes nothing; a
// stale assignment is answered with RankFailed, an abort of what is not here with RankStopped. Every executor
// that ends is reported: RankFinished or RankFailed first (unless the coordinator asked for its end), then
// RankStopped, which frees the device.
//
// A new session tells the coordinator of ranks that outlived the last one by saying RankReady again; it
// aborts what it does not want. When it assigns their device instead, they make room: it knows of nothing
// that runs there.
//
// Thread: none; the agent's thread calls it.
#pragma once

#include <map>
#include <optional>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "proto/codec/codec.h"
#include "proto/codec/messages.h"

namespace penstock::worker {

struct AgentLimits {
  Duration lease = 2s;            // until the coordinator says another
  int leases_missed = 3;          // silence of that many leases ends a session
  Duration connect_timeout = 5s;  // from Connect to Registered
  Duration backoff_first = 100ms;
  Duration backoff_most = 1s;
  Duration orphan_bound = 30s;  // running ranks go on for so long without a coordinator
  Duration exit_grace = 5s;     // an executor that has finished or failed leaves by itself within this
  Duration hang_up_grace = 1s;  // and one that closed its socket within this
  Duration drain_bound = 8s;    // from the wish to end to the end, whatever hangs
};

struct AgentIdentity {
  std::string worker;
  int64_t incarnation = 0;
  int devices = 1;
  std::string bind_address;  // numeric, for the executors' transports
  int threads = 1;           // compute threads of a rank whose job does not say
};

struct RankStopped {
  AttemptKey attempt;
  RankIndex rank;
};
struct DrainNotice {
  std::string reason;
};
struct HeartbeatDue {
  int64_t sequence = 0;
};
// What goes to the coordinator.
using Report = std::variant<RankReady, StepReport, StepTrace, RankFinished, RankFailed, LogBatch, RankStopped,
                            DrainNotice, HeartbeatDue, CheckpointWritten>;

// Events.
struct SessionOpened {
  Duration lease = 2s;
  int leases_missed = 3;
  std::string coordinator;
};
struct SessionHeard {};  // any message of the coordinator
struct SessionEnded {
  Status status;
};
struct AssignReceived {
  Assignment assignment;
};
struct AssignRefused {  // it did not pass its checks on arrival
  AttemptKey attempt;
  RankIndex rank;
  Status why;
};
struct AbortReceived {
  AttemptKey attempt;
  RankIndex rank;
  std::string reason;
};
struct ExecutorSpawned {
  int device = 0;
  Status status;  // not ok: there is no process
  int64_t pid = 0;
};
struct ExecutorSaid {
  int device = 0;
  codec::ExecutorFrame frame;
};
struct ExecutorBroke {  // bytes that are no frame, or a socket that failed
  int device = 0;
  Status why;
};
struct ExecutorHungUp {  // closed its socket and has not exited yet
  int device = 0;
};
struct ExecutorPrinted {
  int device = 0;
  std::vector<std::string> lines;
  int64_t dropped = 0;
};
struct ExecutorExited {
  int device = 0;
  int exit_code = 0;  // -1 when a signal ended it
  int signal = 0;
  std::string last_line;  // of its stderr, "" when it said nothing
};
struct DrainRequested {
  std::string reason;
};
struct Tick {};
using AgentEvent = std::variant<SessionOpened, SessionHeard, SessionEnded, AssignReceived, AssignRefused,
                                AbortReceived, ExecutorSpawned, ExecutorSaid, ExecutorBroke, ExecutorHungUp,
                                ExecutorPrinted, ExecutorExited, DrainRequested, Tick>;

// Commands, to be carried out in their order.
struct Connect {};
struct CloseSession {  // at once; SessionEnded follows
  std::string reason;
};
struct FinishSession {};  // when all reports are written; SessionEnded follows
struct Send {
  Report report;
};
struct Spawn {  // ExecutorSpawned answers
  int device = 0;
  ExecutorAssignment assignment;
};
struct Kill {  // ExecutorExited follows
  int device = 0;
  std::string reason;
};
struct CallBroker {
  int device = 0;
  std::variant<codec::BrokerPublish, codec::BrokerLookUp> call;
};
struct End {      // nothing is left to do
  Status status;  // why it must not go on; ok when it has drained
};
using AgentCommand = std::variant<Connect, CloseSession, FinishSession, Send, Spawn, Kill, CallBroker, End>;

class AgentState {
 public:
  // `jitter_seed` spreads the reconnects of a fleet.
  AgentState(AgentIdentity identity, AgentLimits limits, uint64_t jitter_seed);

  std::vector<AgentCommand> apply(TimePoint now, const AgentEvent& event);

  // When Tick is due next, whatever happens in between.
  TimePoint next_tick(TimePoint now) const;

  bool session_open() const { return session_ == Session::Open; }
  bool draining() const { return draining_since_.has_value(); }
  int busy_devices() const;

 private:
  enum class Session { Disconnected, Connecting, Open, Closing };
  enum class Phase { Free, Starting, Running, Finished, Stopping };
  struct Device {
    Phase phase = Phase::Free;
    AttemptKey attempt;
    RankIndex rank;
    int64_t pid = 0;
    int64_t step = -1;  // that it is in; -1 before the first
    int64_t first_step = 0;
    bool outcome_reported = false;  // RankFinished or RankFailed was sent, or the coordinator wants neither
    std::string stop_reason;        // of Stopping
    std::optional<TimePoint> kill_at;
    std::string fingerprint;
    int64_t session = 0;                // that assigned it
    std::optional<Assignment> waiting;  // Stopping: spawned when the device is free
  };
  using Commands = std::vector<AgentCommand>;

  void on(TimePoint now, const SessionOpened& event, Commands& out);
  void on(TimePoint now, const SessionHeard& event, Commands& out);
  void on(TimePoint now, const SessionEnded& event, Commands& out);
  void on(TimePoint now, const AssignReceived& event, Commands& out);
  void on(TimePoint now, const AssignRefused& event, Commands& out);
  void on(TimePoint now, const AbortReceived& event, Commands& out);
  void on(TimePoint now, const ExecutorSpawned& event, Commands& out);
  void on(TimePoint now, const ExecutorSaid& event, Commands& out);
  void on(TimePoint now, const ExecutorBroke& event, Commands& out);
  void on(TimePoint now, const ExecutorHungUp& event, Commands& out);
  void on(TimePoint now, const ExecutorPrinted& event, Commands& out);
  void on(TimePoint now, const ExecutorExited& event, Commands& out);
  void on(TimePoint now, const DrainRequested& event, Commands& out);
  void on(TimePoint now, const Tick& event, Commands& out);

  void said(TimePoint now, int index, const RankReady& ready, Commands& out);
  void said(TimePoint now, int index, const StepReport& report, Commands& out);
  void said(TimePoint now, int index, const StepTrace& trace, Commands& out);
  void said(TimePoint now, int index, const RankFinished& finished, Commands& out);
  void said(TimePoint now, int index, const CheckpointWritten& written, Commands& out);
  void said(TimePoint now, int index, const RankFailed& failed, Commands& out);
  void said(TimePoint now, int index, const LogBatch& batch, Commands& out);
  void said(TimePoint now, int index, const codec::BrokerPublish& call, Commands& out);
  void said(TimePoint now, int index, const codec::BrokerLookUp& call, Commands& out);

  // Why the assignment cannot be taken, or ok.
  Status admits(const Assignment& assignment) const;
  void spawn(int index, Assignment assignment, Commands& out);
  // Whether the frame speaks for its device's rank; if not, the executor is broken and ends.
  bool speaks_for(int index, const AttemptKey& attempt, RankIndex rank, Commands& out);
  void stop(int index, const std::string& reason, Commands& out);
  void fail_and_stop(int index, const std::string& reason, Commands& out);
  void tick_session(TimePoint now, Commands& out);
  void tick_devices(TimePoint now, Commands& out);
  // Whether no later session can go better than the one that ended so.
  bool is_final(const Status& status) const;
  void end_when_idle(TimePoint now, Commands& out);
  Duration next_backoff();
  Device* find(const AttemptKey& attempt, RankIndex rank);

  AgentIdentity identity_;
  AgentLimits limits_;
  std::minstd_rand jitter_;

  Session session_ = Session::Disconnected;
  TimePoint connect_at_{};               // Disconnected: when to try again
  TimePoint session_since_{};            // Connecting: since when
  TimePoint last_heard_{};               // Open: last message of the coordinator
  TimePoint heartbeat_at_{};             // Open: when the next is due
  std::optional<TimePoint> away_since_;  // no open session since then
  int64_t sessions_ = 0;                 // opened so far
  Duration backoff_{};
  int64_t heartbeats_ = 0;
  Duration lease_{};
  int leases_missed_ = 0;

  std::vector<Device> devices_;
  // Highest attempt seen of each job, so that a late assignment of an older one is refused; the oldest jobs
  // are forgotten beyond kRememberedJobs, when their messages cannot be under way any more.
  static constexpr size_t kRememberedJobs = 1024;
  struct Seen {
    int64_t attempt = 0;
    int64_t order = 0;
  };
  std::map<std::string, Seen> seen_;
  int64_t seen_order_ = 0;

  std::optional<TimePoint> draining_since_;
  bool finishing_session_ = false;
  bool ended_ = false;
};

}  // namespace penstock::worker
