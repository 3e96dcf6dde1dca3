#include "coordinator/controller/core_controller.h"

#include <pthread.h>

#include <atomic>
#include <deque>
#include <future>
#include <map>
#include <thread>
#include <utility>

#include "base/log.h"
#include "coordinator/controller/internal/task_queue.h"
#include "coordinator/controller/internal/waits.h"
#include "coordinator/controller/internal/within_memory.h"
#include "coordinator/core/assignment/assignment.h"
#include "coordinator/core/core.h"
#include "coordinator/telemetry/telemetry.h"
#include "coordinator/weights/checkpoints.h"
#include "coordinator/weights/weights_folder.h"

namespace penstock::coordinator {
namespace {

Status stopping() {
  return unavailable("the coordinator stops; try again");
}
Status inbox_full() {
  return resource_exhausted("the coordinator has too many calls to answer; try again");
}

Status status_of(TaskQueue::Posted posted) {
  switch (posted) {
    case TaskQueue::Posted::Taken:
      return ok_status();
    case TaskQueue::Posted::Full:
      return inbox_full();
    case TaskQueue::Posted::Closed:
      return stopping();
  }
  return ok_status();
}

// The view of a job whose losses the store alone had.
StatusOr<JobView> with_losses(JobView view, StatusOr<std::vector<double>> losses) {
  if (!losses.ok())
    return with_context(losses.status(), fmt::format("job {}: its losses cannot be read", view.name));
  if (losses->size() != view.losses_in_store) {  // retired meanwhile
    return unavailable("job {}: expected {} losses in the store, found {}; try again", view.name,
                       view.losses_in_store, losses->size());
  }
  view.losses = *std::move(losses);
  view.losses_in_store = 0;
  return view;
}

// Of weights and checkpoints, where the attempt has any; `planned` takes the checkpoint that it starts from.
// `locks`: of checkpoint.directory, by job.
Status prepare_folders(const PlanAttempt& command, std::map<std::string, FileLock>& locks,
                       AttemptPlanned& planned) {
  if (!command.weights.directory.empty()) PENSTOCK_RETURN_IF_ERROR(prepare_weights_folder(command.weights));
  const CheckpointsOfAttempt& checkpoints = command.checkpoints;
  const CheckpointsWanted wanted{.place = checkpoints.place,
                                 .job = command.job,
                                 .is_own = checkpoints.is_own,
                                 .latest_step = checkpoints.latest_step,
                                 .from = command.spec->restart.from};
  locks.erase(command.job);
  PENSTOCK_ASSIGN_OR_RETURN(std::optional<FileLock> lock, lock_checkpoints(wanted));
  if (lock) locks.emplace(command.job, *std::move(lock));
  PENSTOCK_ASSIGN_OR_RETURN(StartingCheckpoint start, prepare_checkpoints(wanted, command.spec->model));
  planned.load_from = std::move(start.path);
  planned.first_step = start.step;
  planned.other_job = std::move(start.other_job);
  planned.fingerprint = std::move(start.fingerprint);
  planned.refused = std::move(start.refused);
  return ok_status();
}

// With the split that its measurements ask for, where the job lets us.
Status plan(const PlanAttempt& command, AttemptPlanned& planned) {
  if (planned.split && planned.split->plan) {
    planned.plan = planned.split->plan;
    return ok_status();
  }
  PENSTOCK_ASSIGN_OR_RETURN(planned.plan, plan_attempt(*command.spec));
  return ok_status();
}

class Implementation final : public CoreController {
 public:
  Implementation(ControllerOptions options, std::unique_ptr<Store> store,
                 std::shared_ptr<prometheus::Registry> registry, const Clock& clock)
      : options_(std::move(options)),
        clock_(clock),
        store_(std::move(store)),
        telemetry_(std::move(registry)),
        waits_(options_.waits, options_.log_lines_per_page),
        inbox_(options_.inbox),
        planning_(options_.submissions),
        folders_(options_.submissions) {
    state_.options = options_.core;
  }
  ~Implementation() override { (void)stop(); }

  Status begin();
  Status stop() override;

