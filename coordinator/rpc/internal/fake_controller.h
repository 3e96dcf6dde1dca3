// Tests' stand-in for the controller: answers from what a test has put into it, waits where the real one
// waits.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/controller/controller.h"

namespace penstock::coordinator {

class FakeController final : public Controller {
 public:
  // What a test sets and looks at; lock `mutex` for both, notify `changed`.
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, JobView> jobs;
  std::map<std::string, TraceView> traces;
  std::map<std::string, MeasurementsView> measurements;
  std::vector<LogLineView> log;
  std::vector<SubmitCall> submissions;
  std::vector<Registration> registrations;
  std::vector<WorkerMessage> delivered;
  std::vector<std::function<void()>> held;  // `taken` of what was delivered while hold is set
  bool hold = false;
  std::vector<std::string> closed;  // reasons
  std::shared_ptr<WorkerSink> sink;
  std::map<std::string, std::string> published;
  int abandoned = 0;
  int answers_of_watch = 0;
  bool hold_logs = false;  // readers of logs wait for answer_logs
  int asked_for_logs = 0;  // while hold_logs

  // Changes the job and wakes whoever waits for it.
  void update(JobView view) {
    std::vector<std::function<void()>> answers;
    {
      const std::lock_guard lock(mutex);
      view.version = jobs[view.name].version + 1;
      jobs[view.name] = view;
      std::erase_if(waits_, [&](auto& wait) {
        if (wait.second.job != view.name) return false;
        ++answers_of_watch;
        answers.push_back([done = wait.second.done, view] { done(view); });
        return true;
      });
      changed.notify_all();
    }
    for (const auto& answer : answers) answer();
  }
  // An empty page, after which they ask again, to all who wait for logs; waits a little for the first of them.
  void answer_logs() {
    std::map<WaitId, std::function<void(StatusOr<LogPage>)>> waits;
    {
      std::unique_lock lock(mutex);
      changed.wait_for(lock, std::chrono::milliseconds(10), [&] { return !log_waits_.empty(); });
      waits.swap(log_waits_);
    }
    for (const auto& [id, done] : waits) done(LogPage{});
  }
  // Waits until `condition` holds; false after 20 s.
  bool await(const std::function<bool()>& condition) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(20), condition);
  }
  size_t waiting() const { return waits_.size() + look_ups_.size(); }

  void submit(SubmitCall call, std::function<void(StatusOr<SubmitOutcome>)> done) override {
    if (call.spec_yaml.empty()) return done(invalid_argument("line 1: name: expected a name, found nothing"));
    SubmitOutcome outcome;
    outcome.name = "job";
    outcome.notes = {"restart.max counts as 0"};
    outcome.ranks = 2;
    outcome.stage_items = {"embedding 0", "1 head"};
    {
      const std::lock_guard lock(mutex);
      submissions.push_back(std::move(call));
    }
    done(outcome);
  }
  void get_job(std::string name, bool include_losses, std::function<void(StatusOr<JobView>)> done) override {
    StatusOr<JobView> view = find(name);
    if (view.ok() && !include_losses) view->losses.clear();
    done(std::move(view));
  }
  void get_trace(std::string name, std::optional<int64_t> step,
                 std::function<void(StatusOr<TraceView>)> done) override {
    const std::lock_guard lock(mutex);
    const auto found = traces.find(name);
    if (found == traces.end()) return done(not_found("no trace of {}", name));
    TraceView view = found->second;
    if (step) view.step = *step;
    done(std::move(view));
  }
  void get_measurements(std::string name, std::function<void(StatusOr<MeasurementsView>)> done) override {
    const std::lock_guard lock(mutex);
    const auto found = measurements.find(name);
    if (found == measurements.end()) return done(not_found("nothing of {}", name));
    done(found->second);
  }
  void list_jobs(std::function<void(StatusOr<std::vector<JobView>>)> done) override {
    std::vector<JobView> views;
    {
      const std::lock_guard lock(mutex);
      for (const auto& [name, view] : jobs) views.push_back(view);
    }
    done(views);
  }
  void cancel_job(std::string name, std::string, std::function<void(StatusOr<JobState>)> done) override {
    const StatusOr<JobView> view = find(name);
    view.ok() ? done(JobState::Cancelled) : done(view.status());
  }
  void pause_job(std::string name, std::string, std::function<void(StatusOr<JobState>)> done) override {
    const StatusOr<JobView> view = find(name);
    view.ok() ? done(JobState::Draining) : done(view.status());
  }
  void resume_job(ResumeCall call, std::function<void(StatusOr<JobState>)> done) override {
    const StatusOr<JobView> view = find(call.name);
    view.ok() ? done(call.spec_yaml.empty() ? JobState::Queued : JobState::Placing) : done(view.status());
  }
  WaitId wait_job(JobWait wait, std::function<void(StatusOr<JobView>)> done) override {
    StatusOr<JobView> view = find(wait.name);
    WaitId id = 0;
    {
      const std::lock_guard lock(mutex);
      id = ++next_;
      const bool now = !view.ok() || jobs[wait.name].version > wait.after_version;
      if (view.ok()) view = jobs[wait.name];
      if (!now) {
        waits_[id] = Wait{wait.name, done};
        changed.notify_all();
        return id;
      }
      ++answers_of_watch;
    }
    done(std::move(view));
    return id;
  }
  WaitId wait_logs(LogWait wait, std::function<void(StatusOr<LogPage>)> done) override {
    LogPage page;
    {
      const std::lock_guard lock(mutex);
      if (hold_logs) {
        log_waits_[++next_] = std::move(done);
        ++asked_for_logs;
        changed.notify_all();
        return next_;
      }
      for (size_t i = wait.cursor; i < log.size() && page.lines.size() < 3; ++i) page.lines.push_back(log[i]);
      page.next = wait.cursor + page.lines.size();
      page.ended = page.next == log.size();
    }
    done(page);
    return 0;
  }
  void abandon(WaitId id) override {
    std::function<void()> answer;
    {
      const std::lock_guard lock(mutex);
      if (const auto wait = waits_.find(id); wait != waits_.end()) {
        answer = [done = wait->second.done] { done(cancelled("abandoned")); };
        waits_.erase(wait);
      }
      if (const auto wait = look_ups_.find(id); wait != look_ups_.end()) {
        answer = [done = wait->second] { done(cancelled("abandoned")); };
        look_ups_.erase(wait);
      }
      if (const auto wait = log_waits_.find(id); wait != log_waits_.end()) {
        answer = [done = wait->second] { done(cancelled("abandoned")); };
        log_waits_.erase(wait);
      }
      if (answer) ++abandoned;
      changed.notify_all();
    }
    if (answer) answer();
  }
  void list_workers(std::function<void(StatusOr<std::vector<WorkerView>>)> done) override {
    WorkerView view;
    view.name = "w1";
    view.state = "free";
    view.device = "cpu:0";
    done(std::vector<WorkerView>{view});
  }
  void drain_worker(std::string name, std::string principal,
                    std::function<void(StatusOr<std::vector<WorkerView>>)> done) override {
    done(worker_with(name, "drained", principal));
  }
  void uncordon_worker(std::string name, std::string,
                       std::function<void(StatusOr<std::vector<WorkerView>>)> done) override {
    done(worker_with(name, "free", ""));
  }
  SessionId open_session(Registration registration, std::shared_ptr<WorkerSink> opened) override {
    opened->send(Registered{2000, 3, "fake"});
    const std::lock_guard lock(mutex);
    registrations.push_back(std::move(registration));
    sink = std::move(opened);
    changed.notify_all();
    return registrations.size();
  }
  void deliver(SessionId, WorkerMessage message, std::function<void()> taken) override {
    {
      const std::lock_guard lock(mutex);
      delivered.push_back(std::move(message));
      changed.notify_all();
      if (hold) {
        held.push_back(std::move(taken));
        return;
      }
    }
    taken();
  }
  void close_session(SessionId, std::string reason) override {
    const std::lock_guard lock(mutex);
    closed.push_back(std::move(reason));
    sink.reset();
    changed.notify_all();
  }
  void publish(CommunicatorKey key, std::string value, std::function<void(Status)> done) override {
    bool fresh = false;
    {
      const std::lock_guard lock(mutex);
      fresh = published.emplace(key.item, value).second;
    }
    done(fresh ? ok_status() : already_exists("{} was published before", key.item));
  }
  WaitId look_up(CommunicatorKey key, Duration, std::function<void(StatusOr<std::string>)> done) override {
    std::optional<std::string> value;
    WaitId id = 0;
    {
      const std::lock_guard lock(mutex);
      id = ++next_;
      if (const auto found = published.find(key.item); found != published.end()) value = found->second;
      if (!value) look_ups_[id] = done;
      changed.notify_all();
    }
    if (value) done(*value);
    return id;
  }

 private:
  // Of "w1", the only one.
  static StatusOr<std::vector<WorkerView>> worker_with(const std::string& name, const std::string& state,
                                                       const std::string& by) {
    if (name != "w1") return not_found("worker {}: not known", name);
    WorkerView view;
    view.name = name;
    view.state = state;
    view.drained_by = by;
    return std::vector<WorkerView>{view};
  }
  struct Wait {
    std::string job;
    std::function<void(StatusOr<JobView>)> done;
  };
  StatusOr<JobView> find(const std::string& name) {
    const std::lock_guard lock(mutex);
    const auto found = jobs.find(name);
    if (found == jobs.end()) return not_found("no job {}", name);
    return found->second;
  }

  std::map<WaitId, Wait> waits_;
  std::map<WaitId, std::function<void(StatusOr<std::string>)>> look_ups_;
  std::map<WaitId, std::function<void(StatusOr<LogPage>)>> log_waits_;
  WaitId next_ = 0;
};

}  // namespace penstock::coordinator
