#include "worker/executor/testing/fake_daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <utility>
#include <variant>

#include "base/check.h"
#include "worker/executor/executor.h"

namespace penstock::worker {
namespace {

constexpr int kExecutorSocket = 3;
constexpr unsigned kLongestRunSeconds = 120;  // an executor that hangs must not outlive its test

void write_frame(int socket, const std::string& payload) {
  std::string bytes;
  for (size_t i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(payload.size() >> (8 * i)));
  bytes += payload;
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t sent = send(socket, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (sent <= 0) return;  // it is gone; its exit will say so
    done += static_cast<size_t>(sent);
  }
}

bool read_exactly(int socket, char* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t got = recv(socket, data, bytes, 0);
    if (got <= 0) return false;
    data += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

// Nothing at the end of the stream.
std::optional<codec::ExecutorFrame> read_frame(int socket) {
  std::array<unsigned char, 4> prefix;
  if (!read_exactly(socket, reinterpret_cast<char*>(prefix.data()), prefix.size())) return std::nullopt;
  size_t length = 0;
  for (size_t i = 0; i < 4; ++i) length |= static_cast<size_t>(prefix[i]) << (8 * i);
  std::string bytes(length, '\0');
  if (!read_exactly(socket, bytes.data(), length)) return std::nullopt;
  StatusOr<codec::ExecutorFrame> frame = codec::decode_executor_frame(bytes);
  PENSTOCK_CHECK(frame.ok(), "{}", frame.status().ToString());
  return *std::move(frame);
}

}  // namespace

FakeDaemon::FakeDaemon(const std::vector<ExecutorAssignment>& assignments) : children_(assignments.size()) {
  for (size_t i = 0; i < assignments.size(); ++i) start(children_[i], assignments[i]);
}

FakeDaemon::~FakeDaemon() {
  for (Child& child : children_) {
    if (child.socket < 0) continue;
    ::kill(child.pid, SIGKILL);
    end(child);
  }
}

void FakeDaemon::start(Child& child, const ExecutorAssignment& assignment) {
  std::array<int, 2> sockets{};
  PENSTOCK_CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets.data()), 0);
  const pid_t parent = getpid();
  std::fflush(nullptr);
  child.pid = fork();
  PENSTOCK_CHECK(child.pid >= 0, "fork");
  if (child.pid == 0) {
    dup2(sockets[1], kExecutorSocket);
    close_range(kExecutorSocket + 1, ~0U, 0);  // the other executors' sockets: their ends must be seen
    alarm(kLongestRunSeconds);
    _exit(run_executor(kExecutorSocket, parent));
  }
  close(sockets[1]);
  child.socket = sockets[0];
  write_frame(child.socket, codec::encode(codec::DaemonFrame(assignment)));
}

std::vector<ExecutorOutcome> FakeDaemon::serve(const std::function<void(const StepReport&)>& on_report) {
  for (;;) {
    std::vector<pollfd> polled;
    std::vector<Child*> open;
    for (Child& child : children_) {
      if (child.socket < 0) continue;
      polled.push_back({.fd = child.socket, .events = POLLIN, .revents = 0});
      open.push_back(&child);
    }
    if (open.empty()) break;
    PENSTOCK_CHECK(poll(polled.data(), polled.size(), -1) > 0, "poll");
    for (size_t i = 0; i < open.size(); ++i) {
      if (polled[i].revents == 0 || open[i]->socket < 0) continue;
      if (const auto frame = read_frame(open[i]->socket)) {
        handle(*open[i], *frame, on_report);
      } else {
        end(*open[i]);
      }
    }
  }
  std::vector<ExecutorOutcome> outcomes;
  for (Child& child : children_) outcomes.push_back(std::move(child.outcome));
  return outcomes;
}

void FakeDaemon::handle(Child& child, const codec::ExecutorFrame& frame,
                        const std::function<void(const StepReport&)>& on_report) {
  if (const auto* ready = std::get_if<RankReady>(&frame)) child.outcome.ready = *ready;
  if (const auto* finished = std::get_if<RankFinished>(&frame)) child.outcome.finished = *finished;
  if (const auto* written = std::get_if<CheckpointWritten>(&frame))
    child.outcome.checkpoints.push_back(*written);
  if (const auto* failed = std::get_if<RankFailed>(&frame)) {
    child.outcome.failed = *failed;
    child.outcome.failed_at = SystemClock().now();
  }
  if (const auto* request = std::get_if<codec::BrokerPublish>(&frame)) publish(child, *request);
  if (const auto* request = std::get_if<codec::BrokerLookUp>(&frame)) {
    child.waiting[request->id] = request->key;
    answer_waiting();
  }
  if (const auto* trace = std::get_if<StepTrace>(&frame)) child.outcome.traces.push_back(*trace);
  if (const auto* report = std::get_if<StepReport>(&frame)) {
    child.outcome.steps.push_back(*report);
    if (on_report) on_report(*report);
  }
}

void FakeDaemon::publish(Child& child, const codec::BrokerPublish& request) {
  const bool first = published_.emplace(request.key, request.value).second;
  const Status status = first ? ok_status() : already_exists("published before");
  write_frame(child.socket, codec::encode(codec::DaemonFrame(codec::BrokerReply{request.id, status, ""})));
  answer_waiting();
}

void FakeDaemon::answer_waiting() {
  for (Child& child : children_) {
    std::erase_if(child.waiting, [&](const auto& waiting) {
      const auto found = published_.find(waiting.second);
      if (found == published_.end()) return false;
      const codec::BrokerReply reply{waiting.first, ok_status(), found->second};
      write_frame(child.socket, codec::encode(codec::DaemonFrame(reply)));
      return true;
    });
  }
}

void FakeDaemon::end(Child& child) {
  close(std::exchange(child.socket, -1));
  int status = 0;
  waitpid(child.pid, &status, 0);
  if (WIFEXITED(status)) child.outcome.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) child.outcome.signal = WTERMSIG(status);
}

void FakeDaemon::kill(int rank) {
  ::kill(children_[rank].pid, SIGKILL);
}

void FakeDaemon::hang_up(int rank) {
  end(children_[rank]);
}

}  // namespace penstock::worker