  void submit(SubmitCall call, std::function<void(StatusOr<SubmitOutcome>)> done) override;
  void get_job(std::string name, bool include_losses, std::function<void(StatusOr<JobView>)> done) override;
  void get_trace(std::string name, std::optional<int64_t> step,
                 std::function<void(StatusOr<TraceView>)> done) override;
  void get_measurements(std::string name, std::function<void(StatusOr<MeasurementsView>)> done) override;
  void list_jobs(std::function<void(StatusOr<std::vector<JobView>>)> done) override;
  void cancel_job(std::string name, std::string principal,
                  std::function<void(StatusOr<JobState>)> done) override;
  void pause_job(std::string name, std::string principal,
                 std::function<void(StatusOr<JobState>)> done) override;
  void resume_job(ResumeCall call, std::function<void(StatusOr<JobState>)> done) override;
  WaitId wait_job(JobWait wait, std::function<void(StatusOr<JobView>)> done) override;
  WaitId wait_logs(LogWait wait, std::function<void(StatusOr<LogPage>)> done) override;
  void abandon(WaitId id) override;
  void list_workers(std::function<void(StatusOr<std::vector<WorkerView>>)> done) override;
  void drain_worker(std::string name, std::string principal,
                    std::function<void(StatusOr<std::vector<WorkerView>>)> done) override;
  void uncordon_worker(std::string name, std::string principal,
                       std::function<void(StatusOr<std::vector<WorkerView>>)> done) override;
  SessionId open_session(Registration registration, std::shared_ptr<WorkerSink> sink) override;
  void deliver(SessionId session, WorkerMessage message, std::function<void()> taken) override;
  void close_session(SessionId session, std::string reason) override;
  void publish(CommunicatorKey key, std::string value, std::function<void(Status)> done) override;
  WaitId look_up(CommunicatorKey key, Duration timeout,
                 std::function<void(StatusOr<std::string>)> done) override;

 private:
  // Posts `task`, which answers through `done`; a refusal is answered on the calling thread.
  template <typename Answer>
  void call(const std::function<void(Answer)>& done, Task task) {
    if (const Status status = status_of(inbox_.post(std::move(task))); !status.ok()) done(status);
  }

  template <typename Answer>
  using Callbacks = std::map<ReplyId, std::function<void(Answer)>>;

  // Tells the core of it; the answer to the reply goes to `done`.
  template <typename Event, typename Value>
  void control(Callbacks<StatusOr<Value>>& waiting, std::string name, std::string principal,
               std::function<void(StatusOr<Value>)> done);

  void serve();
  void work_until_closed(TaskQueue& queue, const char* name);
  // On the folders' thread, in order.
  void post_folder_work(Task task);
  SplitAnswer considered(const SplitQuestion& question) const;
  void end_everything();
  void tell(Event event);
  void apply_one(Event event);
  Now now() const { return {taken_at_, clock_.unix_milliseconds()}; }
  void when_durable(Ticket ticket);
  void check_submission(SubmitCall call, const std::function<void(StatusOr<SubmitOutcome>)>& done);

  void carry_out(AnswerSubmit& command) { answer(submissions_, command.reply, std::move(command.outcome)); }
  void carry_out(AnswerControl& command) { answer(controls_, command.reply, std::move(command.state)); }
  void carry_out(AnswerWorker& command) { answer(cordonings_, command.reply, std::move(command.devices)); }
  void carry_out(AnswerPublish& command) { answer(publications_, command.reply, std::move(command.status)); }
  void carry_out(AnswerLookUp& command) { answer(look_ups_, command.reply, std::move(command.value)); }
  void carry_out(SendToWorker& command);
  void carry_out(CloseSession& command);
  void carry_out(PlanAttempt& command);
  void carry_out(ConsiderSplit& command);
  void carry_out(CommitWeights& command);
  void carry_out(DiscardWeights& command);
  void carry_out(CommitCheckpoint& command);
  void carry_out(DiscardCheckpoint& command);
  void carry_out(RemoveDrafts& command);
  void carry_out(LookForCheckpoint& command);
  void carry_out(Save& command) { store_->save(std::move(command)); }
  void carry_out(CallAgain&) {
    inbox_.post_always([this] { tell(AssignMore{}); });
  }
  void carry_out(JobChanged& command) { waits_.job_changed(command.job, state_, clock_.unix_milliseconds()); }
  void carry_out(LogGrew& command) { waits_.log_grew(command.job, state_); }
  void carry_out(Observed& command) { telemetry_.record(command.observation); }
  void carry_out(Say& command) { log::write(command.level, command.line); }

