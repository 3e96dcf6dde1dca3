// The coordinator as this client sees it: one method a call, errors that say what to do next.
//
// Every call carries the caller and a deadline. Unavailable: no coordinator answers at the address, or it says
// that it cannot do this now.
// Streams are subscribed again when their deadline ends or the coordinator restarts, until it has been away
// for `StreamPolicy::away_max`.
//
// Thread: one at a time, except stop(), which any thread may call.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "penstock/v1/jobs.pb.h"
#include "penstock/v1/workers.pb.h"

namespace penstock::client {

// --coordinator, else PENSTOCK_COORDINATOR, else 127.0.0.1:7070.
inline constexpr const char* kDefaultCoordinator = "127.0.0.1:7070";
std::string coordinator_address(const std::string& from_command_line);

// Whether the coordinator may come back from this; any other failure of a call is final.
bool may_come_back(StatusCode code);

// How a call ended, and whether the coordinator said so itself: otherwise the way to it failed.
struct CallEnd {
  StatusCode code = StatusCode::kOk;
  std::string text;
  bool by_coordinator = false;

  bool ok() const { return code == StatusCode::kOk; }
};

struct StreamPolicy {
  Duration away_max = 30s;  // a coordinator that has answered before may be away this long
  Duration retry_pause = 500ms;
};

class Coordinator {
 public:
  // Opens no connection yet; the first call does. InvalidArgument when `address` is not "host:port".
  static StatusOr<std::unique_ptr<Coordinator>> at(const std::string& address,
                                                   const StreamPolicy& policy = {});
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  const std::string& address() const { return address_; }

  struct Submission {
    std::string spec_yaml;
    bool dry_run = false;
  };
  // Sends again, with one request id, when the answer got lost: the job is queued once.
  StatusOr<v1::SubmitResponse> submit(const Submission& submission);

  enum class Losses { Omit, Include };
  StatusOr<v1::Job> job(const std::string& name, Losses losses = Losses::Omit);
  StatusOr<std::vector<v1::Job>> jobs();
  // The newest traced step without `step`.
  StatusOr<v1::TraceResponse> trace(const std::string& name, std::optional<int64_t> step);
  StatusOr<v1::MeasurementsResponse> measurements(const std::string& name);
  StatusOr<std::vector<v1::Worker>> workers();
  // The worker's devices, as they are then. NotFound: no such worker.
  StatusOr<std::vector<v1::Worker>> drain(const std::string& worker);
  StatusOr<std::vector<v1::Worker>> uncordon(const std::string& worker);
  StatusOr<v1::JobState> cancel(const std::string& name);
  StatusOr<v1::JobState> pause(const std::string& name);
  // `spec_yaml`: to go on with; "": as it was. Unavailable while its ranks are stopping.
  StatusOr<v1::JobState> resume(const std::string& name, const std::string& spec_yaml);

  // Calls `see` with the job as it is and at every change until it has ended; returns the job as last seen.
  // Cancelled after stop(). `away` is told once a gap when the coordinator does not answer.
  StatusOr<v1::Job> watch(const std::string& name, const std::function<void(const v1::Job&)>& see,
                          const std::function<void(const Status&)>& away);

  struct LogSelection {
    std::string job;
    int rank = -1;  // -1: all
    bool follow = false;
  };
  // Calls `see` with every line. With follow until the job has ended; then `away` as above.
  Status logs(const LogSelection& selection, const std::function<void(const v1::LogLine&)>& see,
              const std::function<void(const Status&)>& away);

  // Ends the stream in progress, and every later one at once.
  void stop();

 private:
  struct Stubs;
  class RunningStream;
  struct Subscription {
    CallEnd end;
    bool answered = false;  // it brought at least one message
    bool complete = false;  // it brought all that there is
  };
  Coordinator(std::string address, const StreamPolicy& policy);

  // The status with the reason in the user's words and what to do next.
  Status explained(const CallEnd& end) const;
  Status keep_subscribed(const std::function<Subscription()>& subscribe,
                         const std::function<void(const Status&)>& away);
  bool pause_unless_stopped();

  const std::string address_;
  const StreamPolicy policy_;
  const std::string principal_;
  std::unique_ptr<Stubs> stubs_;

  std::mutex mutex_;
  std::condition_variable stop_called_;
  bool stopped_ = false;              // guarded by mutex_
  RunningStream* running_ = nullptr;  // guarded by mutex_
};

}  // namespace penstock::client
