// Jobs that lose an attempt: what they go on from, what is kept, and when they give up.
#include <gmock/gmock.h>

#include "coordinator/core/testing/world.h"

namespace penstock::coordinator {
namespace {

using namespace testing;  // World and its words
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using enum JobState;

Options with_state() {
  Options options;
  options.weights_root = "/state/jobs";
  return options;
}

const JobShape kKept = {.steps = 9,
                        .extra = "checkpoint: {every: 2}\nrestart: {max: 3, no_progress_limit: 2}\n"};

// Kills the executor of a rank and lets the others be stopped.
void lose_attempt(World& world, const std::string& name) {
  const RankPlacement place = world.place_of(name, 1);
  world.say(place.worker, RankFailed{world.key(name, 1), RankIndex(1), 3, "ended", -1, 9});
  for (int rank = 0; rank < 2; ++rank) world.stopped(name, rank);
}

// Reports steps first .. last - 1 of both ranks, and the part of a checkpoint after every second.
void run_steps(World& world, const std::string& name, int64_t first, int64_t last) {
  for (int64_t step = first; step < last; ++step) {
    world.all_report(name, step);
    if ((step + 1) % 2 != 0) continue;
    for (int rank = 0; rank < 2; ++rank) world.wrote(name, rank, step + 1);
  }
}

void keep(World& world, const std::string& name, int64_t step) {
  world.tell(
      CheckpointCommitted{name, world.job(name).attempt->order, step, ok_status(), std::string(32, 'd')});
  world.newest_checkpoint = step;
}

TEST(Checkpoint, is_committed_when_all_ranks_have_written_and_the_steps_before_it_are_durable) {
  // One of steps that a crash would lose could not be gone on from.
  World world(with_state());
  const std::string name = world.run(kKept);
  world.all_report(name, 0);
  world.durable_at_once = false;
  world.wrote(name, 0, 2);  // overtakes the report of its step
  world.wrote(name, 1, 2);
  world.report(name, 0, 1);
  EXPECT_TRUE(of<CommitCheckpoint>(world.report(name, 1, 1)).empty());
  const auto commits = of<CommitCheckpoint>(world.make_durable());
  ASSERT_EQ(commits.size(), 1u);
  EXPECT_EQ(commits[0].step, 2);
  EXPECT_EQ(commits[0].place.directory, "/state/jobs/tiny/checkpoints");
  EXPECT_EQ(world.archive.jobs()[0].losses.size(), 2u);
  world.durable_at_once = true;
  keep(world, name, 2);
  const auto view = view_job(world.state, name, false, 0);
  EXPECT_EQ(view->durable_step, 2);
  EXPECT_EQ(view->weights_digest, std::string(32, 'd'));
  EXPECT_EQ(view->checkpoints_directory, "/state/jobs/tiny/checkpoints");
  EXPECT_EQ(world.archive.jobs()[0].status.durable_step, 2);
}

TEST(Checkpoint, that_a_rank_could_not_write_is_said_and_the_job_goes_on) {
  World world(with_state());
  const std::string name = world.run(kKept);
  run_steps(world, name, 0, 2);
  keep(world, name, 2);
  for (int64_t step = 2; step < 4; ++step) world.all_report(name, step);
  world.wrote(name, 0, 4);
  const auto commands = world.wrote(name, 1, 4, "No space left on device");
  EXPECT_TRUE(of<CommitCheckpoint>(commands).empty());
  ASSERT_EQ(of<DiscardCheckpoint>(commands).size(), 1u);
  EXPECT_EQ(of<DiscardCheckpoint>(commands)[0].step, 4);
  EXPECT_EQ(world.state_of(name), Running);
  EXPECT_EQ(
      world.reason_of(name),
      "checkpoint of step 4 was not written: rank 1 on worker-1: No space left on device; the last one is of "
      "step 2");
  world.tell(
      CheckpointCommitted{name, world.job(name).attempt->order, 6, data_loss("a part is damaged"), ""});
  EXPECT_THAT(world.reason_of(name), HasSubstr("checkpoint of step 6 was not kept: a part is damaged"));
  EXPECT_EQ(world.job(name).status.durable_step, 2);
}

TEST(Checkpoint, reports_that_do_not_belong_are_refused) {
  World world(with_state());
  const std::string name = world.run(kKept);
  run_steps(world, name, 0, 2);
  const auto refused = [&](Refusal refusal) { return world.state.refused[static_cast<size_t>(refusal)]; };
  world.wrote(name, 0, 3);    // none is due then
  world.wrote(name, 0, 100);  // beyond the end
  EXPECT_EQ(refused(Refusal::Malformed), 2);
  world.wrote(name, 0, 2);
  EXPECT_EQ(refused(Refusal::Duplicate), 1);
  world.say("worker-0", CheckpointWritten{{name, 7, 1}, RankIndex(0), 4, ""});
  EXPECT_EQ(refused(Refusal::Stale), 1);
}

TEST(Checkpoint, last_one_is_waited_for_before_the_job_succeeds) {
  World world;  // without final weights
  JobShape shape = kKept;
  shape.steps = 2;
  shape.extra = "checkpoint: {every: 2, directory: /elsewhere}\n";
  const std::string name = world.run(shape);
  run_steps(world, name, 0, 2);
  for (int rank = 0; rank < 2; ++rank) world.finish(name, rank);
  EXPECT_EQ(world.state_of(name), Running);
  keep(world, name, 2);
  EXPECT_EQ(world.state_of(name), Succeeded);
}

TEST(Recovery, lost_rank_starts_a_new_attempt_from_the_newest_checkpoint) {
  World world(with_state());
  const std::string name = world.run(kKept);
  run_steps(world, name, 0, 5);
  keep(world, name, 4);
  const RankPlacement place = world.place_of(name, 1);
  const auto lost = world.say(place.worker, RankFailed{world.key(name, 1), RankIndex(1), 5, "ended", -1, 9});
  EXPECT_EQ(world.state_of(name), Recovering);
  EXPECT_THAT(world.reason_of(name), HasSubstr("attempt 1: rank 1 on worker-1 failed in step 5"));
  EXPECT_EQ(messages<Abort>(world, lost).size(), 1u);  // the other one
  world.tick();
  EXPECT_EQ(world.state_of(name), Recovering);  // its executor is still there
  for (int rank = 0; rank < 2; ++rank) world.stopped(name, rank);
  world.sent.clear();
  world.tick();
  world.tick();
  EXPECT_EQ(world.state_of(name), Preparing);
  EXPECT_EQ(world.job(name).status.attempt, 2);
  const auto assignments = messages<Assignment>(world, world.sent);
  ASSERT_EQ(assignments.size(), 2u);
  EXPECT_EQ(assignments[0].first_step, 4);
  EXPECT_EQ(assignments[0].load_from, "/state/jobs/tiny/checkpoints/step-000000004");
  EXPECT_EQ(assignments[0].attempt.attempt, 2);
  // Step 4 is done again, and what was reported stays.
  world.all_ready(name);
  EXPECT_EQ(world.job(name).status.step, 5);
  run_steps(world, name, 4, 9);
  EXPECT_EQ(world.job(name).status.step, 9);
  std::vector<double> expected;
  for (int step = 0; step < 9; ++step) expected.push_back(4.0 - 0.25 * step);
  EXPECT_EQ(world.job(name).losses, expected);
  EXPECT_EQ(world.archive.jobs()[0].losses, expected);
  EXPECT_EQ(view_job(world.state, name, false, 0)->restarts, 1);
}

TEST(Recovery, loss_that_comes_out_differently_fails_the_job_with_both) {
  World world(with_state());
  const std::string name = world.run(kKept);
  run_steps(world, name, 0, 3);
  keep(world, name, 2);
  lose_attempt(world, name);
  world.tick();
  world.tick();
  world.all_ready(name);
  StepReport other = world.step_report(name, 1, 2);
  other.loss = 3.75;
  world.say(world.place_of(name, 1).worker, other);
  world.report(name, 0, 2);
  EXPECT_EQ(world.state_of(name), Failed);
  EXPECT_THAT(world.reason_of(name),
              HasSubstr("step 2 was done again from the checkpoint of step 2 and must give the "
                        "same loss: expected 3.5, found 3.75"));
}

TEST(Recovery, attempts_that_bring_no_checkpoint_end_the_job_as_no_progress) {
  World world(with_state());
  const std::string name = world.run(kKept);
  lose_attempt(world, name);
  world.tick();
  world.tick();
  ASSERT_EQ(world.state_of(name), Preparing);
  EXPECT_EQ(messages<Assignment>(world, world.sent).back().first_step, 0);
  world.all_ready(name);
  lose_attempt(world, name);
  EXPECT_EQ(world.state_of(name), Failed);
  EXPECT_EQ(view_job(world.state, name, false, 0)->exit_code, static_cast<int>(ExitCode::NoProgress));
  EXPECT_THAT(world.reason_of(name), HasSubstr("restart.no_progress_limit"));
}

TEST(Recovery, checkpoint_starts_the_count_anew_until_the_restarts_are_used_up) {
  World world(with_state());
  JobShape shape = kKept;
  shape.steps = 100;
  const std::string name = world.run(shape);
  int64_t step = 0;
  for (int attempt = 1; attempt <= 4; ++attempt) {
    ASSERT_EQ(world.state_of(name), Running) << attempt;
    run_steps(world, name, step, step + 2);
    step += 2;
    keep(world, name, step);
    lose_attempt(world, name);
    world.tick();
    world.tick();
    if (attempt < 4) world.all_ready(name);
  }
  EXPECT_EQ(world.state_of(name), Failed);
  EXPECT_EQ(view_job(world.state, name, false, 0)->exit_code, static_cast<int>(ExitCode::Failed));
  EXPECT_THAT(world.reason_of(name), HasSubstr("restarted 3 times already"));
}

TEST(Recovery, coordinator_that_is_restarted_goes_on_and_counts_nothing) {
  World world(with_state());
  const std::string name = world.run(kKept);
  run_steps(world, name, 0, 3);
  keep(world, name, 2);
  World next(with_state());
  next.newest_checkpoint = 2;
  next.archive = world.archive;
  next.tell(Restore{world.archive.jobs()});
  EXPECT_EQ(next.state_of(name), Recovering);
  EXPECT_THAT(next.reason_of(name), HasSubstr("the coordinator was restarted"));
  EXPECT_EQ(next.job(name).status.restarts, 0);
  EXPECT_EQ(next.job(name).status.step, 3);
  // The same daemons come back; what they still run is stopped first.
  for (const char* worker : {"worker-0", "worker-1"}) next.open(registration(worker));
  EXPECT_EQ(next.state_of(name), Recovering);
  for (int rank = 0; rank < 2; ++rank) next.stopped(name, rank);
  next.tick();
  next.tick();
  ASSERT_EQ(next.state_of(name), Preparing);
  next.all_ready(name);
  run_steps(next, name, 2, 9);
  EXPECT_EQ(next.job(name).losses.size(), 9u);
  EXPECT_EQ(next.archive.jobs()[0].losses.size(), 9u);
}

TEST(Recovery, traces_of_two_attempts_are_never_joined) {
  World world(with_state());
  const std::string name = world.run(kKept);
  world.trace(name, 0, 0);
  lose_attempt(world, name);
  world.tick();
  world.tick();
  world.all_ready(name);
  world.trace(name, 1, 0);
  EXPECT_FALSE(view_trace(world.state, name, {}).ok());
  world.trace(name, 0, 0);
  EXPECT_TRUE(view_trace(world.state, name, {}).ok());
}

TEST(Recovery, time_that_the_planner_takes_is_not_the_ranks) {
  World world(with_state());
  world.plans_at_once = false;
  world.open(registration("worker-0", 1, 2));
  const std::string name = world.submit(kKept);
  ASSERT_EQ(world.state_of(name), Preparing);
  const auto pass = [&](Duration time) {
    for (Duration passed{}; passed < time; passed += 1s) {
      world.say("worker-0", Heartbeat{1});
      world.tick(1s);
    }
  };
  pass(2 * world.state.options.preparing_limit);  // it reads a large checkpoint
  ASSERT_EQ(world.state_of(name), Preparing);
  world.tell(AttemptPlanned{.job = name,
                            .order = world.job(name).attempt->order,
                            .status = {},
                            .plan = *plan_attempt(*job_spec(kKept))});
  pass(world.state.options.preparing_limit - 2s);
  ASSERT_EQ(world.state_of(name), Preparing);
  pass(4s);
  EXPECT_EQ(world.state_of(name), Recovering);
  EXPECT_THAT(world.reason_of(name), HasSubstr("not ready after 300 s"));
}

TEST(Recovery, disk_that_is_full_for_a_while_costs_an_attempt_and_not_the_job) {
  World world(with_state());
  world.plans_at_once = false;
  world.open(registration("worker-0", 1, 2));
  const std::string name = world.submit(kKept);
  const auto order = [&] { return world.job(name).attempt->order; };
  world.tell(AttemptPlanned{name, order(), unavailable("the marker cannot be made"), nullptr});
  ASSERT_EQ(world.state_of(name), Recovering);
  EXPECT_THAT(world.reason_of(name), HasSubstr("the marker cannot be made"));
  world.plans_at_once = true;
  world.tick();
  world.tick();
  world.all_ready(name);
  run_steps(world, name, 0, 9);
  for (const int64_t step : {2, 4, 6, 8}) keep(world, name, step);
  for (int rank = 0; rank < 2; ++rank) world.finish(name, rank);
  const Attempt attempt = *world.job(name).attempt;
  world.tell(WeightsCommitted{name, attempt.order, attempt.weights, resource_exhausted("no space is left")});
  EXPECT_EQ(world.state_of(name), Recovering);
  EXPECT_THAT(world.reason_of(name), HasSubstr("the final weights cannot be kept: no space is left"));
  for (int rank = 0; rank < 2; ++rank) world.stopped(name, rank);
  world.tick();
  world.tick();
  world.tell(AttemptPlanned{name, order(), already_exists("somebody else's"), nullptr});
  EXPECT_EQ(world.state_of(name), Failed);
}

TEST(Recovery, job_can_be_cancelled_while_it_recovers) {
  World world(with_state());
  const std::string name = world.run(kKept);
  const RankPlacement place = world.place_of(name, 1);
  world.say(place.worker, RankFailed{world.key(name, 1), RankIndex(1), 0, "ended", -1, 9});
  ASSERT_EQ(world.state_of(name), Recovering);
  world.tell(Cancel{77, name, "bob"});
  EXPECT_EQ(world.state_of(name), Cancelled);
  for (int rank = 0; rank < 2; ++rank) world.stopped(name, rank);
  world.tick();
  world.tick();
  EXPECT_EQ(world.state_of(name), Cancelled);
}

TEST(Recovery, checkpoint_that_is_refused_is_said_with_the_reason) {
  World world(with_state());
  world.plans_at_once = false;
  world.open(registration("worker-0", 1, 2));
  const std::string name = world.submit(kKept);
  world.tell(AttemptPlanned{.job = name,
                            .order = world.job(name).attempt->order,
                            .status = {},
                            .plan = *plan_attempt(*job_spec(kKept)),
                            .load_from = "/state/jobs/tiny/checkpoints/step-000000002",
                            .first_step = 2,
                            .refused = {"step-000000004/x: damaged"}});
  const auto& events = world.job(name).events;
  const auto said = [&](const std::string& words) {
    return std::any_of(events.begin(), events.end(), [&](const JobEventView& event) {
      return event.reason.find(words) != std::string::npos;
    });
  };
  EXPECT_TRUE(said("a checkpoint is not used: step-000000004/x: damaged"));
  EXPECT_TRUE(said("goes on from the checkpoint of step 2"));
}

bool has_event(World& world, const std::string& name, const std::string& words) {
  const auto& events = world.job(name).events;
  return std::any_of(events.begin(), events.end(), [&](const JobEventView& event) {
    return event.reason.find(words) != std::string::npos;
  });
}

TEST(Recovery, arithmetic_that_changed_since_the_checkpoint_is_said_and_the_same_is_not) {
  World world(with_state());
  const std::string name = world.run(kKept);
  EXPECT_FALSE(has_event(world, name, "the arithmetic has changed"));  // it began with none
  run_steps(world, name, 0, 2);
  keep(world, name, 2);
  for (const char* made_with : {"test", "another CPU"}) {
    world.checkpoint_fingerprint = made_with;
    lose_attempt(world, name);
    world.tick();
    world.tick();
    ASSERT_EQ(world.state_of(name), Preparing);
    world.all_ready(name);
    ASSERT_EQ(world.state_of(name), Running);
    // "test" is what the ranks say.
    EXPECT_EQ(has_event(world, name, "the arithmetic has changed"), world.checkpoint_fingerprint != "test");
  }
  EXPECT_TRUE(has_event(
      world, name,
      "the arithmetic has changed: the checkpoint of step 2 was made with \"another CPU\", its ranks "
      "compute with \"test\""));
}

TEST(Recovery, what_an_attempt_has_not_finished_is_removed_when_its_last_executor_is_gone) {
  // A rank that still lives would write on.
  World world(with_state());
  const std::string name = world.run(kKept);
  const WeightsPlace place = world.job(name).attempt->checkpoints;
  EXPECT_TRUE(of<RemoveDrafts>(world.tell(Cancel{1, name, "bob"})).empty());
  EXPECT_TRUE(of<RemoveDrafts>(world.stopped(name, 0)).empty());
  const auto removed = of<RemoveDrafts>(world.stopped(name, 1));
  ASSERT_EQ(removed.size(), 1u);
  EXPECT_EQ(removed[0].job, name);
  EXPECT_EQ(removed[0].place.directory, "/state/jobs/tiny/checkpoints");
  EXPECT_EQ(removed[0].place.marker, place.marker);
}

TEST(Recovery, attempt_that_began_with_a_checkpoint_and_brought_none_is_barren) {
  World world(with_state());
  const std::string name = world.run(kKept);
  run_steps(world, name, 0, 2);
  keep(world, name, 2);
  for (const int64_t barren : {0, 1}) {
    lose_attempt(world, name);
    EXPECT_EQ(world.job(name).status.barren_attempts, barren);
    world.tick();
    world.tick();
    ASSERT_EQ(world.state_of(name), Preparing);
    world.all_ready(name);
  }
}

TEST(Recovery, what_its_ranks_wrote_last_is_kept_though_they_have_left) {
  // The steps come on record first, and ranks that have done everything do not wait for that.
  World world(with_state());
  JobShape shape = kKept;
  shape.steps = 2;
  const std::string name = world.run(shape);
  world.durable_at_once = false;
  run_steps(world, name, 0, 2);
  for (int rank = 0; rank < 2; ++rank) {
    world.finish(name, rank);
    EXPECT_TRUE(of<RemoveDrafts>(world.stopped(name, rank)).empty());
  }
  const auto committing = of<CommitCheckpoint>(world.make_durable());
  ASSERT_EQ(committing.size(), 1u);
  EXPECT_EQ(committing[0].step, 2);
  world.durable_at_once = true;
  world.tell(CheckpointCommitted{name, committing[0].order, 2, ok_status(), std::string(32, 'd')});
  EXPECT_EQ(world.job(name).status.durable_step, 2);
  const auto removed = of<RemoveDrafts>(
      world.tell(WeightsCommitted{name, committing[0].order, world.job(name).attempt->weights, ok_status()}));
  EXPECT_EQ(world.state_of(name), Succeeded);
  EXPECT_EQ(removed.size(), 1u);
}

const JobShape kGoesOn = {
    .steps = 9,
    .extra =
        "checkpoint: {every: 2}\nrestart: {max: 3, from: {path: /other/step-000000004, step: 4, samples: 16}}\n"};

TEST(RestartFrom, job_counts_on_from_the_steps_of_another_jobs_checkpoint) {
  World world(with_state());
  const std::string name = world.run(kGoesOn);
  const auto assignments = messages<Assignment>(world, world.sent);
  ASSERT_EQ(assignments.size(), 2u);
  EXPECT_EQ(assignments[0].first_step, 4);
  EXPECT_EQ(assignments[0].load_from, "/other/step-000000004");
  EXPECT_TRUE(
      has_event(world, name, "begins with the checkpoint of step 4 of job other: /other/step-000000004"));
  EXPECT_EQ(world.job(name).status.step, 4);
  run_steps(world, name, 4, 5);
  JobView view = *view_job(world.state, name, true, 0);
  EXPECT_EQ(view.step, 5);
  EXPECT_EQ(view.losses, std::vector<double>{3.0});  // of step 4
  EXPECT_EQ(view.first_step, 4);
  EXPECT_EQ(view.started_from, "/other/step-000000004");
  EXPECT_EQ(view.durable_step, 0);  // none of its own
  run_steps(world, name, 5, 9);
  keep(world, name, 6);
  keep(world, name, 8);
  for (int rank = 0; rank < 2; ++rank) world.finish(name, rank);
  world.tell(
      WeightsCommitted{name, world.job(name).attempt->order, world.job(name).attempt->weights, ok_status()});
  EXPECT_EQ(world.state_of(name), Succeeded);
  EXPECT_EQ(world.archive.find(name)->losses, (std::vector<double>{3.0, 2.75, 2.5, 2.25, 2.0}));
}

TEST(RestartFrom, job_begins_there_again_until_it_has_a_checkpoint_of_its_own) {
  World world(with_state());
  const std::string name = world.run(kGoesOn);
  run_steps(world, name, 4, 5);
  lose_attempt(world, name);
  EXPECT_EQ(world.job(name).status.barren_attempts, 1);
  world.sent.clear();
  world.tick();
  world.tick();
  EXPECT_EQ(messages<Assignment>(world, world.sent).at(0).load_from, "/other/step-000000004");
  world.all_ready(name);
  run_steps(world, name, 4, 7);  // step 4 once more, with its loss
  ASSERT_EQ(world.state_of(name), Running);
  EXPECT_EQ(world.job(name).losses.size(), 3u);
  keep(world, name, 6);
  lose_attempt(world, name);
  EXPECT_EQ(world.job(name).status.barren_attempts, 0);
  world.sent.clear();
  world.tick();
  world.tick();
  EXPECT_EQ(messages<Assignment>(world, world.sent).at(0).load_from,
            "/state/jobs/tiny/checkpoints/step-000000006");
  EXPECT_EQ(messages<Assignment>(world, world.sent).at(0).first_step, 6);
}

TEST(RestartFrom, loss_that_comes_out_differently_is_told_with_its_own_step) {
  World world(with_state());
  const std::string name = world.run(kGoesOn);
  run_steps(world, name, 4, 6);
  lose_attempt(world, name);
  world.tick();
  world.tick();
  world.all_ready(name);
  world.all_report(name, 4);
  StepReport other = world.step_report(name, 1, 5);
  other.loss = 7.5;
  world.report(name, 0, 5);
  world.say(world.place_of(name, 1).worker, other);
  EXPECT_THAT(world.reason_of(name),
              HasSubstr("step 5 was done again from the checkpoint of step 4 and must give the "
                        "same loss: expected 2.75, found 7.5"));
}

// What is said of a step is written before its loss is.
TEST(Recovery, step_whose_loss_is_not_on_record_is_done_and_recorded_again) {
  World world(with_state());
  const std::string name = world.run(kKept);
  run_steps(world, name, 0, 1);
  std::vector<StoredJob> stored = world.archive.jobs();
  ASSERT_EQ(stored[0].status.step, 1);
  stored[0].losses.clear();
  World next(with_state());
  next.tell(Restore{stored});
  EXPECT_EQ(next.job(name).status.step, 0);
}

TEST(RestartFrom, coordinator_that_is_restarted_knows_where_the_losses_begin) {
  World world(with_state());
  const std::string name = world.run(kGoesOn);
  run_steps(world, name, 4, 7);
  World next(with_state());
  next.archive = world.archive;
  next.tell(Restore{world.archive.jobs()});
  EXPECT_EQ(next.job(name).status.step, 7);
  EXPECT_EQ(view_job(next.state, name, true, 0)->losses.size(), 3u);
  EXPECT_EQ(view_job(next.state, name, true, 0)->first_step, 4);
}

}  // namespace
}  // namespace penstock::coordinator