  template <typename Answer>
  static void answer(Callbacks<Answer>& callbacks, ReplyId reply, Answer value) {
    if (auto found = callbacks.extract(reply)) found.mapped()(std::move(value));
  }
  template <typename Answer>
  static void answer_all(Callbacks<Answer>& callbacks, const Status& status) {
    for (auto& [reply, done] : std::exchange(callbacks, {})) done(status);
  }

  const ControllerOptions options_;
  const Clock& clock_;
  const std::unique_ptr<Store> store_;

  std::map<std::string, FileLock> directory_locks_;  // by job; the folders' thread's

  // The controller's thread (and begin(), before it).
  Telemetry telemetry_;
  State state_;
  TimePoint taken_at_{};
  std::deque<Event> consequences_;  // events that carrying out commands brought up
  bool applying_ = false;
  std::map<SessionId, std::shared_ptr<WorkerSink>> sinks_;
  Callbacks<StatusOr<SubmitOutcome>> submissions_;
  Callbacks<StatusOr<JobState>> controls_;
  Callbacks<StatusOr<std::vector<WorkerView>>> cordonings_;
  Callbacks<Status> publications_;
  Callbacks<StatusOr<std::string>> look_ups_;
  Waits waits_;
  Ticket restored_ = 0;  // durable means that the restart is
  std::promise<void> restored_durable_;
  bool restore_told_ = false;

