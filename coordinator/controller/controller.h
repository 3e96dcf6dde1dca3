// The coordinator, seen from its doors (rpc, main): asks and tells, answers by callback.
//
// Thread: every member may be called from any thread and never blocks.
// Callbacks: run on the controller's thread, the planner's, or the calling one when the call is refused at once; each
//   runs exactly once. They must not block; they may call the controller again.
// Bounds: at most Limits::inbox calls wait at once; beyond that a call is refused with ResourceExhausted.
// Errors: NotFound = no such job; Unavailable = the controller stops or the store does not commit: try again;
//   ResourceExhausted = a bound is reached; InvalidArgument = the input is wrong as it stands.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "coordinator/core/session.h"
#include "coordinator/core/views.h"
#include "proto/codec/messages.h"

namespace penstock::coordinator {

struct SubmitCall {
  std::string principal = "anonymous";
  std::string spec_yaml{};
  std::string request_id{};  // "" is no id: every call submits anew
  bool dry_run = false;
  // Whether the caller has left; may be asked once, from another thread, before `done` is called.
  std::function<bool()> is_abandoned{};
};

struct ResumeCall {
  std::string name{};
  std::string principal = "anonymous";
  std::string spec_yaml{};  // "": as it was
};

struct JobWait {
  std::string name{};
  // Answers as soon as the job's version is greater, or when it has ended; 0 answers at once.
  uint64_t after_version = 0;
  bool include_losses = false;
};

struct LogWait {
  std::string name{};
  RankIndex rank{};     // unset: all ranks
  uint64_t cursor = 0;  // LogPage::next of the page before; 0 starts at the oldest line kept
  // Waits until there is at least one line, or the job has ended; otherwise answers at once.
  bool follow = false;
};

using WaitId = uint64_t;  // of one pending wait; 0 is none

// The way out to one worker session. Implemented by rpc.
class WorkerSink {
 public:
  virtual ~WorkerSink() = default;
  // Queues a message for the stream, in order. False: the stream is closed or its bounded queue is full; the
  // controller then takes the worker for lost. Never blocks. Called on the controller's thread.
  virtual bool send(CoordinatorMessage message) = 0;
  // Ends the stream with this status, after what was queued. Nothing is sent after it. Called once at most.
  //   Aborted: the registration is refused or replaced (an older incarnation, a name taken by a newer one).
  //   InvalidArgument: the registration is malformed. Unavailable: lease expired, or the coordinator stops.
  virtual void close(Status status) = 0;
};

class Controller {
 public:
  virtual ~Controller() = default;

  // Jobs. submit answers when the job is durable; dry_run only checks (name is then the one in the file). While the
  // store does not commit, submit and cancel are answered with ResourceExhausted or Unavailable within seconds; the
  // message says whether what was asked for may still come true.
  virtual void submit(SubmitCall call, std::function<void(StatusOr<SubmitOutcome>)> done) = 0;
  virtual void get_job(std::string name, bool include_losses,
                       std::function<void(StatusOr<JobView>)> done) = 0;
  // A traced step: the newest one without `step`. NotFound also when the step is not traced, with those that are.
  virtual void get_trace(std::string name, std::optional<int64_t> step,
                         std::function<void(StatusOr<TraceView>)> done) = 0;
  // NotFound also when no step is measured.
  virtual void get_measurements(std::string name, std::function<void(StatusOr<MeasurementsView>)> done) = 0;
  // By submission; without job file, stages, events and losses, so that a long list stays small.
  virtual void list_jobs(std::function<void(StatusOr<std::vector<JobView>>)> done) = 0;
  // Answers with the job's state once the cancellation is durable; a job that has ended keeps its state: no error.
  virtual void cancel_job(std::string name, std::string principal,
                          std::function<void(StatusOr<JobState>)> done) = 0;

  // Answers with the job's state once it is durable: Draining until its next checkpoint, or Paused. FailedPrecondition: it
  // has ended, or would lose its steps.
  virtual void pause_job(std::string name, std::string principal,
                         std::function<void(StatusOr<JobState>)> done) = 0;
  // Queues a paused job, with the file where there is one. FailedPrecondition: it is not paused; InvalidArgument: the file is
  // wrong, or of another training; Unavailable: its ranks are still stopping.
  virtual void resume_job(ResumeCall call, std::function<void(StatusOr<JobState>)> done) = 0;

  // Watching pulls: ask for what comes after the version (or cursor) that you have, write it, ask again. So a
  // slow reader skips versions instead of queueing them, and nobody buffers for it.
  virtual WaitId wait_job(JobWait wait, std::function<void(StatusOr<JobView>)> done) = 0;
  virtual WaitId wait_logs(LogWait wait, std::function<void(StatusOr<LogPage>)> done) = 0;
  // Ends a wait that is still pending: its callback runs with Cancelled. Harmless when it has been answered.
  virtual void abandon(WaitId id) = 0;

  // Workers.
  virtual void list_workers(std::function<void(StatusOr<std::vector<WorkerView>>)> done) = 0;
  // Gives a worker no new ranks, or gives it ranks again; answers with its devices once that is durable. NotFound names the nearest
  // worker.
  virtual void drain_worker(std::string name, std::string principal,
                            std::function<void(StatusOr<std::vector<WorkerView>>)> done) = 0;
  virtual void uncordon_worker(std::string name, std::string principal,
                               std::function<void(StatusOr<std::vector<WorkerView>>)> done) = 0;
  // Opens a session with its first message. The answer is `Registered` through the sink, or close(why).
  virtual SessionId open_session(Registration registration, std::shared_ptr<WorkerSink> sink) = 0;
  // Hands on a later message. `taken` runs when the controller has taken it: start the next read then, so
  // that at most one message of a session waits in the inbox. A session that is not open any more is ignored.
  virtual void deliver(SessionId session, WorkerMessage message, std::function<void()> taken) = 0;
  // The stream has ended, for whatever reason: the worker's incarnation is over at once. Always accepted.
  // After WorkerSink::close it must still be called; the sink is let go then.
  virtual void close_session(SessionId session, std::string reason) = 0;

  // Broker. AlreadyExists: published before; Aborted: the attempt is not the current one, or ended while waiting.
  virtual void publish(CommunicatorKey key, std::string value, std::function<void(Status)> done) = 0;
  // DeadlineExceeded after `timeout` names the missing rank.
  virtual WaitId look_up(CommunicatorKey key, Duration timeout,
                         std::function<void(StatusOr<std::string>)> done) = 0;
};

}  // namespace penstock::coordinator
