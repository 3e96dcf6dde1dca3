#include "worker/agent/agent.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "base/log.h"
#include "proto/codec/wire.h"
#include "worker/agent/report_message.h"

namespace penstock::worker {
namespace {

// Lines wait so long for company before they travel.
constexpr Duration kOutputDelay = 50ms;

AgentIdentity identity_of(const AgentOptions& options) {
  const Registration& registration = options.registration;
  return AgentIdentity{.worker = registration.worker,
                       .incarnation = registration.incarnation,
                       .devices = static_cast<int>(registration.devices.size()),
                       .bind_address = registration.data_address,
                       .threads = options.threads};
}

int poll_timeout_ms(Duration wait) {
  // Up, so that a deadline has passed when poll returns.
  return static_cast<int>(
      std::chrono::ceil<std::chrono::milliseconds>(std::max<Duration>(wait, 0ns)).count());
}

// One write a line, so that lines of several processes do not mix. A reader of our stderr that has stopped
// reading loses lines; it must not stop the daemon.
void write_to_stderr(const LogBatch& batch) {
  for (const std::string& line : batch.lines) {
    pollfd standard_error{STDERR_FILENO, POLLOUT, 0};
    if (poll(&standard_error, 1, 0) != 1) return;
    const std::string text = fmt::format("[{} rank {}] {}\n", batch.attempt.job, batch.rank.value, line);
    (void)!write(STDERR_FILENO, text.data(), text.size());
  }
}

}  // namespace

Agent::Agent(AgentOptions options, std::shared_ptr<prometheus::Registry> registry)
    : options_(std::move(options)),
      state_(identity_of(options_), options_.limits, std::random_device{}()),
      metrics_(std::move(registry)),
      channel_(open_channel(options_.coordinator)),
      workers_(v1::Workers::NewStub(channel_)),
      broker_(std::make_unique<BrokerCalls>(
          channel_, options_.registration.principal,
          [inbox = inbox_](BrokerCalls::Executor executor, codec::BrokerReply reply) {
            inbox->post(BrokerAnswered{executor, std::move(reply)});
          })) {}

void Agent::drain(const std::string& reason) {
  inbox_->post(DrainWanted{reason});
}

Status Agent::run(int termination_fd) {
  while (!ended_) {
    apply(Tick{});
    fill_session();
    if (ended_) break;
    wait_for_something(termination_fd);
    take_inbox();
    serve_children();
  }
  children_.clear();
  broker_.reset();
  end_session();
  return end_;
}

// The stream's last event must have come before the process may leave gRPC.
void Agent::end_session() {
  if (session_) session_->cancel();
  while (session_) {
    pollfd wake{inbox_->descriptor(), POLLIN, 0};
    if (poll(&wake, 1, 1000) == 0) return;
    take_inbox();
  }
}

void Agent::wait_for_something(int termination_fd) {
  std::vector<pollfd> entries = {{inbox_->descriptor(), POLLIN, 0}, {termination_fd, POLLIN, 0}};
  const TimePoint now = clock_.now();
  TimePoint until = state_.next_tick(now);
  for (const auto& [device, child] : children_) {
    child.process->add_poll(entries);
    if (child.process->has_output()) until = std::min(until, child.output_since + kOutputDelay);
  }
  (void)poll(entries.data(), entries.size(), poll_timeout_ms(until - now));
  if ((entries[1].revents & POLLIN) == 0) return;
  signalfd_siginfo info{};
  if (read(termination_fd, &info, sizeof(info)) > 0)
    apply(DrainRequested{info.ssi_signo == 0 ? "told to end" : strsignal(static_cast<int>(info.ssi_signo))});
}

// --- what came from other threads ---

void Agent::take_inbox() {
  for (Inbox::Item& item : inbox_->take()) {
    std::visit([this](auto&& i) { take(std::forward<decltype(i)>(i)); }, std::move(item));
  }
}

void Agent::take(FromCoordinator&& item) {
  if (item.session != sessions_ || !session_) return;
  apply(SessionHeard{});
  switch (item.message.message_case()) {
    case v1::CoordinatorMessage::kRegistered: {
      const v1::Registered& registered = item.message.registered();
      log::info("registered with {} as {} incarnation {}", registered.coordinator(),
                options_.registration.worker, options_.registration.incarnation);
      registered_ = true;
      last_failure_.clear();
      apply(SessionOpened{std::chrono::milliseconds(registered.lease_ms()), registered.leases_missed(),
                          registered.coordinator()});
      return;
    }
    case v1::CoordinatorMessage::kAssign:
      return take_assignment(item.message.assign());
    case v1::CoordinatorMessage::kAbort:
      return take_abort(item.message.abort());
    case v1::CoordinatorMessage::kHeartbeatAck:
      return;
    case v1::CoordinatorMessage::MESSAGE_NOT_SET:
      return;  // of a newer coordinator
  }
}

void Agent::take_assignment(const v1::Assign& assign) {
  StatusOr<Assignment> assignment = codec::from_proto(assign);
  if (assignment.ok()) return apply(AssignReceived{*std::move(assignment)});
  const StatusOr<AttemptKey> key = codec::from_proto(assign.attempt());
  if (key.ok()) return apply(AssignRefused{*key, RankIndex(assign.rank()), assignment.status()});
  log::error("an assignment without a readable key was ignored: {}", key.status().ToString());
}

void Agent::take_abort(const v1::Abort& abort) {
  const StatusOr<AttemptKey> key = codec::from_proto(abort.attempt());
  if (key.ok()) return apply(AbortReceived{*key, RankIndex(abort.rank()), abort.reason()});
  log::error("an abort without a readable key was ignored: {}", key.status().ToString());
}

void Agent::take(SessionHasRoom&&) {}  // fill_session comes next in the loop

void Agent::take(SessionGone&& item) {
  if (item.number != sessions_) return;
  session_.reset();
  outbox_.put_back(std::move(item.unsent));
  if (std::exchange(registered_, false)) {
    log::info("the session with {} ended: {}", options_.coordinator, item.status.ToString());
  } else if (last_failure_ != item.status.ToString()) {
    last_failure_ = item.status.ToString();
    log::warning("no session with {}: {}; trying again", options_.coordinator, last_failure_);
  }
  apply(SessionEnded{item.status});
}

void Agent::take(BrokerAnswered&& item) {
  for (const auto& [device, child] : children_) {
    if (child.number == item.executor) return send_to_child(device, std::move(item.reply));
  }
}

void Agent::take(DrainWanted&& item) {
  apply(DrainRequested{item.reason});
}

// --- children ---

void Agent::serve_children() {
  std::vector<int> devices;
  for (const auto& [device, child] : children_) devices.push_back(device);
  for (const int device : devices) {
    if (const auto child = children_.find(device); child != children_.end())
      serve_child(device, child->second);
  }
}

void Agent::serve_child(int device, Child& child) {
  const Status handled = child.process->handle();
  const std::optional<ExecutorProcess::Exit> exit = child.process->try_exit();
  take_frames(device, child);
  if (!handled.ok()) apply(ExecutorBroke{device, handled});
  forward_output(device, child, exit ? Output::Now : Output::WhenDue);
  if (exit) {
    const std::string last_line = child.process->last_line();
    broker_->cancel(child.number);
    children_.erase(device);  // before the event: it may spawn the next one there
    log::info("the executor of device {} is gone: exit code {}, signal {}", device, exit->code, exit->signal);
    apply(ExecutorExited{device, exit->code, exit->signal, last_line});
  } else if (child.process->hung_up() && !std::exchange(child.hung_up, true)) {
    apply(ExecutorHungUp{device});
  }
}

void Agent::take_frames(int device, Child& child) {
  for (const std::string& bytes : child.process->take_frames()) {
    StatusOr<codec::ExecutorFrame> frame = codec::decode_executor_frame(bytes);
    if (!frame.ok()) return apply(ExecutorBroke{device, frame.status()});
    if (const auto* report = std::get_if<StepReport>(&*frame)) metrics_.record(device, *report);
    apply(ExecutorSaid{device, *std::move(frame)});
  }
}

void Agent::forward_output(int device, Child& child, Output output) {
  if (!child.process->has_output()) return;
  const TimePoint now = clock_.now();
  if (child.output_since == TimePoint{}) child.output_since = now;
  if (output == Output::WhenDue && now - child.output_since < kOutputDelay) return;
  child.output_since = TimePoint{};
  LineCapture::Batch batch = child.process->take_output();
  apply(ExecutorPrinted{device, std::move(batch.lines), batch.dropped});
}

// --- what the state wants ---

void Agent::apply(const AgentEvent& event) {
  for (AgentCommand& command : state_.apply(clock_.now(), event)) {
    std::visit([this](auto&& c) { carry_out(std::forward<decltype(c)>(c)); }, std::move(command));
  }
  metrics_.set_session_open(state_.session_open());
  metrics_.set_busy_devices(state_.busy_devices());
  if (state_.draining() && !std::exchange(said_draining_, true) && options_.draining) options_.draining();
}

void Agent::carry_out(Connect&&) {
  const int64_t number = ++sessions_;
  session_ = Session::start(
      *workers_, codec::to_proto(options_.registration),
      Session::Events{
          [inbox = inbox_, number](v1::CoordinatorMessage message) {
            return inbox->post(FromCoordinator{number, std::move(message)});
          },
          [inbox = inbox_] { inbox->post(SessionHasRoom{}); },
          [inbox = inbox_, number](std::shared_ptr<Session> session, Status status,
                                   std::vector<v1::WorkerMessage> unsent) {
            inbox->post(SessionGone{number, std::move(session), std::move(status), std::move(unsent)});
          }});
}

void Agent::carry_out(CloseSession&& command) {
  log::warning("the session is closed: {}", command.reason);
  if (session_) session_->cancel();
}

void Agent::carry_out(FinishSession&&) {
  finish_when_sent_ = true;
}

void Agent::carry_out(Send&& command) {
  if (const auto* batch = std::get_if<LogBatch>(&command.report)) write_to_stderr(*batch);
  if (const auto* failed = std::get_if<RankFailed>(&command.report))
    log::warning("job {} attempt {} rank {} failed in step {}: {}", failed->attempt.job,
                 failed->attempt.attempt, failed->rank.value, failed->step, failed->reason);
  outbox_.push(to_message(command.report));
}

// Reports go out in order, as far as the session takes them; the rest waits for room or for the next session.
void Agent::fill_session() {
  if (!session_ || !registered_) return;
  while (!outbox_.empty() && session_->send(outbox_.front())) outbox_.pop();
  if (finish_when_sent_ && outbox_.empty()) session_->finish();
}

void Agent::carry_out(Spawn&& command) {
  const Assignment& assignment = command.assignment.assignment;
  const AttemptKey attempt = assignment.attempt;
  StatusOr<std::unique_ptr<ExecutorProcess>> process = ExecutorProcess::spawn(options_.executor);
  if (!process.ok()) return apply(ExecutorSpawned{command.device, process.status(), 0});
  const pid_t pid = (*process)->pid();
  log::info("job {} attempt {} rank {}: executor {} on device {}", attempt.job, attempt.attempt,
            assignment.rank.value, pid, command.device);
  Child& child = children_[command.device];
  child = Child{};
  child.number = ++next_executor_;
  child.process = *std::move(process);
  metrics_.start_rank(command.device);
  apply(ExecutorSpawned{command.device, ok_status(), pid});
  send_to_child(command.device, std::move(command.assignment));
}

void Agent::carry_out(Kill&& command) {
  const auto child = children_.find(command.device);
  if (child == children_.end()) return;
  log::info("the executor {} of device {} is ended: {}", child->second.process->pid(), command.device,
            command.reason);
  child->second.process->kill();
}

void Agent::carry_out(CallBroker&& command) {
  if (const auto child = children_.find(command.device); child != children_.end())
    broker_->start(child->second.number, command.call);
}

void Agent::carry_out(End&& command) {
  end_ = std::move(command.status);
  ended_ = true;
}

void Agent::send_to_child(int device, const codec::DaemonFrame& frame) {
  const auto child = children_.find(device);
  if (child == children_.end()) return;
  const Status sent = child->second.process->send(codec::encode(frame));
  // Unavailable: it has gone, and its exit says more than a broken pipe does.
  if (!sent.ok() && sent.code() != StatusCode::kUnavailable) apply(ExecutorBroke{device, sent});
}

}  // namespace penstock::worker
