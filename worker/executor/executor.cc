#include "worker/executor/executor.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <exception>
#include <map>
#include <string>
#include <thread>

#include "base/log.h"
#include "worker/executor/daemon_channel.h"
#include "worker/executor/rank_session.h"
#include "worker/transport/gloo/endpoint.h"
#include "worker/transport/shared_memory/endpoint.h"

namespace penstock::worker {
namespace {

constexpr Duration kAssignmentTimeout = 60s;

// A rank that ends because a peer did lets that peer's own report, or the news of its death, go first: the
// reason of the job is then the cause and not its echo.
constexpr Duration kEchoDelay = 300ms;

// Between the fork and this call the daemon may have died already: then no signal will come.
bool tie_life_to(pid_t parent) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return false;
  return getppid() == parent;
}

Status run_guarded(RankSession& session) {
  try {
    return session.run();
  } catch (const std::exception& error) {  // of a library: memory, oneDNN
    return internal_error("unexpected exception: {}", error.what());
  }
}

std::unique_ptr<Endpoint> make_endpoint(plan::P2pMode mode) {
  switch (mode) {
    case plan::P2pMode::TwoSided:
      return make_gloo_endpoint();
    case plan::P2pMode::OneSided:
      return make_shared_memory_endpoint();
  }
  return nullptr;
}

int run_rank(DaemonChannel& channel, const ExecutorAssignment& assignment) {
  const AttemptKey& attempt = assignment.assignment.attempt;
  const RankIndex rank = assignment.assignment.rank;
  std::map<std::string, BrokerRendezvous> met;  // by communicator
  const SystemClock clock;
  RankSession session(assignment,
                      {.rendezvous = [&](const std::string& communicator) -> Rendezvous& {
                         return met.try_emplace(communicator, channel, attempt, communicator).first->second;
                       },
                       .report = [&](const codec::ExecutorFrame& frame) { return channel.send(frame); },
                       .make_endpoint = make_endpoint,
                       .clock = clock});
  const Status status = run_guarded(session);
  if (status.ok()) return 0;

  const std::string reason = message(status);
  log::error("job {} attempt {} rank {} failed in step {}: {}", attempt.job, attempt.attempt, rank.value,
             session.step(), reason);
  if (absl::IsAborted(status)) std::this_thread::sleep_for(kEchoDelay);
  const Status said = channel.send(
      RankFailed{.attempt = attempt, .rank = rank, .step = session.step(), .reason = reason, .exit_code = 1});
  if (!said.ok()) log::error("job {} rank {}: {}", attempt.job, rank.value, message(said));
  session.abort(reason);
  return 1;
}

}  // namespace

int run_executor(int fd, pid_t parent) {
  log::initialise("executor");
  std::signal(SIGPIPE, SIG_IGN);
  if (!tie_life_to(parent)) {
    log::error("the daemon {} is gone; the parent is {}", parent, getppid());
    return 1;
  }
  DaemonChannel channel(fd, [](const Status& reason) {
    log::error("executor ends: {}", message(reason));
    _exit(1);  // nothing here outlives its daemon, whatever the other threads are doing
  });
  const StatusOr<ExecutorAssignment> assignment = channel.wait_for_assignment(kAssignmentTimeout);
  if (!assignment.ok()) {
    log::error("executor ends: {}", message(assignment.status()));
    return 1;
  }
  return run_rank(channel, *assignment);
}

}  // namespace penstock::worker
