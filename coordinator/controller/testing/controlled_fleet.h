// A controller over a store on disk, and workers whose streams the test holds in its hands.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <future>
#include <mutex>

#include "coordinator/controller/core_controller.h"
#include "coordinator/store/sqlite_store.h"

namespace penstock::coordinator {

inline constexpr auto kPatience = std::chrono::seconds(30);

inline const char* const kJob =
    "name: tiny\n"
    "model: {vocab_size: 256, hidden_size: 8, num_hidden_layers: 4, num_attention_heads: 2, "
    "num_key_value_heads: 1, "
    "intermediate_size: 16, max_position_embeddings: 8}\n"
    "data: {source: /data/text.txt, sequence_length: 8}\n"
    "train: {steps: 2, global_batch_size: 4, microbatch_size: 1, dtype: float32}\n"
    "parallel: {pipeline: 2, schedule: 1f1b}\n";

// The answer of one call.
template <typename T>
class Answer {
 public:
  std::function<void(T)> callback() {
    return [this](T value) { promise_.set_value(std::move(value)); };
  }
  T get() {
    EXPECT_EQ(future_.wait_for(kPatience), std::future_status::ready);
    return future_.get();
  }
  bool is_ready() { return future_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }

 private:
  std::promise<T> promise_;
  std::future<T> future_ = promise_.get_future();
};

// The stream of one worker session, kept in memory.
class FakeSink final : public WorkerSink {
 public:
  bool send(CoordinatorMessage message) override {
    const std::lock_guard lock(mutex_);
    if (!takes_) return false;
    messages_.push_back(std::move(message));
    changed_.notify_all();
    return true;
  }
  void close(Status status) override {
    const std::lock_guard lock(mutex_);
    closed_ = status;
    changed_.notify_all();
  }

  // The next message of this kind; others before it are skipped.
  template <typename T>
  T next() {
    std::unique_lock lock(mutex_);
    while (true) {
      const bool came = changed_.wait_for(lock, kPatience, [&] { return !messages_.empty(); });
      if (!came) {
        ADD_FAILURE() << "no message came";
        return {};
      }
      CoordinatorMessage message = std::move(messages_.front());
      messages_.pop_front();
      if (T* found = std::get_if<T>(&message)) return std::move(*found);
    }
  }
  Status wait_closed() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] { return closed_.has_value(); }));
    return closed_.value_or(ok_status());
  }
  void refuse() {
    const std::lock_guard lock(mutex_);
    takes_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<CoordinatorMessage> messages_;
  std::optional<Status> closed_;
  bool takes_ = true;
};

struct FakeWorker {
  std::shared_ptr<FakeSink> sink = std::make_shared<FakeSink>();
  SessionId session = 0;
};

class CoreControllerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = std::filesystem::temp_directory_path() / "penstock-controller-XXXXXX";
    folder = mkdtemp(pattern.data());
    start();
  }
  void TearDown() override {
    controller.reset();
    std::filesystem::remove_all(folder);
  }

  void start(Options core = {}, std::function<void()> before_folder_work = {}) {
    ControllerOptions options;
    options.core = core;
    options.before_folder_work = std::move(before_folder_work);
    start(std::move(options));
  }
  void start(ControllerOptions options) {
    controller.reset();
    registry = std::make_shared<prometheus::Registry>();
    auto store = open_sqlite_store(folder / "coordinator.db");
    ASSERT_TRUE(store.ok()) << store.status();
    auto started = CoreController::start(std::move(options), *std::move(store), registry, clock);
    ASSERT_TRUE(started.ok()) << started.status();
    controller = *std::move(started);
  }

  StatusOr<SubmitOutcome> submit(SubmitCall call) {
    Answer<StatusOr<SubmitOutcome>> answer;
    controller->submit(std::move(call), answer.callback());
    return answer.get();
  }
  StatusOr<JobView> get(const std::string& name) {
    Answer<StatusOr<JobView>> answer;
    controller->get_job(name, true, answer.callback());
    return answer.get();
  }
  std::vector<WorkerView> fleet() {
    Answer<StatusOr<std::vector<WorkerView>>> answer;
    controller->list_workers(answer.callback());
    StatusOr<std::vector<WorkerView>> workers = answer.get();
    EXPECT_TRUE(workers.ok()) << workers.status();
    return workers.ok() ? *std::move(workers) : std::vector<WorkerView>{};
  }
  // Follows the job until it is in the state.
  JobView wait_for(const std::string& name, JobState state) {
    uint64_t version = 0;
    while (true) {
      Answer<StatusOr<JobView>> answer;
      controller->wait_job({.name = name, .after_version = version, .include_losses = true},
                           answer.callback());
      const StatusOr<JobView> view = answer.get();
      EXPECT_TRUE(view.ok()) << view.status();
      if (!view.ok() || view->state == state) return view.ok() ? *view : JobView{};
      EXPECT_FALSE(view->ended()) << view->reason;
      if (view->ended()) return *view;
      version = view->version;
    }
  }

  FakeWorker open(const std::string& name, int64_t incarnation = 1) {
    Registration registration;
    registration.worker = name;
    registration.host_id = "host";
    registration.incarnation = incarnation;
    registration.devices = {{"cpu", 0, "test"}};
    FakeWorker worker;
    worker.session = controller->open_session(registration, worker.sink);
    return worker;
  }
  void say(const FakeWorker& worker, WorkerMessage message) {
    Answer<int> taken;
    controller->deliver(worker.session, std::move(message), [done = taken.callback()] { done(0); });
    taken.get();
  }
  StepReport report(const Assignment& assignment, int64_t step) {
    StepReport report;
    report.attempt = assignment.attempt;
    report.rank = assignment.rank;
    report.step = step;
    report.wall_seconds = 0.25;
    if (assignment.rank == RankIndex(1)) report.loss = 5.0 - static_cast<double>(step);
    return report;
  }
  RankFinished finished(const Assignment& assignment) {
    RankFinished finished{assignment.attempt, assignment.rank, {}};
    // embedding, 4 blocks of 9, final norm, head: the first rank has the first 19.
    const int first = assignment.rank == RankIndex(0) ? 0 : 19;
    const int last = assignment.rank == RankIndex(0) ? 19 : 39;
    for (int32_t p = first; p < last; ++p) finished.digests.push_back({p, {1}});
    return finished;
  }

  SystemClock clock;
  std::filesystem::path folder;
  std::shared_ptr<prometheus::Registry> registry;
  std::unique_ptr<CoreController> controller;
};

}  // namespace penstock::coordinator
