// Jobs that a person pauses and resumes, cut as they were or otherwise.
#include <gmock/gmock.h>

#include <cmath>

#include "coordinator/core/testing/world.h"

namespace penstock::coordinator {
namespace {

using namespace testing;  // World and its words
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using enum JobState;

const JobShape kKept = {.steps = 9, .extra = "checkpoint: {every: 2, directory: /kept}\n"};

StatusOr<JobState> answer_of(const std::vector<Command>& commands) {
  const auto answers = of<AnswerControl>(commands);
  EXPECT_EQ(answers.size(), 1u);
  return answers.empty() ? StatusOr<JobState>(internal_error("no answer")) : answers[0].state;
}

StatusOr<JobState> pause(World& world, const std::string& name) {
  return answer_of(world.tell(Pause{91, name, "bob"}));
}
StatusOr<JobState> resume(World& world, const std::string& name,
                          std::shared_ptr<const plan::JobSpec> spec = nullptr) {
  return answer_of(world.tell(Resume{92, name, "bob", std::move(spec)}));
}

void run_steps(World& world, const std::string& name, int64_t first, int64_t last) {
  const int ranks = world.job(name).definition.ranks;
  for (int64_t step = first; step < last; ++step) {
    world.all_report(name, step);
    if ((step + 1) % 2 != 0) continue;
    for (int rank = 0; rank < ranks; ++rank) world.wrote(name, rank, step + 1);
  }
}

void keep(World& world, const std::string& name, int64_t step) {
  world.tell(
      CheckpointCommitted{name, world.job(name).attempt->order, step, ok_status(), std::string(32, 'd')});
  world.newest_checkpoint = step;
}

// A job that is paused after four steps, with all its executors gone.
std::string paused_job(World& world) {
  const std::string name = world.run(kKept);
  run_steps(world, name, 0, 3);
  EXPECT_EQ(*pause(world, name), Draining);
  run_steps(world, name, 3, 5);  // one more than the checkpoint holds
  keep(world, name, 4);
  EXPECT_EQ(world.state_of(name), Paused);
  EXPECT_EQ(world.job(name).losses.size(), 5u);
  for (int rank = 0; rank < 2; ++rank) world.stopped(name, rank);
  return name;
}

TEST(Pausing, running_job_goes_on_to_its_next_checkpoint_and_gives_its_devices_back) {
  World world;
  const std::string name = world.run(kKept);
  run_steps(world, name, 0, 3);
  EXPECT_EQ(*pause(world, name), Draining);
  EXPECT_EQ(world.reason_of(name), "paused by bob: goes on to the checkpoint of step 4");
  EXPECT_EQ(*pause(world, name), Draining);  // asked again
  EXPECT_EQ(resume(world, name).status().code(), StatusCode::kUnavailable);
  run_steps(world, name, 3, 5);
  EXPECT_EQ(world.state_of(name), Draining);
  const auto commands = world.tell(
      CheckpointCommitted{name, world.job(name).attempt->order, 4, ok_status(), std::string(32, 'd')});
  EXPECT_EQ(world.state_of(name), Paused);
  EXPECT_EQ(world.reason_of(name), "paused, with a checkpoint of step 4");
  EXPECT_EQ(messages<Abort>(world, commands).size(), 2u);
  EXPECT_EQ(world.archive.jobs()[0].losses.size(), 5u);
  EXPECT_EQ(resume(world, name).status().code(), StatusCode::kUnavailable);  // its ranks are still there
  for (int rank = 0; rank < 2; ++rank) world.stopped(name, rank);
  EXPECT_EQ(take_census(world.state).devices_free, 2);
}

TEST(Pausing, resumed_job_goes_on_from_the_checkpoint_and_repeats_what_was_reported) {
  World world;
  const std::string name = paused_job(world);
  world.sent.clear();
  EXPECT_EQ(*resume(world, name), Queued);
  world.tick();
  ASSERT_EQ(world.state_of(name), Preparing);
  EXPECT_EQ(messages<Assignment>(world, world.sent).at(0).first_step, 4);
  world.all_ready(name);
  run_steps(world, name, 4, 9);
  EXPECT_EQ(world.job(name).losses.size(), 9u);
  for (int rank = 0; rank < 2; ++rank) world.finish(name, rank);
  keep(world, name, 6);
  keep(world, name, 8);
  EXPECT_EQ(world.state_of(name), Succeeded);
}

// Attempts whose measurements are kept: of a job that was measured, paused, resumed with another file and measured again.
std::vector<int64_t> measured_attempts(const JobShape& before, const JobShape& after) {
  World world;
  const std::string name = world.run(before);
  run_steps(world, name, 0, 5);
  EXPECT_EQ(*pause(world, name), Draining);
  run_steps(world, name, 5, 6);
  keep(world, name, 6);
  for (int rank = 0; rank < 2; ++rank) world.stopped(name, rank);
  EXPECT_EQ(world.archive.jobs()[0].measurements.size(), 1u);
  EXPECT_EQ(*resume(world, name, job_spec(after)), Queued);
  world.tick();
  world.all_ready(name);
  run_steps(world, name, 6, 9);
  std::vector<int64_t> attempts;
  for (const AttemptMeasurements& each : world.job(name).measurements.attempts())
    attempts.push_back(each.attempt);
  EXPECT_EQ(world.archive.jobs()[0].measurements.contains(1), attempts.front() == 1)
      << "known but not stored";
  return attempts;
}

TEST(Pausing, resumed_with_another_split_its_measurements_stand_beside_those_before) {
  JobShape moved = kKept;
  moved.parallel = ", split: [[embedding, 0, 1, 2], [3, head]]";
  EXPECT_THAT(measured_attempts(kKept, moved), ElementsAre(1, 2));
}

TEST(Pausing, resumed_with_layers_that_take_another_time_it_is_measured_anew) {
  JobShape recomputed = kKept;
  recomputed.extra += "recompute: full\n";
  EXPECT_THAT(measured_attempts(kKept, recomputed), ElementsAre(2));
  JobShape threads = kKept;
  threads.device = "{kind: cpu, threads: 2}";
  EXPECT_THAT(measured_attempts(kKept, threads), ElementsAre(2));
}

TEST(Pausing, resumed_with_another_cut_it_takes_other_ranks_and_survives_a_restart) {
  World world;
  const std::string name = paused_job(world);
  JobShape alone = kKept;
  alone.pipeline = 1;
  alone.schedule = "gpipe";
  for (const char* worker : {"worker-0", "worker-1"})  // so that it waits
    world.tell(SessionClosed{world.sessions.at(worker), "gone"});
  EXPECT_EQ(*resume(world, name, job_spec(alone)), Queued);
  EXPECT_EQ(world.archive.jobs()[0].definition.ranks, 1);
  EXPECT_EQ(world.archive.jobs()[0].definition.spec_yaml, job_yaml(alone));
  EXPECT_EQ(world.archive.jobs()[0].losses.size(), 4u);  // the fifth is reported anew
  EXPECT_EQ(world.job(name).status.step, 4);
  World next;
  next.newest_checkpoint = 4;
  next.archive = world.archive;
  next.tell(Restore{world.archive.jobs()});
  next.open(registration("worker-7"));
  next.tick();
  ASSERT_EQ(next.state_of(name), Preparing);
  next.all_ready(name);
  run_steps(next, name, 4, 9);
  EXPECT_EQ(next.job(name).status.step, 9);
}

TEST(Pausing, traces_of_the_file_before_go_when_it_is_resumed_with_more_ranks) {
  World world;
  const std::string name = world.run(kKept);
  for (int rank = 0; rank < 2; ++rank) world.trace(name, rank, 0);
  world.trace(name, 1, 2);
  ASSERT_EQ(world.archive.jobs()[0].traces.size(), 1u);
  run_steps(world, name, 0, 2);
  EXPECT_EQ(*pause(world, name), Draining);
  keep(world, name, 2);
  for (int rank = 0; rank < 2; ++rank) world.stopped(name, rank);
  JobShape more = kKept;
  more.pipeline = 4;
  for (const char* worker : {"worker-2", "worker-3"}) world.open(registration(worker));
  EXPECT_EQ(*resume(world, name, job_spec(more)), Queued);
  EXPECT_FALSE(view_trace(world.state, name, {}).ok());
  EXPECT_TRUE(world.archive.jobs()[0].traces.empty());
  world.tick();
  world.all_ready(name);
  for (int rank = 3; rank >= 0; --rank) world.trace(name, rank, 2);
  EXPECT_EQ(view_trace(world.state, name, 2)->ranks.size(), 4u);
}

TEST(Pausing, nothing_of_the_steps_that_another_cut_does_again_stays) {
  World world;
  JobShape validated = kKept;
  validated.extra += "validation: {source: /held-out.txt, every: 1}\n";
  const std::string name = world.run(validated);
  StepReport report = world.step_report(name, 1, 0);
  report.validation_loss = 3.5;
  world.say(world.place_of(name, 1).worker, report);
  world.report(name, 0, 0);
  ASSERT_EQ(world.archive.jobs()[0].validation.size(), 1u);
  ASSERT_EQ(*pause(world, name), Draining);
  world.say(world.place_of(name, 1).worker, RankFailed{world.key(name, 1), RankIndex(1), 1, "ended", -1, 9});
  for (int rank = 0; rank < 2; ++rank) world.stopped(name, rank);
  ASSERT_EQ(world.state_of(name), Paused);
  JobShape alone = kKept;
  alone.pipeline = 1;
  alone.schedule = "gpipe";
  EXPECT_EQ(*resume(world, name, job_spec(alone)), Queued);
  EXPECT_EQ(world.job(name).status.step, 0);
  EXPECT_EQ(world.archive.jobs()[0].status.loss, std::nullopt);
  EXPECT_TRUE(world.archive.jobs()[0].validation.empty());
}

// A job whose steps up to 4 were done with one pipeline, that goes on with two of them.
std::string job_with_other_sums(World& world, const JobShape& shape) {
  const std::string name = paused_job(world);
  for (const char* worker : {"worker-2", "worker-3"}) world.open(registration(worker));
  EXPECT_EQ(*resume(world, name, job_spec(shape)), Queued);
  EXPECT_EQ(world.archive.jobs()[0].definition.sums_since, 4);
  return name;
}

// The step, with a loss that differs in its last digits from the one that was told.
void report_other_digits(World& world, const std::string& name, int64_t step) {
  for (int rank = 0; rank < world.job(name).definition.ranks; ++rank) {
    StepReport report = world.step_report(name, rank, step);
    if (report.loss) report.loss = std::nextafter(*report.loss, 9.0);
    world.say(world.place_of(name, rank).worker, report);
  }
}

TEST(Pausing, damaged_checkpoint_at_which_other_sums_took_over_lets_the_steps_before_it_be_reported_anew) {
  JobShape wide = kKept;
  wide.data = 2;
  World world;
  const std::string name = job_with_other_sums(world, wide);
  world.newest_checkpoint = 2;  // that of step 4 is damaged
  world.tick();
  ASSERT_EQ(world.state_of(name), Preparing);
  EXPECT_EQ(world.job(name).status.step, 2);
  EXPECT_EQ(world.job(name).losses.size(), 2u);
  EXPECT_EQ(world.archive.jobs()[0].losses.size(), 2u);
  EXPECT_EQ(world.archive.jobs()[0].status.step, 2);
  EXPECT_EQ(world.archive.jobs()[0].definition.sums_since, 2);
  EXPECT_THAT(world.archive.jobs()[0].events.back().reason,
              HasSubstr("steps from 2 on are reported anew: up to 4 they were summed in another order"));
  world.all_ready(name);
  for (int64_t step = 2; step < 4; ++step) {
    report_other_digits(world, name, step);
    ASSERT_EQ(world.state_of(name), Running) << world.reason_of(name);
  }
  EXPECT_EQ(world.job(name).losses.size(), 4u);
}

TEST(Pausing, steps_since_other_sums_took_over_are_held_against_what_was_reported) {
  JobShape wide = kKept;
  wide.data = 2;
  World world;
  const std::string name = job_with_other_sums(world, wide);
  world.tick();
  world.all_ready(name);
  run_steps(world, name, 4, 5);
  world.say(world.place_of(name, 1).worker, RankFailed{world.key(name, 1), RankIndex(1), 5, "ended", -1, 9});
  for (int rank = 0; rank < 4; ++rank) world.stopped(name, rank);
  world.tick();
  world.tick();
  ASSERT_EQ(world.state_of(name), Preparing);
  EXPECT_EQ(world.job(name).losses.size(), 5u);
  world.all_ready(name);
  report_other_digits(world, name, 4);
  EXPECT_EQ(world.state_of(name), Failed);
  EXPECT_THAT(world.reason_of(name), HasSubstr("must give the same loss"));
}

TEST(Pausing, file_of_another_training_is_refused_with_the_difference) {
  World world;
  const std::string name = paused_job(world);
  JobShape other = kKept;
  other.seed = 2;
  const StatusOr<JobState> refused = resume(world, name, job_spec(other));
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(message(refused.status()), HasSubstr("train.seed: expected 1, as the job has it, found 2"));
  EXPECT_EQ(world.state_of(name), Paused);
}

TEST(Pausing, job_that_would_lose_its_steps_or_has_ended_is_not_paused) {
  World world;
  const std::string name = world.run();
  world.all_report(name, 0);
  EXPECT_THAT(message(pause(world, name).status()), HasSubstr("expected a checkpoint section"));
  EXPECT_EQ(world.state_of(name), Running);
  EXPECT_EQ(resume(world, name).status().code(), StatusCode::kFailedPrecondition);
  world.tell(Cancel{1, name, "bob"});
  EXPECT_EQ(pause(world, name).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(pause(world, "nobody").status().code(), StatusCode::kNotFound);
}

TEST(Pausing, job_that_waits_or_prepares_is_paused_at_once) {
  World world;
  const std::string waits = world.submit({.name = "waits", .pipeline = 3});
  world.tick();
  ASSERT_EQ(world.state_of(waits), Placing);
  EXPECT_EQ(*pause(world, waits), Paused);
  EXPECT_TRUE(world.state.queue.empty());
  EXPECT_EQ(*resume(world, waits), Queued);
  world.open(registration("worker-0", 1, 3));
  ASSERT_EQ(world.state_of(waits), Preparing);
  EXPECT_EQ(*pause(world, waits), Paused);
  EXPECT_FALSE(world.job(waits).attempt.has_value());
}

TEST(Pausing, rank_that_is_lost_while_it_drains_pauses_it) {
  World world;
  const std::string name = world.run(kKept);
  run_steps(world, name, 0, 2);
  keep(world, name, 2);
  ASSERT_EQ(*pause(world, name), Draining);
  const RankPlacement place = world.place_of(name, 1);
  world.say(place.worker, RankFailed{world.key(name, 1), RankIndex(1), 3, "ended", -1, 9});
  EXPECT_EQ(world.state_of(name), Paused);
  EXPECT_THAT(world.reason_of(name), HasSubstr("rank 1 on worker-1 failed"));
}

TEST(Pausing, checkpoint_that_lands_after_its_attempt_is_what_another_cut_goes_on_from) {
  World world;
  const std::string name = world.run(kKept);
  run_steps(world, name, 0, 4);
  keep(world, name, 2);
  ASSERT_EQ(*pause(world, name), Draining);
  const int64_t order = world.job(name).attempt->order;
  const RankPlacement place = world.place_of(name, 1);
  world.say(place.worker, RankFailed{world.key(name, 1), RankIndex(1), 4, "ended", -1, 9});
  ASSERT_EQ(world.state_of(name), Paused);
  const CheckpointCommitted late{name, order, 4, ok_status(), std::string(32, 'e')};
  CheckpointCommitted of_another = late;
  of_another.order = order - 1;
  world.tell(of_another);
  EXPECT_EQ(world.job(name).status.durable_step, 2);
  CheckpointCommitted beyond = late;
  beyond.step = 6;  // of steps that are not on record
  world.tell(beyond);
  EXPECT_EQ(world.job(name).status.durable_step, 2);
  world.tell(late);
  EXPECT_EQ(world.archive.jobs()[0].status.durable_step, 4);
  CheckpointCommitted before = late;
  before.step = 2;
  world.tell(before);
  EXPECT_EQ(world.job(name).status.durable_step, 4);
  for (int rank = 0; rank < 2; ++rank) world.stopped(name, rank);
  JobShape alone = kKept;
  alone.pipeline = 1;
  alone.schedule = "gpipe";
  EXPECT_EQ(*resume(world, name, job_spec(alone)), Queued);
  EXPECT_EQ(world.job(name).status.step, 4);
  EXPECT_EQ(world.job(name).losses.size(), 4u);
}

TEST(Pausing, job_that_drains_or_is_paused_can_be_cancelled) {
  World world;
  const std::string name = paused_job(world);
  world.tell(Cancel{1, name, "bob"});
  EXPECT_EQ(world.state_of(name), Cancelled);
  const std::string drains = world.submit(kKept);
  world.tick();
  world.all_ready(drains);
  ASSERT_EQ(*pause(world, drains), Draining);
  world.tell(Cancel{2, drains, "bob"});
  EXPECT_EQ(world.state_of(drains), Cancelled);
}

TEST(Pausing, job_that_comes_to_its_end_while_it_drains_has_succeeded) {
  World world;
  JobShape shape = kKept;
  shape.steps = 3;
  const std::string name = world.run(shape);
  run_steps(world, name, 0, 2);
  keep(world, name, 2);
  ASSERT_EQ(*pause(world, name), Draining);
  EXPECT_THAT(world.reason_of(name), HasSubstr("its end, which comes before its next checkpoint"));
  world.all_report(name, 2);
  for (int rank = 0; rank < 2; ++rank) world.finish(name, rank);
  EXPECT_EQ(world.state_of(name), Succeeded);
}

TEST(Pausing, checkpoint_that_a_dead_coordinator_did_not_record_is_what_another_cut_goes_on_from) {
  World world;
  const std::string name = paused_job(world);
  World next;
  next.archive = world.archive;
  std::vector<StoredJob> stored = world.archive.jobs();
  stored[0].status.durable_step = 2;  // it died between the name of the folder and the record of step 4
  const auto looked = of<LookForCheckpoint>(next.tell(Restore{stored}));
  ASSERT_EQ(looked.size(), 1u);
  EXPECT_EQ(looked[0].directory, "/kept");
  EXPECT_EQ(looked[0].latest_step, 5);
  JobShape alone = kKept;
  alone.pipeline = 1;
  alone.schedule = "gpipe";
  EXPECT_EQ(resume(next, name, job_spec(alone)).status().code(), StatusCode::kUnavailable);  // not yet
  next.tell(CheckpointFound{name, 6, std::string(32, 'e')});  // of steps that are not on record: not its
  EXPECT_EQ(next.job(name).status.durable_step, 2);
  World again;
  again.archive = world.archive;
  again.tell(Restore{stored});
  again.tell(CheckpointFound{name, 4, std::string(32, 'e')});
  EXPECT_EQ(again.job(name).status.durable_step, 4);
  EXPECT_EQ(again.archive.jobs()[0].status.weights_digest, std::string(32, 'e'));
  EXPECT_EQ(*resume(again, name, job_spec(alone)), Queued);
  EXPECT_EQ(again.job(name).status.step, 4);
}

TEST(Pausing, checkpoint_that_nobody_looks_for_or_that_is_no_newer_changes_nothing) {
  World world;
  const std::string name = paused_job(world);  // with one of step 4
  world.tell(CheckpointFound{name, 5, std::string(32, 'e')});
  EXPECT_EQ(world.job(name).status.durable_step, 4);
  World next;
  next.archive = world.archive;
  next.tell(Restore{world.archive.jobs()});
  next.tell(CheckpointFound{name, 2, std::string(32, 'e')});
  EXPECT_EQ(next.job(name).status.durable_step, 4);
  // It goes on before the answer comes: what it was found to have is not what this attempt began with.
  std::vector<StoredJob> stored = world.archive.jobs();
  stored[0].status.durable_step = 2;
  World running;
  running.archive = world.archive;
  running.newest_checkpoint = 2;
  running.tell(Restore{stored});
  for (const char* worker : {"worker-0", "worker-1"}) running.open(registration(worker));
  ASSERT_EQ(*resume(running, name), Queued);
  running.tick();
  ASSERT_EQ(running.state_of(name), Preparing);
  running.tell(CheckpointFound{name, 4, std::string(32, 'e')});
  EXPECT_EQ(running.job(name).status.durable_step, 2);
}

TEST(Pausing, checkpoint_of_a_job_without_steps_is_not_looked_for) {
  World world;
  const std::string name = world.submit(kKept);
  World next;
  next.archive = world.archive;
  EXPECT_TRUE(of<LookForCheckpoint>(next.tell(Restore{world.archive.jobs()})).empty());
  EXPECT_TRUE(next.job(name).live());
}

TEST(Pausing, paused_job_that_began_with_another_ones_checkpoint_goes_back_there_and_no_further) {
  World world;
  JobShape shape = kKept;
  shape.extra += "restart: {from: {path: /other/step-000000004, step: 4, samples: 16}}\n";
  const std::string name = world.run(shape);
  run_steps(world, name, 4, 5);
  ASSERT_EQ(*pause(world, name), Draining);
  world.say(world.place_of(name, 1).worker, RankFailed{world.key(name, 1), RankIndex(1), 5, "ended", -1, 9});
  for (int rank = 0; rank < 2; ++rank) world.stopped(name, rank);
  ASSERT_EQ(world.state_of(name), Paused);
  JobShape alone = shape;
  alone.pipeline = 1;
  alone.schedule = "gpipe";
  world.sent.clear();
  EXPECT_EQ(*resume(world, name, job_spec(alone)), Queued);
  EXPECT_EQ(world.job(name).status.step, 4);
  EXPECT_TRUE(world.job(name).losses.empty());
  world.tick();
  EXPECT_EQ(messages<Assignment>(world, world.sent).at(0).first_step, 4);
}

}  // namespace
}  // namespace penstock::coordinator