  std::atomic<bool> stopping_{false};  // the planner and the folders' thread only empty their queues
  std::atomic<uint64_t> next_id_{1};   // of sessions, replies and waits
  TaskQueue inbox_;
  TaskQueue planning_;
  TaskQueue folders_;
  std::thread controller_;
  std::thread planner_;
  std::thread folder_keeper_;
};

Status Implementation::begin() {
  taken_at_ = clock_.now();
  store_->start([this](Ticket ticket) { inbox_.post_always([this, ticket] { when_durable(ticket); }); },
                [this](Status status) {
                  inbox_.post_always([this, status = std::move(status)] { tell(StoreHealth{status}); });
                });
  tell(Restore{store_->load(), store_->load_cordons()});
  restored_ = state_.store.last();
  std::future<void> restored = restored_durable_.get_future();
  controller_ = std::thread([this] { serve(); });
  planner_ = std::thread([this] { work_until_closed(planning_, "planner"); });
  folder_keeper_ = std::thread([this] { work_until_closed(folders_, "folders"); });
  if (restored_ == 0 || restored.wait_for(options_.restore_limit) == std::future_status::ready)
    return ok_status();
  return unavailable("the store did not commit within {:.0f} s of the start",
                     to_seconds(options_.restore_limit));
}

void Implementation::serve() {
  pthread_setname_np(pthread_self(), "controller");
  TimePoint next_tick = clock_.now();
  while (true) {
    std::optional<std::vector<Task>> tasks = inbox_.take(next_tick);
    if (!tasks) return end_everything();
    taken_at_ = clock_.now();
    for (const Task& task : *tasks) task();
    if (taken_at_ < next_tick) continue;
    tell(Tick{});
    telemetry_.set_census(take_census(state_));
    next_tick = taken_at_ + options_.tick;
  }
}

void Implementation::work_until_closed(TaskQueue& queue, const char* name) {
  pthread_setname_np(pthread_self(), name);
  while (std::optional<std::vector<Task>> tasks = queue.take(std::nullopt)) {
    for (const Task& task : *tasks) task();
  }
}

void Implementation::post_folder_work(Task task) {
  folders_.post_always([this, task = std::move(task)] {
    if (options_.before_folder_work) options_.before_folder_work();
    task();
  });
}

// Whoever posts to another goes before it: the folders' thread, the planner, the controller; then what they leave
// unanswered.
Status Implementation::stop() {
  stopping_ = true;
  folders_.close();
  if (folder_keeper_.joinable()) folder_keeper_.join();
  planning_.close();
  if (planner_.joinable()) planner_.join();
  inbox_.close();
  if (controller_.joinable()) controller_.join();
  return store_->stop();
}

void Implementation::end_everything() {
  answer_all(submissions_, stopping());
  answer_all(controls_, stopping());
  answer_all(cordonings_, stopping());
  answer_all(publications_, stopping());
  answer_all(look_ups_, stopping());
  waits_.abandon_all(stopping());
  for (auto& [session, sink] : std::exchange(sinks_, {})) {
    if (sink) sink->close(stopping());
  }
}

void Implementation::tell(Event event) {
  consequences_.push_back(std::move(event));
  if (applying_) return;
  applying_ = true;
  while (!consequences_.empty()) {
    Event next = std::move(consequences_.front());
    consequences_.pop_front();
    apply_one(std::move(next));
  }
  applying_ = false;
}

void Implementation::apply_one(Event event) {
  for (Command& command : apply(state_, std::move(event), now())) {
    std::visit([this](auto& one) { carry_out(one); }, command);
  }
}

void Implementation::when_durable(Ticket ticket) {
  tell(StoreDurable{ticket});
  if (restore_told_ || ticket < restored_) return;
  restore_told_ = true;
  restored_durable_.set_value();
}

void Implementation::carry_out(SendToWorker& command) {
  auto found = sinks_.find(command.session);
  if (found == sinks_.end() || !found->second) return;
  if (found->second->send(std::move(command.message))) return;
  const std::shared_ptr<WorkerSink> sink = std::exchange(found->second, nullptr);
  sink->close(unavailable("the session does not take what it is sent"));
  tell(SessionClosed{command.session, "its session does not take what it is sent"});
}

void Implementation::carry_out(CloseSession& command) {
  auto found = sinks_.find(command.session);
  if (found == sinks_.end() || !found->second) return;
  std::exchange(found->second, nullptr)->close(command.status);
}

void Implementation::carry_out(PlanAttempt& command) {
  post_folder_work([this, command = std::move(command)]() mutable {
    if (stopping_) return;
    AttemptPlanned planned{.job = command.job, .order = command.order, .status = {}};
    planned.status =
        within_memory("checkpoint", [&] { return prepare_folders(command, directory_locks_, planned); });
    planning_.post_always([this, command = std::move(command), planned = std::move(planned)]() mutable {
      if (stopping_) return;
      if (planned.status.ok() && command.question) planned.split = considered(*command.question);
      if (planned.status.ok()) planned.status = within_memory("plan", [&] { return plan(command, planned); });
      inbox_.post_always([this, planned = std::move(planned)] { tell(planned); });
    });
  });
}

// A question that memory does not suffice for costs the answer, and not the attempt.
SplitAnswer Implementation::considered(const SplitQuestion& question) const {
  StatusOr<SplitAnswer> answer =
      within_memory("split", [&] { return StatusOr<SplitAnswer>(options_.consider(question)); });
  return answer.ok() ? *std::move(answer) : SplitAnswer{.because = message(answer.status())};
}

void Implementation::carry_out(ConsiderSplit& command) {
  planning_.post_always([this, command = std::move(command)] {
    if (stopping_) return;
    SplitConsidered event{command.job, command.order, considered(command.question)};
    inbox_.post_always([this, event = std::move(event)] { tell(event); });
  });
}

void Implementation::carry_out(RemoveDrafts& command) {
  post_folder_work([this, command = std::move(command)] {
    const Status removed = remove_unfinished(command.place, command.job);
    if (!removed.ok()) log::warning("{}", message(removed));
    directory_locks_.erase(command.job);
  });
}

void Implementation::carry_out(LookForCheckpoint& command) {
  post_folder_work([this, command = std::move(command)] {
    if (stopping_) return;
    const StatusOr<FoundCheckpoint> found =
        find_checkpoint(command.directory, command.job, command.latest_step);
    if (!found.ok()) log::warning("{}", message(found.status()));
    CheckpointFound event{.job = command.job};
    if (found.ok()) event = {command.job, found->step, found->weights_digest};
    inbox_.post_always([this, event = std::move(event)] { tell(event); });
  });
}

void Implementation::carry_out(CommitCheckpoint& command) {
  post_folder_work([this, command = std::move(command)] {
    if (stopping_) return;
    const StatusOr<std::string> digest = commit_checkpoint(
        {command.place, command.job, command.attempt, command.step}, *command.spec, command.spec->ranks());
    CheckpointCommitted committed{.job = command.job,
                                  .order = command.order,
                                  .step = command.step,
                                  .status = digest.status(),
                                  .weights_digest = digest.ok() ? *digest : ""};
    inbox_.post_always([this, committed = std::move(committed)] { tell(committed); });
  });
}

void Implementation::carry_out(DiscardCheckpoint& command) {
  post_folder_work([command = std::move(command)] {
    const Status discarded = discard_checkpoint({command.place, command.job, command.attempt, command.step});
    if (!discarded.ok()) log::warning("{}", message(discarded));
  });
}

void Implementation::carry_out(CommitWeights& command) {
  post_folder_work([this, command = std::move(command)] {
    if (stopping_) return;
    WeightsCommitted committed{
        .job = command.job, .order = command.order, .weights = command.weights, .status = {}};
    committed.status = commit_weights_folder(command.weights, command.spec->model, command.spec->ranks());
    inbox_.post_always([this, committed = std::move(committed)] { tell(committed); });
  });
}

void Implementation::carry_out(DiscardWeights& command) {
  post_folder_work([command = std::move(command)] {
    const Status discarded = discard_weights_folder(command.weights);
    if (!discarded.ok()) log::warning("{}", message(discarded));
  });
}

void Implementation::submit(SubmitCall call, std::function<void(StatusOr<SubmitOutcome>)> done) {
  const TaskQueue::Posted posted =
      planning_.post([this, call = std::move(call), done] { check_submission(call, done); });
  if (const Status status = status_of(posted); !status.ok()) done(status);
}

// On the planner's thread.
void Implementation::check_submission(SubmitCall call,
                                      const std::function<void(StatusOr<SubmitOutcome>)>& done) {
  if (stopping_) return done(stopping());
  // Planning may take seconds: not for somebody who has left.
  if (call.is_abandoned && call.is_abandoned())
    return done(cancelled("submit: the caller did not wait for the check"));
  StatusOr<CheckedJob> checked = within_memory("check", [&] { return check_job(call.spec_yaml); });
  if (checked.ok()) checked = with_rebalancing_notes(*std::move(checked));
  const bool posted = inbox_.post_always([this, call = std::move(call), checked = std::move(checked), done] {
    if (!checked.ok()) return done(checked.status());
    if (call.dry_run) return done(checked->outcome);
    const ReplyId reply = next_id_++;
    submissions_[reply] = done;
    tell(Submit{reply, call.principal, call.request_id, checked->spec});
  });
  if (!posted) done(stopping());
}

void Implementation::get_job(std::string name, bool include_losses,
                             std::function<void(StatusOr<JobView>)> done) {
  call<StatusOr<JobView>>(done, [this, name = std::move(name), include_losses, done] {
    StatusOr<JobView> view = view_job(state_, name, include_losses, clock_.unix_milliseconds());
    if (!view.ok() || view->losses_in_store == 0) return done(std::move(view));
    store_->read_losses(name, [view = *std::move(view), done](StatusOr<std::vector<double>> losses) mutable {
      done(with_losses(std::move(view), std::move(losses)));
    });
  });
}

void Implementation::get_trace(std::string name, std::optional<int64_t> step,
                               std::function<void(StatusOr<TraceView>)> done) {
  call<StatusOr<TraceView>>(
      done, [this, name = std::move(name), step, done] { done(view_trace(state_, name, step)); });
}

void Implementation::get_measurements(std::string name,
                                      std::function<void(StatusOr<MeasurementsView>)> done) {
  call<StatusOr<MeasurementsView>>(
      done, [this, name = std::move(name), done] { done(view_measurements(state_, name)); });
}

void Implementation::list_jobs(std::function<void(StatusOr<std::vector<JobView>>)> done) {
  call<StatusOr<std::vector<JobView>>>(done,
                                       [this, done] { done(view_jobs(state_, clock_.unix_milliseconds())); });
}

template <typename Event, typename Value>
void Implementation::control(Callbacks<StatusOr<Value>>& waiting, std::string name, std::string principal,
                             std::function<void(StatusOr<Value>)> done) {
  call<StatusOr<Value>>(done,
                        [this, &waiting, name = std::move(name), principal = std::move(principal), done] {
                          const ReplyId reply = next_id_++;
                          waiting[reply] = done;
                          tell(Event{reply, name, principal});
                        });
}

void Implementation::cancel_job(std::string name, std::string principal,
                                std::function<void(StatusOr<JobState>)> done) {
  control<Cancel>(controls_, std::move(name), std::move(principal), std::move(done));
}

void Implementation::pause_job(std::string name, std::string principal,
                               std::function<void(StatusOr<JobState>)> done) {
  control<Pause>(controls_, std::move(name), std::move(principal), std::move(done));
}

void Implementation::drain_worker(std::string name, std::string principal,
                                  std::function<void(StatusOr<std::vector<WorkerView>>)> done) {
  control<Drain>(cordonings_, std::move(name), std::move(principal), std::move(done));
}

void Implementation::uncordon_worker(std::string name, std::string principal,
                                     std::function<void(StatusOr<std::vector<WorkerView>>)> done) {
  control<Uncordon>(cordonings_, std::move(name), std::move(principal), std::move(done));
}

// The file is checked as that of a submission, on the planner's thread.
void Implementation::resume_job(ResumeCall resumed, std::function<void(StatusOr<JobState>)> done) {
  const auto resume = [this, resumed, done](std::shared_ptr<const plan::JobSpec> spec) {
    const ReplyId reply = next_id_++;
    controls_[reply] = done;
    tell(Resume{reply, resumed.name, resumed.principal, std::move(spec)});
  };
  if (resumed.spec_yaml.empty()) return call<StatusOr<JobState>>(done, [resume] { resume(nullptr); });
  const TaskQueue::Posted posted = planning_.post([this, resumed, resume, done] {
    if (stopping_) return done(stopping());
    StatusOr<CheckedJob> checked = within_memory("check", [&] { return check_job(resumed.spec_yaml); });
    if (!checked.ok()) return done(checked.status());
    const bool taken = inbox_.post_always([resume, spec = checked->spec] { resume(spec); });
    if (!taken) done(stopping());
  });
  if (const Status status = status_of(posted); !status.ok()) done(status);
}

WaitId Implementation::wait_job(JobWait wait, std::function<void(StatusOr<JobView>)> done) {
  const WaitId id = next_id_++;
  call<StatusOr<JobView>>(done, [this, id, wait = std::move(wait), done] {
    waits_.add(id, wait, done, state_, clock_.unix_milliseconds());
  });
  return id;
}

WaitId Implementation::wait_logs(LogWait wait, std::function<void(StatusOr<LogPage>)> done) {
  const WaitId id = next_id_++;
  call<StatusOr<LogPage>>(done,
                          [this, id, wait = std::move(wait), done] { waits_.add(id, wait, done, state_); });
  return id;
}

void Implementation::abandon(WaitId id) {
  inbox_.post_always([this, id] {
    if (!waits_.abandon(id, cancelled("the wait was abandoned"))) tell(LookUpAbandoned{id});
  });
}

void Implementation::list_workers(std::function<void(StatusOr<std::vector<WorkerView>>)> done) {
  call<StatusOr<std::vector<WorkerView>>>(done, [this, done] { done(worker_views(state_.fleet)); });
}

SessionId Implementation::open_session(Registration registration, std::shared_ptr<WorkerSink> sink) {
  const SessionId session = next_id_++;
  const TaskQueue::Posted posted = inbox_.post([this, session, registration = std::move(registration), sink] {
    sinks_[session] = sink;
    tell(SessionOpened{session, registration});
  });
  if (const Status status = status_of(posted); !status.ok()) sink->close(status);
  return session;
}

void Implementation::deliver(SessionId session, WorkerMessage message, std::function<void()> taken) {
  const bool posted = inbox_.post_always([this, session, message = std::move(message), taken]() mutable {
    tell(SessionSaid{session, std::move(message)});
    taken();
  });
  if (!posted) taken();
}

void Implementation::close_session(SessionId session, std::string reason) {
  inbox_.post_always([this, session, reason = std::move(reason)] {
    sinks_.erase(session);
    tell(SessionClosed{session, reason});
  });
}

void Implementation::publish(CommunicatorKey key, std::string value, std::function<void(Status)> done) {
  call<Status>(done, [this, key = std::move(key), value = std::move(value), done] {
    const ReplyId reply = next_id_++;
    publications_[reply] = done;
    tell(Publish{reply, key, value});
  });
}

WaitId Implementation::look_up(CommunicatorKey key, Duration timeout,
                               std::function<void(StatusOr<std::string>)> done) {
  const WaitId id = next_id_++;
  call<StatusOr<std::string>>(done, [this, id, key = std::move(key), timeout, done] {
    look_ups_[id] = done;
    tell(LookUp{id, key, taken_at_ + timeout});
  });
  return id;
}

}  // namespace

StatusOr<std::unique_ptr<CoreController>> CoreController::start(
    ControllerOptions options, std::unique_ptr<Store> store, std::shared_ptr<prometheus::Registry> registry,
    const Clock& clock) {
  auto controller =
      std::make_unique<Implementation>(std::move(options), std::move(store), std::move(registry), clock);
  PENSTOCK_RETURN_IF_ERROR(controller->begin());
  return std::unique_ptr<CoreController>(std::move(controller));
}

}  // namespace penstock::coordinator
