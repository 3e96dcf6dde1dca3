#include "coordinator/controller/core_controller.h"

#include <gmock/gmock.h>
#include <prometheus/text_serializer.h>

#include "base/checkpoint/manifest.h"
#include "base/file_lock.h"
#include "base/safetensors/folder.h"
#include "base/safetensors/testing/written.h"
#include "coordinator/controller/internal/task_queue.h"
#include "coordinator/controller/internal/within_memory.h"
#include "coordinator/controller/testing/controlled_fleet.h"
#include "plan/spec/parameters.h"

namespace penstock::coordinator {
namespace {

using ::testing::HasSubstr;
using enum JobState;

TEST_F(CoreControllerTest, submitted_job_goes_through_its_whole_life) {
  FakeWorker workers[2] = {open("worker-0"), open("worker-1")};
  for (FakeWorker& worker : workers) EXPECT_EQ(worker.sink->next<Registered>().lease_ms, 2000);
  const auto outcome = submit({.principal = "ann", .spec_yaml = kJob});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->name, "tiny");

  Assignment assignments[2];
  for (int w = 0; w < 2; ++w) {
    assignments[w] = workers[w].sink->next<Assignment>();
    say(workers[w], RankReady{assignments[w].attempt, assignments[w].rank, 4242, "test"});
  }
  wait_for("tiny", Running);
  for (int64_t step = 0; step < 2; ++step) {
    for (int w = 0; w < 2; ++w) say(workers[w], report(assignments[w], step));
  }
  for (int w = 0; w < 2; ++w) say(workers[w], finished(assignments[w]));
  const JobView view = wait_for("tiny", Succeeded);
  EXPECT_EQ(view.losses, (std::vector<double>{5.0, 4.0}));
  EXPECT_EQ(view.weights_digest.size(), 32u);
  EXPECT_EQ(view.by, "coordinator");
  for (int w = 0; w < 2; ++w) say(workers[w], ExecutorStopped{assignments[w].attempt, assignments[w].rank});
  for (const WorkerView& worker : fleet()) EXPECT_EQ(worker.state, "free");
  const std::string page = prometheus::TextSerializer().Serialize(registry->Collect());
  EXPECT_THAT(page, HasSubstr("penstock_job_step{training_job=\"tiny\"} 2"));
  start();  // what has ended is told out of the store
  EXPECT_EQ(get("tiny")->losses, view.losses);
}

class WeightsOfAJob : public CoreControllerTest {
 protected:
  // A job whose ranks have done all of their steps, and what they were told.
  void train() {
    Options options;
    options.weights_root = (folder / "jobs").string();
    start(options);
    for (int w = 0; w < 2; ++w) workers[w] = open(fmt::format("worker-{}", w));
    ASSERT_TRUE(submit({.spec_yaml = kJob}).ok());
    for (int w = 0; w < 2; ++w) {
      assignments[w] = workers[w].sink->next<Assignment>();
      say(workers[w], RankReady{assignments[w].attempt, assignments[w].rank, 4242, "test"});
    }
    for (int64_t step = 0; step < 2; ++step) {
      for (int w = 0; w < 2; ++w) say(workers[w], report(assignments[w], step));
    }
  }
  void write_weights(int rank, size_t first, size_t last) {
    std::vector<testing::WrittenTensor> tensors;
    const auto parameters = plan::model_parameters(plan::parse_job_spec(kJob)->model);
    for (size_t i = first; i < last; ++i) {
      tensors.push_back({parameters[i].name, parameters[i].shape,
                         std::vector<float>(static_cast<size_t>(parameters[i].elements()), 0.5f)});
    }
    testing::write_tensors(assignments[rank].weights.directory + "/" + tensor_file_name("rank", rank, 2),
                           tensors);
  }
  FakeWorker workers[2];
  Assignment assignments[2];
};

TEST_F(WeightsOfAJob, have_their_folder_before_the_ranks_are_told_and_are_whole_when_it_has_succeeded) {
  train();
  const WeightsPlace& place = assignments[1].weights;
  EXPECT_EQ(place.directory, folder / "jobs/tiny/weights");
  EXPECT_TRUE(std::filesystem::exists(place.directory + "/" + place.marker));
  for (int w = 0; w < 2; ++w) {
    write_weights(w, w == 0 ? 0 : 19, w == 0 ? 19 : 39);
    say(workers[w], finished(assignments[w]));
  }
  EXPECT_EQ(wait_for("tiny", Succeeded).weights_directory, place.directory);
  EXPECT_TRUE(TensorFolder::open(place.directory).ok());
}

TEST_F(WeightsOfAJob, that_a_rank_did_not_write_fail_it) {
  train();
  write_weights(0, 0, 19);
  for (int w = 0; w < 2; ++w) say(workers[w], finished(assignments[w]));
  EXPECT_THAT(wait_for("tiny", Failed).reason, HasSubstr("the final weights cannot be kept: "));
  EXPECT_FALSE(TensorFolder::open(assignments[0].weights.directory).ok());
}

TEST_F(WeightsOfAJob, without_a_folder_fail_it_before_any_rank_is_told) {
  Options options;
  options.weights_root = (folder / "coordinator.db").string();  // a file: nothing can be made below it
  start(options);
  for (int w = 0; w < 2; ++w) workers[w] = open(fmt::format("worker-{}", w));
  ASSERT_TRUE(submit({.spec_yaml = kJob}).ok());
  EXPECT_THAT(wait_for("tiny", Failed).reason, HasSubstr("coordinator.db/tiny/weights cannot be made"));
}

TEST_F(WeightsOfAJob, and_its_checkpoints_have_a_directory_that_no_other_coordinators_job_writes_into) {
  Options options;
  options.weights_root = (folder / "jobs").string();
  start(options);
  for (int w = 0; w < 2; ++w) workers[w] = open(fmt::format("worker-{}", w));
  const std::filesystem::path kept = folder / "kept";
  const std::filesystem::path draft = kept / draft_name("tiny", 1, 1) / "half";
  std::filesystem::create_directories(draft);
  const std::string job = fmt::format("{}checkpoint: {{every: 1, directory: {}}}\n", kJob, kept.string());
  std::optional<FileLock> theirs = FileLock::take(kept / ".lock", "job tiny of another one").value();
  ASSERT_TRUE(submit({.spec_yaml = job}).ok());
  EXPECT_THAT(wait_for("tiny", Failed).reason, HasSubstr("held by job tiny of another one"));
  EXPECT_TRUE(std::filesystem::exists(draft));

  theirs.reset();
  std::string name = submit({.spec_yaml = job})->name;
  for (int w = 0; w < 2; ++w) assignments[w] = workers[w].sink->next<Assignment>();
  EXPECT_EQ(assignments[0].attempt.job, name);
  EXPECT_FALSE(FileLock::take(kept / ".lock", "somebody").ok());
  // It ends with the executors that may write: what is asked of the folders' thread afterwards finds it gone.
  Answer<StatusOr<JobState>> cancelled;
  controller->cancel_job(name, "ann", cancelled.callback());
  ASSERT_TRUE(cancelled.get().ok());
  for (int w = 0; w < 2; ++w) say(workers[w], ExecutorStopped{assignments[w].attempt, assignments[w].rank});
  name = submit({.spec_yaml = job})->name;
  for (const FakeWorker& worker : workers) EXPECT_EQ(worker.sink->next<Assignment>().attempt.job, name);
}

TEST_F(CoreControllerTest, submit_is_answered_while_another_jobs_folders_take_their_time) {
  // Every byte of a checkpoint is read before an attempt: minutes, for a big one on a slow disk.
  std::promise<void> begun, may_end;
  std::shared_future<void> end = may_end.get_future().share();
  std::once_flag first;
  start({}, [&, end] {
    std::call_once(first, [&] { begun.set_value(); });
    end.wait();
  });
  const FakeWorker workers[] = {open("worker-0"), open("worker-1")};
  ASSERT_TRUE(submit({.spec_yaml = kJob}).ok());
  begun.get_future().wait();  // its attempt is being prepared, and stays so
  const auto second = submit({.spec_yaml = kJob});
  EXPECT_TRUE(second.ok()) << second.status();
  EXPECT_TRUE(submit({.spec_yaml = kJob, .dry_run = true}).ok());
  EXPECT_EQ(get("tiny")->state, Preparing);
  may_end.set_value();
  for (const FakeWorker& worker : workers) EXPECT_EQ(worker.sink->next<Assignment>().attempt.job, "tiny");
}

TEST_F(CoreControllerTest, job_file_that_is_wrong_is_refused_and_starts_nothing) {
  const auto outcome = submit({.spec_yaml = "name: tiny\nmodle: {}\n"});
  EXPECT_EQ(outcome.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(message(outcome.status()), HasSubstr("modle"));
  Answer<StatusOr<std::vector<JobView>>> jobs;
  controller->list_jobs(jobs.callback());
  EXPECT_TRUE(jobs.get()->empty());
}

TEST_F(CoreControllerTest, dry_run_checks_and_leaves_nothing) {
  const auto outcome = submit({.spec_yaml = kJob, .dry_run = true});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->stages, 2);
  EXPECT_TRUE(outcome->notes.empty());
  EXPECT_EQ(get("tiny").status().code(), StatusCode::kNotFound);
}

TEST_F(CoreControllerTest, wait_answers_at_the_next_change_and_not_before) {
  ASSERT_TRUE(submit({.spec_yaml = kJob}).ok());
  const JobView placing = wait_for("tiny", Placing);
  Answer<StatusOr<JobView>> next;
  controller->wait_job({.name = "tiny", .after_version = placing.version}, next.callback());
  ASSERT_TRUE(get("tiny").ok());  // a later call has been answered: the wait is pending
  EXPECT_FALSE(next.is_ready());
  Answer<StatusOr<JobState>> cancel;
  controller->cancel_job("tiny", "bob", cancel.callback());
  EXPECT_EQ(*cancel.get(), Cancelled);
  EXPECT_EQ(next.get()->state, Cancelled);
  Answer<StatusOr<JobView>> after_the_end;
  controller->wait_job({.name = "tiny", .after_version = 1'000'000}, after_the_end.callback());
  EXPECT_TRUE(after_the_end.get()->ended());
}

TEST_F(CoreControllerTest, abandoned_wait_is_answered_cancelled_once) {
  ASSERT_TRUE(submit({.spec_yaml = kJob}).ok());
  const JobView placing = wait_for("tiny", Placing);
  Answer<StatusOr<JobView>> job;
  const WaitId wait =
      controller->wait_job({.name = "tiny", .after_version = placing.version}, job.callback());
  Answer<StatusOr<LogPage>> log;
  const WaitId log_wait = controller->wait_logs({.name = "tiny", .follow = true}, log.callback());
  for (int i = 0; i < 2; ++i) {
    controller->abandon(wait);
    controller->abandon(log_wait);
  }
  EXPECT_EQ(job.get().status().code(), StatusCode::kCancelled);
  EXPECT_EQ(log.get().status().code(), StatusCode::kCancelled);
}

TEST_F(CoreControllerTest, followed_log_answers_when_lines_come_and_ends_with_the_job) {
  FakeWorker workers[2] = {open("worker-0"), open("worker-1")};
  ASSERT_TRUE(submit({.spec_yaml = kJob}).ok());
  const Assignment assignment = workers[0].sink->next<Assignment>();
  workers[1].sink->next<Assignment>();
  Answer<StatusOr<LogPage>> first;
  controller->wait_logs({.name = "tiny", .follow = true}, first.callback());
  say(workers[0], LogBatch{assignment.attempt, assignment.rank, {"hello"}, 0});
  const StatusOr<LogPage> page = first.get();
  ASSERT_EQ(page->lines.size(), 1u);
  EXPECT_EQ(page->lines[0].text, "hello");
  EXPECT_FALSE(page->ended);

  Answer<StatusOr<LogPage>> last;
  controller->wait_logs({.name = "tiny", .cursor = page->next, .follow = true}, last.callback());
  Answer<StatusOr<JobState>> cancel;
  controller->cancel_job("tiny", "bob", cancel.callback());
  EXPECT_EQ(*cancel.get(), Cancelled);
  for (FakeWorker& worker : workers) {
    const Abort abort = worker.sink->next<Abort>();
    say(worker, ExecutorStopped{abort.attempt, abort.rank});
  }
  EXPECT_TRUE(last.get()->ended);
}

TEST_F(CoreControllerTest, broker_call_waits_for_its_publication) {
  FakeWorker workers[2] = {open("worker-0"), open("worker-1")};
  ASSERT_TRUE(submit({.spec_yaml = kJob}).ok());
  const Assignment assignment = workers[0].sink->next<Assignment>();
  CommunicatorKey key{assignment.attempt, "pipeline", assignment.rank, "address"};
  Answer<StatusOr<std::string>> value;
  controller->look_up(key, 20s, value.callback());
  Answer<Status> published;
  controller->publish(key, "127.0.0.1:5", published.callback());
  EXPECT_TRUE(published.get().ok());
  EXPECT_EQ(*value.get(), "127.0.0.1:5");

  key.item = "never";
  Answer<StatusOr<std::string>> missing;
  controller->look_up(key, 50ms, missing.callback());
  const StatusOr<std::string> late = missing.get();
  EXPECT_EQ(late.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(message(late.status()), HasSubstr("rank 0 on worker-0"));
  Answer<StatusOr<std::string>> abandoned;
  controller->abandon(controller->look_up(key, 20s, abandoned.callback()));
  EXPECT_EQ(abandoned.get().status().code(), StatusCode::kCancelled);
}

TEST_F(CoreControllerTest, session_that_takes_nothing_loses_its_worker) {
  FakeWorker worker = open("worker-0");
  worker.sink->next<Registered>();
  worker.sink->refuse();
  say(worker, Heartbeat{1});
  EXPECT_EQ(worker.sink->wait_closed().code(), StatusCode::kUnavailable);
  EXPECT_EQ(fleet().at(0).state, "lost");
  controller->close_session(worker.session, "ended");
}

TEST_F(CoreControllerTest, silent_worker_is_lost_after_its_leases) {
  Options options;
  options.lease = 50ms;
  start(options);
  FakeWorker worker = open("worker-0");
  const Status status = worker.sink->wait_closed();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(message(status), HasSubstr("silent"));
}

TEST_F(CoreControllerTest, older_incarnation_is_turned_away_through_its_sink) {
  FakeWorker worker = open("worker-0", 2);
  worker.sink->next<Registered>();
  FakeWorker older = open("worker-0", 1);
  EXPECT_EQ(older.sink->wait_closed().code(), StatusCode::kAborted);
  EXPECT_EQ(fleet().at(0).incarnation, 2);
}

TEST_F(CoreControllerTest, stop_answers_everything_and_later_calls_are_unavailable) {
  FakeWorker worker = open("worker-0");
  worker.sink->next<Registered>();
  ASSERT_TRUE(submit({.spec_yaml = kJob}).ok());
  const JobView placing = wait_for("tiny", Placing);
  Answer<StatusOr<JobView>> pending;
  controller->wait_job({.name = "tiny", .after_version = placing.version}, pending.callback());
  EXPECT_TRUE(controller->stop().ok());
  EXPECT_EQ(pending.get().status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(worker.sink->wait_closed().code(), StatusCode::kUnavailable);
  EXPECT_EQ(submit({.spec_yaml = kJob}).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(get("tiny").status().code(), StatusCode::kUnavailable);
  controller->close_session(worker.session, "ended");
  EXPECT_TRUE(controller->stop().ok());
}

TEST_F(CoreControllerTest, restarted_controller_knows_its_jobs) {
  ASSERT_TRUE(submit({.spec_yaml = kJob, .request_id = "r1"}).ok());
  wait_for("tiny", Placing);
  FakeWorker workers[2] = {open("worker-0"), open("worker-1")};
  for (FakeWorker& worker : workers) worker.sink->next<Assignment>();
  ASSERT_EQ(submit({.spec_yaml = kJob, .request_id = "r2"})->name, "tiny-2");
  start();
  const JobView failed = *get("tiny");
  EXPECT_EQ(failed.state, Failed);  // durable before the first call is answered
  EXPECT_THAT(failed.reason, HasSubstr("coordinator was restarted"));
  EXPECT_FALSE(get("tiny-2")->ended());
  EXPECT_EQ(submit({.spec_yaml = kJob, .request_id = "r2"})->name, "tiny-2");
}

TEST_F(CoreControllerTest, call_that_was_abandoned_is_not_planned) {
  // A check takes seconds for a big job; nobody waits for this one.
  const auto outcome = submit({.spec_yaml = kJob, .is_abandoned = [] { return true; }});
  EXPECT_EQ(outcome.status().code(), StatusCode::kCancelled);
  EXPECT_EQ(get("tiny").status().code(), StatusCode::kNotFound);
}

TEST(WithinMemoryTest, job_that_memory_does_not_hold_is_refused) {
  const auto answer = within_memory("plan", []() -> StatusOr<int> { throw std::bad_alloc(); });
  EXPECT_EQ(answer.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(*within_memory("plan", []() -> StatusOr<int> { return 7; }), 7);
}

TEST(TaskQueueTest, calls_beyond_the_bound_are_refused_and_others_are_not) {
  TaskQueue queue(2);
  EXPECT_EQ(queue.post([] {}), TaskQueue::Posted::Taken);
  EXPECT_EQ(queue.post([] {}), TaskQueue::Posted::Taken);
  EXPECT_EQ(queue.post([] {}), TaskQueue::Posted::Full);
  EXPECT_TRUE(queue.post_always([] {}));
  EXPECT_EQ(queue.take(std::nullopt)->size(), 3u);
  EXPECT_EQ(queue.post([] {}), TaskQueue::Posted::Taken);
  queue.close();
  EXPECT_EQ(queue.post([] {}), TaskQueue::Posted::Closed);
  EXPECT_EQ(queue.take(std::nullopt)->size(), 1u);
  EXPECT_FALSE(queue.take(std::nullopt).has_value());
}

}  // namespace
}  // namespace penstock::coordinator
