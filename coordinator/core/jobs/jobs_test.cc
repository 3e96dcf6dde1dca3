#include <gmock/gmock.h>

#include "coordinator/core/testing/world.h"

namespace penstock::coordinator {
namespace {

using namespace testing;  // World and its words
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using enum JobState;

Options small_options() {
  Options options;
  options.jobs_live = 3;
  options.jobs_ended = 2;
  return options;
}

TEST(Submit, directory_of_another_live_job_is_refused_by_name) {
  World world;
  const auto submit = [&](const std::string& directory) {
    const std::string section = fmt::format("checkpoint: {{every: 2, directory: {}}}\n", directory);
    const auto commands = world.tell(Submit{93, "ann", "", job_spec({.extra = section})});
    return of<AnswerSubmit>(commands).at(0).outcome.status();
  };
  ASSERT_TRUE(submit("/kept").ok());
  EXPECT_EQ(submit("/x/..//kept/").code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(message(submit("/kept")), HasSubstr("found /kept of job tiny, which has not ended"));
  EXPECT_EQ(world.state.jobs.size(), 1u);
  EXPECT_TRUE(submit("/kept-too").ok());
  world.tell(Cancel{1, "tiny", "bob"});
  EXPECT_TRUE(submit("/kept").ok());
}

TEST(Submission, is_answered_and_seen_only_when_it_is_durable) {
  // An acknowledged job must survive the coordinator's death.
  World world;
  world.durable_at_once = false;
  const auto commands = world.tell(Submit{1, "ann", "", job_spec({})});
  EXPECT_EQ(of<Save>(commands).size(), 1u);
  EXPECT_TRUE(of<AnswerSubmit>(commands).empty());
  EXPECT_EQ(view_job(world.state, "tiny", false, 0).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(view_jobs(world.state, 0).empty());

  const auto answers = of<AnswerSubmit>(world.make_durable());
  ASSERT_EQ(answers.size(), 1u);
  ASSERT_TRUE(answers[0].outcome.ok());
  EXPECT_EQ(answers[0].outcome->name, "tiny");
  EXPECT_EQ(answers[0].outcome->ranks, 2);
  EXPECT_EQ(answers[0].outcome->microbatches, 4);
  EXPECT_EQ(answers[0].outcome->stage_items.size(), 2u);
  EXPECT_TRUE(view_job(world.state, "tiny", false, 0).ok());
}

TEST(Submission, taken_name_gets_the_next_number) {
  World world;
  EXPECT_EQ(world.submit({}), "tiny");
  EXPECT_EQ(world.submit({}), "tiny-2");
  EXPECT_EQ(world.submit({}), "tiny-3");
}

TEST(Submission, repeated_request_id_submits_once) {
  World world;
  EXPECT_EQ(world.submit({}, "r1"), "tiny");
  EXPECT_EQ(world.submit({}, "r1"), "tiny");
  EXPECT_EQ(world.submit({}, "r2"), "tiny-2");
  EXPECT_EQ(world.state.jobs.size(), 2u);
}

TEST(Submission, repetition_before_durability_waits_for_it_too) {
  World world;
  world.durable_at_once = false;
  world.tell(Submit{1, "ann", "r1", job_spec({})});
  EXPECT_TRUE(of<AnswerSubmit>(world.tell(Submit{2, "ann", "r1", job_spec({})})).empty());
  const auto answers = of<AnswerSubmit>(world.make_durable());
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].outcome->name, answers[1].outcome->name);
}

TEST(Submission, request_id_with_another_file_is_refused) {
  World world;
  world.submit({}, "r1");
  const auto answers = of<AnswerSubmit>(world.tell(Submit{9, "ann", "r1", job_spec({.steps = 99})}));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].outcome.status().code(), StatusCode::kAlreadyExists);
}

TEST(Submission, live_jobs_are_bounded) {
  World world(small_options());
  for (int i = 0; i < 3; ++i) world.submit({});
  const auto answers = of<AnswerSubmit>(world.tell(Submit{9, "ann", "", job_spec({})}));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].outcome.status().code(), StatusCode::kResourceExhausted);
}

TEST(Submission, store_that_does_not_commit_turns_submissions_away) {
  Options options;
  options.transactions_pending = 2;
  World world(options);
  world.durable_at_once = false;
  world.tell(Submit{1, "ann", "", job_spec({})});
  world.tell(Submit{2, "ann", "", job_spec({})});
  const auto answers = of<AnswerSubmit>(world.tell(Submit{3, "ann", "", job_spec({})}));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].outcome.status().code(), StatusCode::kUnavailable);
}

TEST(Attempt, assignment_leaves_only_when_its_number_is_durable) {
  // Otherwise a restarted coordinator could give the same number to other ranks, and fencing would not fence.
  World world;
  world.open(registration("worker-0"));
  world.open(registration("worker-1"));
  world.submit({});  // placed at once
  world = World();
  world.open(registration("worker-0"));
  world.open(registration("worker-1"));
  world.durable_at_once = false;
  world.tell(Submit{1, "ann", "", job_spec({})});
  const auto admitted = world.make_durable();  // the job is; its attempt is being written
  EXPECT_EQ(world.state_of("tiny"), Preparing);
  EXPECT_TRUE(messages<Assignment>(world, admitted).empty());
  const auto started = world.make_durable();
  EXPECT_EQ(messages<Assignment>(world, started).size(), 2u);
}

TEST(Attempt, assignment_waits_for_the_plan_too) {
  World world;
  world.plans_at_once = false;
  world.open(registration("worker-0"));
  world.open(registration("worker-1"));
  world.submit({});
  EXPECT_TRUE(messages<Assignment>(world, world.sent).empty());
  const auto planned = world.tell(AttemptPlanned{"tiny", 1, ok_status(), *plan_attempt(*job_spec({}))});
  EXPECT_EQ(messages<Assignment>(world, planned).size(), 2u);
}

TEST(Attempt, plan_of_another_attempt_is_ignored) {
  // A job that was retired while the planner worked may have given its name to another one.
  World world;
  world.plans_at_once = false;
  world.open(registration("worker-0"));
  world.open(registration("worker-1"));
  world.submit({});
  const int64_t order = world.job("tiny").attempt->order;
  world.tell(AttemptPlanned{"tiny", order + 1, ok_status(), *plan_attempt(*job_spec({}))});
  world.tell(AttemptPlanned{"tiny", order - 1, internal_error("late"), nullptr});
  EXPECT_EQ(world.state_of("tiny"), Preparing);
  EXPECT_TRUE(messages<Assignment>(world, world.sent).empty());
}

TEST(Attempt, plan_that_fails_fails_the_job_and_frees_the_devices_at_once) {
  World world;
  world.plans_at_once = false;
  world.open(registration("worker-0"));
  world.open(registration("worker-1"));
  world.submit({});
  const auto commands = world.tell(AttemptPlanned{"tiny", 1, invalid_argument("no such order"), nullptr});
  EXPECT_TRUE(messages<Abort>(world, commands).empty());
  EXPECT_EQ(world.state_of("tiny"), Failed);
  EXPECT_THAT(world.reason_of("tiny"), HasSubstr("no such order"));
  EXPECT_EQ(take_census(world.state).devices_free, 2);
}

TEST(Attempt, every_rank_gets_its_own_program_and_the_hosts_of_all) {
  World world;
  world.open(registration("worker-0", 7, 1, "left"));
  world.open(registration("worker-1", 9, 1, "right"));
  world.submit({});
  for (int rank = 0; rank < 2; ++rank) {
    const RankPlacement& place = world.place_of("tiny", rank);
    const auto assignments = messages<Assignment>(world, world.sent, place.worker);
    ASSERT_EQ(assignments.size(), 1u);
    const Assignment& assignment = assignments[0];
    EXPECT_EQ(assignment.attempt, (AttemptKey{"tiny", 1, place.incarnation}));
    EXPECT_EQ(assignment.rank, RankIndex(rank));
    EXPECT_EQ(assignment.program.rank, RankIndex(rank));
    EXPECT_EQ(assignment.spec_yaml, job_yaml({}));
    EXPECT_EQ(assignment.split.size(), 2u);
    EXPECT_THAT(assignment.rank_hosts, ::testing::UnorderedElementsAre("left", "right"));
    EXPECT_EQ(assignment.program.links.size(), 2u);
    for (const plan::Link& link : assignment.program.links) EXPECT_NE(link.digest, 0u);
  }
}

TEST(Attempt, ranks_are_told_a_few_in_each_turn) {
  // A thousand large assignments must not hold up whoever asks meanwhile.
  Options options;
  options.assigned_at_once = 2;
  World world(options);
  world.assigns_at_once = false;
  world.open(registration("worker-0", 1, 6));
  const auto first = world.tell(Submit{1, "ann", "", job_spec({.pipeline = 5})});
  EXPECT_EQ(messages<Assignment>(world, first).size(), 2u);
  EXPECT_EQ(of<CallAgain>(first).size(), 1u);
  const auto second = world.tell(AssignMore{});
  EXPECT_EQ(messages<Assignment>(world, second).size(), 2u);
  // What has not been told has no executor to stop.
  EXPECT_EQ(messages<Abort>(world, world.tell(Cancel{2, "tiny", "bob"})).size(), 4u);
  EXPECT_EQ(take_census(world.state).devices_free, 2);
  EXPECT_TRUE(messages<Assignment>(world, world.tell(AssignMore{})).empty());
}

TEST(Attempt, ranks_that_compute_differently_fail_it_by_name) {
  // The same job must give the same bits wherever its ranks are placed.
  World world;
  world.open(registration("worker-0"));
  world.open(registration("worker-1"));
  world.submit({});
  world.ready("tiny", 0);
  world.say("worker-1", RankReady{world.key("tiny", 1), RankIndex(1), 1, "another"});
  EXPECT_EQ(world.state_of("tiny"), Failed);
  EXPECT_THAT(world.reason_of("tiny"), HasSubstr("\"test\" as rank 0 on worker-0 has it"));
  EXPECT_THAT(world.reason_of("tiny"), HasSubstr("\"another\" of rank 1 on worker-1"));
}

TEST(Stall, running_job_without_progress_says_whom_it_waits_for_and_goes_on) {
  World world;
  const std::string name = world.run({.steps = 100});
  world.all_report(name, 0);
  world.report(name, 0, 1);
  const auto pass = [&](int seconds) {
    for (int s = 0; s < seconds; ++s) {
      for (const char* worker : {"worker-0", "worker-1"}) world.say(worker, Heartbeat{s});
      world.tick(1s);
    }
  };
  pass(29);
  EXPECT_EQ(world.reason_of(name), "all 2 ranks are ready");
  const size_t events = world.job(name).events.size();
  pass(20);
  EXPECT_EQ(world.reason_of(name), "no step for 30 s; rank 1 on worker-1 last reported step 0");
  EXPECT_EQ(world.job(name).events.size(), events + 1);  // once a change
  world.report(name, 1, 1);
  EXPECT_EQ(world.state_of(name), Running);
  EXPECT_EQ(world.reason_of(name), "steps go on after 49 s without one");
  EXPECT_EQ(world.archive.jobs()[0].events.size(), events + 2);
}

TEST(Stall, slow_steps_are_not_taken_for_none) {
  World world;
  const std::string name = world.run({.steps = 100});
  for (int rank = 0; rank < 2; ++rank) {
    StepReport report = world.step_report(name, rank, 0);
    report.wall_seconds = 60;
    world.say(fmt::format("worker-{}", rank), report);
  }
  for (int s = 0; s < 299; ++s) {
    for (const char* worker : {"worker-0", "worker-1"}) world.say(worker, Heartbeat{s});
    world.tick(1s);
  }
  EXPECT_EQ(world.reason_of(name), "all 2 ranks are ready");
  world.tick(1s);
  EXPECT_THAT(world.reason_of(name), HasSubstr("no step for 300 s; rank 0 on worker-0"));
}

TEST(Store, call_that_waits_for_a_full_disk_is_told_so_and_later_ones_submit_nothing) {
  World world;
  world.durable_at_once = false;
  world.tell(Submit{1, "ann", "", job_spec({})});
  world.tell(StoreHealth{resource_exhausted("COMMIT: database or disk is full")});
  EXPECT_TRUE(of<AnswerSubmit>(world.tick(2s)).empty());
  const auto late = of<AnswerSubmit>(world.tick(1s));
  ASSERT_EQ(late.size(), 1u);
  EXPECT_EQ(late[0].outcome.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(message(late[0].outcome.status()), HasSubstr("disk is full"));
  EXPECT_THAT(message(late[0].outcome.status()), HasSubstr("may still run"));
  const auto refused = of<AnswerSubmit>(world.tell(Submit{2, "ann", "", job_spec({})}));
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_THAT(message(refused[0].outcome.status()), HasSubstr("nothing was submitted"));
  world.tell(StoreHealth{ok_status()});
  EXPECT_TRUE(of<AnswerSubmit>(world.make_durable()).empty());  // answered once
  EXPECT_EQ(world.state.jobs.size(), 1u);
  EXPECT_TRUE(world.job("tiny").admitted);
}

TEST(Store, cancel_on_a_full_disk_stops_the_ranks_at_once_and_calls_that_wait_are_bounded) {
  Options options;
  options.answers_pending = 2;
  World world(options);
  const std::string name = world.run();
  world.durable_at_once = false;
  world.tell(StoreHealth{resource_exhausted("database or disk is full")});
  EXPECT_EQ(messages<Abort>(world, world.tell(Cancel{1, name, "bob"})).size(), 2u);
  world.tell(Cancel{2, name, "bob"});
  const auto third = of<AnswerControl>(world.tell(Cancel{3, name, "bob"}));
  ASSERT_EQ(third.size(), 1u);
  EXPECT_EQ(third[0].state.status().code(), StatusCode::kResourceExhausted);
  const auto late = of<AnswerControl>(world.tick(3s));
  ASSERT_EQ(late.size(), 2u);
  EXPECT_THAT(message(late[0].state.status()), HasSubstr("has been told to stop"));
  world.make_durable();
  EXPECT_EQ(world.state_of(name), Cancelled);
}

TEST(Attempt, job_runs_when_every_rank_is_ready) {
  World world;
  world.open(registration("worker-0"));
  world.open(registration("worker-1"));
  world.submit({});
  EXPECT_EQ(world.state_of("tiny"), Preparing);
  world.ready("tiny", 1);
  EXPECT_EQ(world.state_of("tiny"), Preparing);
  EXPECT_EQ(world.reason_of("tiny"), "1 of 2 ranks are ready");
  world.ready("tiny", 0);
  EXPECT_EQ(world.state_of("tiny"), Running);
  EXPECT_EQ(worker_views(world.state.fleet)[0].executor_pid, 4000);
}

TEST(Attempt, ranks_that_do_not_get_ready_fail_the_job_by_name) {
  World world;
  world.open(registration("worker-0"));
  world.open(registration("worker-1"));
  world.submit({});
  world.ready("tiny", 0);
  // Heartbeats go on: the workers live, the rank hangs.
  for (int i = 0; i < 301; ++i) {
    world.say("worker-0", Heartbeat{i});
    world.say("worker-1", Heartbeat{i});
    world.tick(1s);
  }
  EXPECT_EQ(world.state_of("tiny"), Failed);
  EXPECT_THAT(world.reason_of("tiny"), HasSubstr("rank 1 on worker-1"));
}

TEST(Steps, commit_needs_every_rank_and_shows_the_loss_of_the_loss_stage_once) {
  World world;
  const std::string name = world.run();
  world.report(name, 1, 0);
  EXPECT_EQ(world.job(name).status.step, 0);
  world.report(name, 0, 0);
  const auto view = view_job(world.state, name, true, world.now.unix_ms);
  EXPECT_EQ(view->step, 1);
  EXPECT_EQ(view->loss, 4.0);
  EXPECT_THAT(view->losses, ::testing::ElementsAre(4.0));
  EXPECT_EQ(view->step_seconds, 0.5);
  EXPECT_DOUBLE_EQ(*view->tokens_per_second, 4 * 8 / 0.5);
  ASSERT_EQ(view->stages.size(), 2u);
  EXPECT_EQ(view->stages[0].worker, "worker-0");
  EXPECT_THAT(view->stages[0].layers, ::testing::Contains("embedding"));
  EXPECT_DOUBLE_EQ(*view->stages[1].forward_ms, 10);
  EXPECT_DOUBLE_EQ(*view->stages[1].backward_ms, 20);
  EXPECT_DOUBLE_EQ(*view->stages[1].wait_ms, 125);
  EXPECT_DOUBLE_EQ(*view->stages[1].busy_fraction, 0.75);
  EXPECT_EQ(view->stages[1].memory_peak_bytes, 150);
  EXPECT_GT(*view->stages[1].memory_predicted_bytes, 0);
}

TEST(Steps, loss_of_a_rank_without_the_loss_stage_is_not_shown) {
  World world;
  const std::string name = world.run();
  StepReport report = world.step_report(name, 0, 0);
  report.loss = 99.0;
  world.say("worker-0", report);
  world.report(name, 1, 0);
  EXPECT_EQ(world.job(name).status.loss, 4.0);
}

TEST(Steps, missing_loss_fails_the_job) {
  World world;
  const std::string name = world.run();
  StepReport report = world.step_report(name, 1, 0);
  report.loss.reset();
  world.say("worker-1", report);
  EXPECT_EQ(world.state_of(name), Failed);
  EXPECT_THAT(world.reason_of(name), HasSubstr("without a loss"));
}

TEST(Steps, duplicates_and_impossible_steps_are_refused_and_counted) {
  World world;
  const std::string name = world.run({.steps = 100});
  world.report(name, 0, 0);
  world.report(name, 0, 0);
  EXPECT_EQ(world.state.refused[static_cast<size_t>(Refusal::Duplicate)], 1);
  world.report(name, 0, 100);
  world.report(name, 0, -1);
  EXPECT_EQ(world.state.refused[static_cast<size_t>(Refusal::Malformed)], 2);
  EXPECT_EQ(world.state_of(name), Running);
}

TEST(Steps, rank_too_far_ahead_fails_the_job) {
  // What waits for the slowest rank is memory; without a bound a lost report would fill it.
  Options options;
  options.reports_ahead = 0;
  World world(options);
  const std::string name = world.run({.steps = 1000});
  world.report(name, 0, 63);
  EXPECT_EQ(world.state_of(name), Running);
  world.report(name, 0, 64);
  EXPECT_EQ(world.state.refused[static_cast<size_t>(Refusal::OutOfWindow)], 1);
  EXPECT_EQ(world.state_of(name), Failed);
  EXPECT_THAT(world.reason_of(name),
              HasSubstr("rank 0 on worker-0 reported step 64 while step 0 is not committed"));
}

TEST(Steps, without_a_flush_the_ranks_of_a_pipeline_are_further_apart) {
  // The last of P ranks is up to P microbatches ahead of the first, here 4 of an update of 4.
  Options options;
  options.reports_ahead = 0;
  World world(options);
  const std::string name = world.run(
      {.pipeline = 4, .steps = 1000, .schedule = "pipedream", .train = ", optimizer: {clip_grad_norm: 0}"});
  world.report(name, 3, 64);
  EXPECT_EQ(world.state_of(name), Running);
  world.report(name, 3, 65);
  EXPECT_EQ(world.state_of(name), Failed);
}

TEST(Steps, slow_store_gets_one_progress_save_at_a_time) {
  // Otherwise a stuck disk would make the queue grow with every step.
  World world;
  const std::string name = world.run({.steps = 100});
  world.durable_at_once = false;
  const Ticket before = world.saved;
  for (int64_t step = 0; step < 50; ++step) world.all_report(name, step);
  EXPECT_EQ(world.saved, before + 1);
  world.make_durable();
  world.make_durable();
  EXPECT_EQ(world.archive.jobs()[0].losses.size(), 50u);
  EXPECT_EQ(world.archive.jobs()[0].losses, world.job(name).losses);
}

TEST(Traces, are_shown_when_all_ranks_are_in_and_outlive_the_coordinator) {
  World world;
  const std::string name = world.run({.steps = 100});
  EXPECT_THAT(message(view_trace(world.state, name, {}).status()), HasSubstr("no step is traced"));
  EXPECT_EQ(view_trace(world.state, "other", {}).status().code(), StatusCode::kNotFound);
  for (int rank = 0; rank < 2; ++rank) world.report(name, rank, 2);
  world.trace(name, 0, 2);
  EXPECT_FALSE(view_trace(world.state, name, {}).ok());
  world.trace(name, 1, 2);
  for (int rank = 0; rank < 2; ++rank) world.trace(name, rank, 10);
  const StatusOr<TraceView> newest = view_trace(world.state, name, {});
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ(newest->step, 10);
  EXPECT_THAT(newest->steps, ElementsAre(2, 10));
  EXPECT_EQ(newest->ranks.size(), 2u);
  EXPECT_EQ(newest->spec_yaml, world.job(name).definition.spec_yaml);
  EXPECT_EQ(view_trace(world.state, name, 2)->step, 2);
  EXPECT_EQ(message(view_trace(world.state, name, 3).status()),
            fmt::format("job {}: step 3 is not traced, or not kept; kept are 2, 10", name));

  World after;
  after.tell(Restore{world.archive.jobs()});
  const StatusOr<TraceView> kept = view_trace(after.state, name, 10);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(*kept->ranks[1], *newest->ranks[1]);
}

TEST(Reports, stage_that_the_job_has_not_is_refused) {
  World world;
  const std::string name = world.run();
  const auto said = [&](const StepReport& report) { world.say(world.place_of(name, 0).worker, report); };
  StepReport timed = world.step_report(name, 0, 0);
  timed.stages[0].stage = StageIndex(2);
  said(timed);
  StepReport leased = world.step_report(name, 0, 0);
  leased.payloads = {{StageIndex(2), LayerIndex(0), "inputs", 1, 0, 0, 0}};
  said(leased);
  EXPECT_EQ(world.state.refused[static_cast<size_t>(Refusal::Malformed)], 2);
  world.all_report(name, 0);
  EXPECT_EQ(world.job(name).status.step, 1);
}

TEST(Reports, kinds_of_memory_that_change_with_every_report_are_bounded) {
  World world;
  const std::string name = world.run({.steps = 5});
  for (int64_t step = 0; step < 5; ++step) {
    StepReport report = world.step_report(name, 0, step);
    for (int k = 0; k < 30; ++k) report.memory.push_back({fmt::format("kind_{}_{}", step, k), 8});
    world.say(world.place_of(name, 0).worker, report);
    world.report(name, 1, step);
  }
  EXPECT_EQ(world.job(name).status.step, 5);
  std::set<std::string> observed;
  for (const Observed& seen : of<Observed>(world.sent)) {
    const auto* committed = std::get_if<StepCommitted>(&seen.observation);
    if (committed == nullptr) continue;
    for (const MemoryKind& kind : committed->reports[0].memory) observed.insert(kind.kind);
  }
  EXPECT_LE(observed.size(), codec::kMostMemoryKinds);
  EXPECT_TRUE(observed.contains("parameters"));
}

TEST(Traces, of_another_attempt_or_twice_or_of_no_step_are_refused_and_counted) {
  World world;
  const std::string name = world.run({.steps = 100});
  world.trace(name, 0, 2);
  const auto refused = [&](Refusal why) { return world.state.refused[static_cast<size_t>(why)]; };
  world.trace(name, 0, 2);
  EXPECT_EQ(refused(Refusal::Duplicate), 1);
  world.trace(name, 0, 100);
  EXPECT_EQ(refused(Refusal::Malformed), 1);
  StepTrace stale;
  stale.attempt = world.key(name, 0);
  ++stale.attempt.attempt;
  stale.rank = RankIndex(0);
  world.say(world.place_of(name, 0).worker, stale);
  EXPECT_EQ(refused(Refusal::Stale), 1);
}

TEST(Traces, bytes_are_bounded_and_dropped_steps_leave_the_store) {
  Options options;
  options.trace_bytes_per_job = 100;
  World world(options);
  const std::string name = world.run({.steps = 100});
  for (const int64_t step : {2, 10, 20, 30}) {
    for (int rank = 0; rank < 2; ++rank) world.trace(name, rank, step);
  }
  EXPECT_LE(world.job(name).traces.bytes(), 100u);
  const auto kept = world.job(name).traces.complete();
  EXPECT_LT(kept.size(), 4u);
  EXPECT_EQ(world.archive.jobs()[0].traces.size(), kept.size());
}

TEST(Success, needs_all_steps_and_all_ranks_and_is_seen_when_durable) {
  World world;
  const std::string name = world.run();
  for (int64_t step = 0; step < 3; ++step) world.all_report(name, step);
  world.finish(name, 0);
  EXPECT_EQ(world.state_of(name), Running);
  world.durable_at_once = false;
  world.finish(name, 1);
  EXPECT_EQ(world.state_of(name), Running);  // a crash now must not take back what somebody saw
  EXPECT_EQ(view_job(world.state, name, false, 0)->weights_digest, "");
  world.make_durable();
  EXPECT_EQ(world.state_of(name), Succeeded);
  const auto view = view_job(world.state, name, true, world.now.unix_ms + 99'000);
  EXPECT_EQ(view->exit_code, 0);
  EXPECT_EQ(view->weights_digest.size(), 32u);
  EXPECT_LT(view->seconds, 90);
  EXPECT_EQ(world.archive.find(name)->losses.size(), 3u);
  EXPECT_EQ(world.archive.jobs()[0].status, world.job(name).status);
}

TEST(Success, needs_replicas_that_ended_with_the_same_weights) {
  // DualPipe and chimera hold every stage on two ranks. Two ranks that part have trained two models.
  for (const bool they_part : {false, true}) {
    World world;
    JobShape shape;
    shape.schedule = "chimera";
    const std::string name = world.run(shape);
    for (int64_t step = 0; step < 3; ++step) {
      for (const int rank : {0, 1}) {
        StepReport report = world.step_report(name, rank, step);
        report.loss = 1.5 + rank;  // each its part
        world.say(world.place_of(name, rank).worker, report);
      }
    }
    EXPECT_EQ(world.job(name).status.loss, 4.0);
    for (const int rank : {0, 1}) {
      RankFinished finished{world.key(name, rank), RankIndex(rank), {}};
      for (const plan::ParameterSpec& parameter : plan::model_parameters(world.job(name).spec->model)) {
        finished.digests.push_back({parameter.index, {static_cast<uint8_t>(parameter.index)}});
      }
      if (they_part && rank == 1) finished.digests.back().digest[7] = 1;
      world.say(world.place_of(name, rank).worker, finished);
    }
    if (they_part) {
      EXPECT_EQ(world.state_of(name), Failed);
      EXPECT_THAT(world.reason_of(name),
                  HasSubstr("lm_head.weight: ranks 0 and 1 ended with different bits"));
    } else {
      EXPECT_EQ(world.state_of(name), Succeeded);
    }
  }
}

TEST(Success, frees_a_device_when_its_executor_has_stopped) {
  World world;
  const std::string name = world.run();
  for (int64_t step = 0; step < 3; ++step) world.all_report(name, step);
  world.finish(name, 0);
  const auto commands = world.finish(name, 1);
  EXPECT_TRUE(messages<Abort>(world, commands).empty());  // finished executors leave by themselves
  EXPECT_EQ(take_census(world.state).devices_free, 0);
  world.stopped(name, 0);
  EXPECT_EQ(take_census(world.state).devices_free, 1);
  EXPECT_EQ(world.archive.jobs()[0].placed.size(), 2u);
  world.stopped(name, 1);
  EXPECT_EQ(take_census(world.state).devices_free, 2);
  EXPECT_TRUE(world.archive.jobs()[0].placed.empty());
}

TEST(Success, finished_executor_that_does_not_leave_is_told_to) {
  World world;
  const std::string name = world.run();
  for (int64_t step = 0; step < 3; ++step) world.all_report(name, step);
  world.finish(name, 0);
  world.finish(name, 1);
  world.say("worker-0", Heartbeat{});
  EXPECT_EQ(messages<Abort>(world, world.tick(2100ms), "worker-0").size(), 1u);
}

TEST(Success, worker_that_dies_after_its_result_does_not_matter) {
  World world;
  const std::string name = world.run();
  for (int64_t step = 0; step < 3; ++step) world.all_report(name, step);
  world.finish(name, 0);
  world.tell(SessionClosed{world.sessions["worker-0"], "stream closed"});
  EXPECT_EQ(world.state_of(name), Running);
  world.finish(name, 1);
  EXPECT_EQ(world.state_of(name), Succeeded);
}

TEST(Success, rank_that_finishes_without_its_reports_fails_the_job) {
  World world;
  const std::string name = world.run();
  world.all_report(name, 0);
  world.finish(name, 0);
  world.finish(name, 1);
  EXPECT_EQ(world.state_of(name), Failed);
  EXPECT_THAT(world.reason_of(name), HasSubstr("1 of 3 steps"));
}

TEST(Success, missing_parameter_fails_the_job_by_name) {
  World world;
  const std::string name = world.run();
  for (int64_t step = 0; step < 3; ++step) world.all_report(name, step);
  world.finish(name, 0);
  world.say("worker-1", RankFinished{world.key(name, 1), RankIndex(1), {}});
  EXPECT_EQ(world.state_of(name), Failed);
  EXPECT_THAT(world.reason_of(name), HasSubstr("no rank sent it"));
}

TEST(Failure, killed_executor_fails_the_job_at_once_with_worker_rank_step_and_signal) {
  World world;
  const std::string name = world.run({.pipeline = 3});
  world.all_report(name, 0);
  const auto commands =
      world.say("worker-1", RankFailed{world.key(name, 1), RankIndex(1), 1, "executor ended", -1, 9});
  EXPECT_EQ(world.state_of(name), Failed);
  EXPECT_EQ(world.reason_of(name),
            "rank 1 on worker-1 failed in step 1: executor ended (killed by signal 9, SIGKILL)");
  EXPECT_EQ(world.job(name).status.exit_code, 1);
  // Peers are told at once; the dead one's device is free when its daemon says that the executor has stopped.
  EXPECT_EQ(messages<Abort>(world, commands, "worker-0").size(), 1u);
  EXPECT_EQ(messages<Abort>(world, commands, "worker-1").size(), 0u);
  EXPECT_EQ(messages<Abort>(world, commands, "worker-2").size(), 1u);
  EXPECT_EQ(take_census(world.state).devices_free, 0);
  world.stopped(name, 1);
  EXPECT_EQ(take_census(world.state).devices_free, 1);
  world.stopped(name, 0);
  world.stopped(name, 2);
  EXPECT_EQ(take_census(world.state).devices_free, 3);
}

TEST(Failure, device_is_not_free_while_the_executor_that_failed_lives) {
  // An executor reports its failure before it ends; the next job would find the device busy.
  World world;
  const std::string name = world.run();
  world.say("worker-0", RankFailed{world.key(name, 0), RankIndex(0), 6, "step 6, stage 0: no window", 1, 0});
  EXPECT_EQ(take_census(world.state).devices_free, 0);
  world.tick(400ms);
  EXPECT_EQ(world.state_of(name), Failed);
  EXPECT_EQ(world.reason_of(name), "rank 0 on worker-0 failed: step 6, stage 0: no window (exit code 1)");
  EXPECT_EQ(take_census(world.state).devices_free, 0);
  world.stopped(name, 0);
  EXPECT_EQ(take_census(world.state).devices_free, 1);
}

TEST(Failure, peers_of_a_dead_rank_do_not_take_the_blame) {
  // A killed executor's peers lose their connection to it and may be heard first.
  World world;
  const std::string name = world.run({.pipeline = 3});
  world.say("worker-0", RankFailed{world.key(name, 0), RankIndex(0), 0, "connection closed by peer", 1, 0});
  EXPECT_EQ(world.state_of(name), Running);
  world.say("worker-1", RankFailed{world.key(name, 1), RankIndex(1), 0, "executor ended", -1, 9});
  EXPECT_EQ(world.state_of(name), Failed);
  EXPECT_THAT(world.reason_of(name), HasSubstr("rank 1 on worker-1"));
}

TEST(Failure, own_error_of_a_rank_fails_the_job_after_the_settling_time) {
  World world;
  const std::string name = world.run();
  world.say("worker-0",
            RankFailed{world.key(name, 0), RankIndex(0), 0, "/data/text.txt: no such file", 0, 0});
  world.say("worker-1", RankFailed{world.key(name, 1), RankIndex(1), 0, "connection closed by peer", 0, 0});
  const auto commands = world.tick(400ms);
  EXPECT_EQ(world.state_of(name), Failed);
  EXPECT_THAT(world.reason_of(name), HasSubstr("rank 0 on worker-0 failed in step 0: /data/text.txt"));
  EXPECT_EQ(messages<Abort>(world, commands).size(), 2u);
}

TEST(Failure, executor_that_stops_without_a_word_fails_the_job) {
  World world;
  const std::string name = world.run();
  world.stopped(name, 0);
  EXPECT_EQ(world.state_of(name), Running);
  world.tick(400ms);
  EXPECT_EQ(world.state_of(name), Failed);
  EXPECT_THAT(world.reason_of(name), HasSubstr("rank 0 on worker-0 stopped without a result"));
}

TEST(Cancel, works_in_every_live_state_and_is_answered_when_durable) {
  for (const JobState from : {Queued, Placing, Preparing, Running}) {
    World world;
    std::string name;
    if (from == Queued) {
      world.open(registration("worker-0"));
      world.open(registration("worker-1"));
      world.tell(SessionSaid{world.sessions["worker-1"], Heartbeat{}});
      world.submit({.name = "first"});
      world.submit({.name = "second"});
      name = world.submit({.name = "third"});
      world.tick();
    } else if (from == Placing) {
      name = world.submit({});
      world.tick();
    } else if (from == Preparing) {
      world.open(registration("worker-0"));
      world.open(registration("worker-1"));
      name = world.submit({});
    } else {
      name = world.run();
    }
    ASSERT_EQ(world.state_of(name), from);
    world.durable_at_once = false;
    const auto commands = world.tell(Cancel{77, name, "bob"});
    EXPECT_TRUE(of<AnswerControl>(commands).empty());
    EXPECT_EQ(messages<Abort>(world, commands).size(), from == Preparing || from == Running ? 2u : 0u);
    const auto answers = of<AnswerControl>(world.make_durable());
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(*answers[0].state, Cancelled);
    EXPECT_EQ(world.state_of(name), Cancelled);
    EXPECT_EQ(world.reason_of(name), "cancelled by bob");
    EXPECT_EQ(world.job(name).status.exit_code, 3);
  }
}

TEST(Cancel, ended_job_keeps_its_state_and_an_unknown_one_is_not_found) {
  World world;
  world.submit({});
  world.tell(Cancel{1, "tiny", "bob"});
  const auto again = of<AnswerControl>(world.tell(Cancel{2, "tiny", "carl"}));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(*again[0].state, Cancelled);
  EXPECT_EQ(world.job("tiny").status.by, "bob");
  const auto unknown = of<AnswerControl>(world.tell(Cancel{3, "tinny", "carl"}));
  EXPECT_EQ(unknown[0].state.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(message(unknown[0].state.status()), HasSubstr("did you mean tiny?"));
}

TEST(Fencing, report_of_another_attempt_incarnation_worker_or_rank_is_refused_and_counted) {
  World world;
  const std::string name = world.run();
  const auto refused = [&] { return world.state.refused[static_cast<size_t>(Refusal::Stale)]; };
  StepReport report = world.step_report(name, 0, 0);
  report.attempt.attempt = 2;
  world.say("worker-0", report);
  EXPECT_EQ(refused(), 1);
  report = world.step_report(name, 0, 0);
  report.attempt.incarnation = 99;
  world.say("worker-0", report);
  EXPECT_EQ(refused(), 2);
  world.say("worker-1", world.step_report(name, 0, 0));  // of a rank that another worker runs
  EXPECT_EQ(refused(), 3);
  report = world.step_report(name, 0, 0);
  report.rank = RankIndex(17);
  world.say("worker-0", report);
  EXPECT_EQ(refused(), 4);
  report.attempt.job = "another";
  world.say("worker-0", report);
  EXPECT_EQ(refused(), 5);
  world.report(name, 0, 0);
  world.report(name, 1, 0);
  EXPECT_EQ(world.job(name).status.step, 1);
  EXPECT_EQ(refused(), 5);
}

TEST(Fencing, stray_executor_is_told_to_stop) {
  World world;
  world.open(registration("worker-0", 5));
  const AttemptKey key{"forgotten", 3, 5};
  const auto aborts = messages<Abort>(world, world.say("worker-0", RankReady{key, RankIndex(1), 1, ""}));
  ASSERT_EQ(aborts.size(), 1u);
  EXPECT_EQ(aborts[0].attempt, key);
}

TEST(Logs, are_kept_by_rank_and_last_words_count_after_the_end) {
  World world;
  const std::string name = world.run();
  world.say("worker-0", LogBatch{world.key(name, 0), RankIndex(0), {"hello"}, 0});
  world.say("worker-1", LogBatch{world.key(name, 1), RankIndex(1), {"world"}, 3});
  world.tell(Cancel{1, name, "bob"});
  EXPECT_FALSE(read_log(world.state, name, RankIndex(), 0, 10)->ended);  // the executors may still speak
  world.say("worker-0", LogBatch{world.key(name, 0), RankIndex(0), {"goodbye"}, 0});
  world.stopped(name, 0);
  world.stopped(name, 1);
  const auto page = read_log(world.state, name, RankIndex(), 0, 10);
  ASSERT_EQ(page->lines.size(), 4u);
  EXPECT_THAT(page->lines[1].text, HasSubstr("3 lines were lost"));
  EXPECT_EQ(page->lines[3].text, "goodbye");
  EXPECT_TRUE(page->ended);
  EXPECT_EQ(read_log(world.state, name, RankIndex(1), 0, 10)->lines.size(), 2u);
}

TEST(Success, losses_of_the_oldest_ended_jobs_are_left_to_the_store) {
  // A thousand ended jobs of a million steps each would fill the memory.
  Options options;
  options.losses_of_ended = 4;
  World world(options);
  for (int w = 0; w < 2; ++w) world.open(registration(fmt::format("worker-{}", w)));
  for (const char* job : {"first", "second"}) {
    const std::string name = world.submit({.name = job});
    world.tick();
    world.all_ready(name);
    for (int64_t step = 0; step < 3; ++step) world.all_report(name, step);
    for (int rank = 0; rank < 2; ++rank) world.finish(name, rank);
    for (int rank = 0; rank < 2; ++rank) world.stopped(name, rank);
    ASSERT_EQ(world.state_of(name), Succeeded);
  }
  EXPECT_TRUE(world.job("first").losses.empty());
  EXPECT_EQ(view_job(world.state, "first", true, 0)->losses_in_store, 3u);
  EXPECT_EQ(view_job(world.state, "first", false, 0)->losses_in_store, 0u);
  EXPECT_EQ(view_job(world.state, "second", true, 0)->losses.size(), 3u);
  EXPECT_EQ(world.archive.find("first")->losses.size(), 3u);
}

TEST(Retirement, oldest_ended_jobs_leave_when_there_are_too_many) {
  World world(small_options());
  for (int i = 0; i < 4; ++i) {
    const std::string name = world.submit({.name = fmt::format("job-{}", i)}, fmt::format("r{}", i));
    world.tell(Cancel{1, name, "bob"});
  }
  EXPECT_FALSE(world.state.jobs.contains("job-0"));
  EXPECT_FALSE(world.state.jobs.contains("job-1"));
  EXPECT_TRUE(world.state.jobs.contains("job-3"));
  EXPECT_EQ(world.archive.jobs().size(), 2u);
  EXPECT_EQ(world.state.names_by_request.size(), 2u);
  int retired = 0;
  for (const Observed& seen : of<Observed>(world.sent))
    retired += std::holds_alternative<JobRetired>(seen.observation);
  EXPECT_EQ(retired, 2);
}

TEST(Retirement, name_is_not_free_before_the_executors_are_gone) {
  // A namesake's attempt 1 would have the very key that the old executor carries.
  Options options = small_options();
  options.jobs_ended = 0;
  World world(options);
  const std::string name = world.run();
  world.tell(Cancel{1, name, "bob"});
  EXPECT_TRUE(world.state.jobs.contains(name));
  EXPECT_EQ(world.submit({}), "tiny-2");
  world.stopped(name, 0);
  EXPECT_TRUE(world.state.jobs.contains(name));
  world.stopped(name, 1);
  EXPECT_FALSE(world.state.jobs.contains(name));
}

TEST(Events, are_bounded_per_job) {
  Options options;
  options.events_per_job = 3;
  World world(options);
  const std::string name = world.run();
  world.tell(Cancel{1, name, "bob"});
  EXPECT_EQ(world.job(name).events.size(), 3u);
  EXPECT_EQ(world.job(name).events.back().state, Cancelled);
  EXPECT_EQ(world.archive.jobs()[0].events.size(), 3u);
}

TEST(Events, waiting_to_and_fro_is_one_event_and_the_stored_ones_are_the_shown_ones) {
  World world;
  world.open(registration("worker-0"));
  world.submit({.name = "first", .pipeline = 2});
  const std::string name = world.submit({.name = "second", .pipeline = 1});
  world.tick();
  for (int i = 0; i < 5; ++i) {
    world.open(registration("worker-1", 1));  // the first job takes both, and the second one waits behind it
    world.tell(SessionClosed{world.sessions["worker-1"], "gone"});
    world.tick();
  }
  for (const StoredJob& stored : world.archive.jobs()) {
    const Job& job = world.job(stored.definition.name);
    EXPECT_EQ(stored.events, std::vector<JobEventView>(job.events.begin(), job.events.end()));
    EXPECT_EQ(stored.next_event, job.next_event);
  }
  EXPECT_LE(world.job(name).events.size(), 5u);
}

TEST(Restart, keeps_ended_and_waiting_jobs_and_fails_the_ones_that_ran) {
  World before;
  const std::string ran = before.run();
  before.all_report(ran, 0);
  const std::string waits = before.submit({.name = "waits", .pipeline = 3}, "r1");
  const std::string done = before.submit({.name = "done", .pipeline = 3});
  before.tell(Cancel{1, done, "bob"});
  ASSERT_EQ(before.state_of(waits), Placing);

  World after;
  after.archive = before.archive;
  after.tell(Restore{before.archive.jobs()});
  EXPECT_EQ(after.state_of(ran), Failed);
  EXPECT_THAT(after.reason_of(ran),
              HasSubstr("coordinator was restarted while the job was running in step 1"));
  EXPECT_EQ(after.job(ran).losses, std::vector<double>{4.0});
  EXPECT_EQ(after.state_of(done), Cancelled);
  EXPECT_EQ(after.state_of(waits), Placing);
  EXPECT_EQ(after.submit({.name = "waits", .pipeline = 3}, "r1"), waits);
  EXPECT_EQ(after.submit({.name = "waits"}), "waits-2");
}

TEST(Restart, executors_that_outlived_the_coordinator_are_stopped_before_their_device_is_used) {
  World before;
  const std::string name = before.run();

  World after;
  after.archive = before.archive;
  after.tell(Restore{before.archive.jobs()});
  // worker-0 is the same process, worker-1 was restarted: its executor died with it.
  const auto session = ++after.last_session;
  after.sessions["worker-0"] = session;
  const auto commands = after.tell(SessionOpened{session, registration("worker-0", 1)});
  const auto aborts = messages<Abort>(after, commands, "worker-0");
  ASSERT_EQ(aborts.size(), 1u);
  EXPECT_EQ(aborts[0].attempt, (AttemptKey{name, 1, 1}));
  after.open(registration("worker-1", 2));
  EXPECT_EQ(take_census(after.state).devices_free, 1);
  EXPECT_EQ(after.archive.jobs()[0].placed.size(), 2u);
  after.say("worker-0", ExecutorStopped{aborts[0].attempt, aborts[0].rank});
  EXPECT_EQ(take_census(after.state).devices_free, 2);
  EXPECT_TRUE(after.archive.jobs()[0].placed.empty());
}

TEST(Restart, of_two_executors_remembered_on_a_device_only_the_newer_can_be_alive) {
  // An attempt is forgotten when its last executor is gone; until then a later one may hold a device of it.
  World before;
  const std::string first = before.run();
  before.tell(Cancel{1, first, "bob"});
  before.stopped(first, 0);  // worker-1 still stops its rank
  const std::string second = before.submit({.name = "solo", .pipeline = 1});
  before.tick();
  ASSERT_EQ(before.place_of(second, 0).worker, "worker-0");

  World after;
  after.tell(Restore{before.archive.jobs()});
  after.sessions["worker-0"] = ++after.last_session;
  const auto commands = after.tell(SessionOpened{after.last_session, registration("worker-0", 1)});
  const auto aborts = messages<Abort>(after, commands, "worker-0");
  ASSERT_EQ(aborts.size(), 1u);
  EXPECT_EQ(aborts[0].attempt.job, second);
}

TEST(Queue, older_job_that_fits_the_fleet_goes_first) {
  // Otherwise small jobs would starve a big one for ever.
  World world;
  const std::string running = world.run();
  const std::string big = world.submit({.name = "big", .pipeline = 2});
  const std::string small = world.submit({.name = "small", .pipeline = 1});
  world.tick();
  EXPECT_EQ(world.state_of(big), Placing);
  EXPECT_EQ(world.state_of(small), Queued);
  EXPECT_EQ(world.reason_of(small), "waits behind job big");
  world.tell(Cancel{1, running, "bob"});
  world.stopped(running, 0);
  world.tick();
  EXPECT_EQ(world.state_of(small), Queued);
  world.stopped(running, 1);
  world.tick();
  EXPECT_EQ(world.state_of(big), Preparing);
}

TEST(Queue, job_that_the_fleet_cannot_hold_stops_nobody) {
  World world;
  world.open(registration("worker-0"));
  world.open(registration("worker-1"));
  const std::string huge = world.submit({.name = "huge", .pipeline = 4});
  const std::string small = world.submit({.name = "small", .pipeline = 2});
  EXPECT_EQ(world.state_of(huge), Placing);
  EXPECT_EQ(world.reason_of(huge), "waits for 2 more cpu devices: 4 needed, 2 free");
  world.tick();
  EXPECT_EQ(world.state_of(small), Preparing);
}

Options with_weights() {
  Options options;
  options.weights_root = "/state/jobs";
  return options;
}

// A job of two ranks that have done all of their steps and written their weights; the commands of the last word.
std::vector<Command> finish_all(World& world) {
  const std::string name = world.run();
  for (int64_t step = 0; step < 3; ++step) world.all_report(name, step);
  world.finish(name, 0);
  return world.finish(name, 1);
}

TEST(Weights, every_rank_is_told_their_place_and_its_marker) {
  World world(with_weights());
  world.run();
  const auto assignments = messages<Assignment>(world, world.sent);
  ASSERT_EQ(assignments.size(), 2u);
  for (const Assignment& assignment : assignments) {
    EXPECT_EQ(assignment.weights.directory, "/state/jobs/tiny/weights");
    EXPECT_EQ(assignment.weights.marker, of<PlanAttempt>(world.sent)[0].weights.marker);
  }
  World other(with_weights());
  other.now.unix_ms += 5;
  other.run();
  EXPECT_NE(messages<Assignment>(other, other.sent)[0].weights.marker, assignments[0].weights.marker);
}

TEST(Weights, job_succeeds_only_when_they_are_whole) {
  World world(with_weights());
  const auto commits = of<CommitWeights>(finish_all(world));
  ASSERT_EQ(commits.size(), 1u);
  EXPECT_EQ(commits[0].weights.directory, "/state/jobs/tiny/weights");
  EXPECT_EQ(world.state_of("tiny"), Running);
  EXPECT_EQ(view_job(world.state, "tiny", false, 0)->weights_directory, "");
  world.stopped("tiny", 0);  // executors leave meanwhile
  world.stopped("tiny", 1);
  world.tell(WeightsCommitted{"tiny", commits[0].order, commits[0].weights, ok_status()});
  EXPECT_EQ(world.state_of("tiny"), Succeeded);
  EXPECT_EQ(view_job(world.state, "tiny", false, 0)->weights_directory, "/state/jobs/tiny/weights");
}

TEST(Weights, job_whose_weights_cannot_be_kept_fails_with_the_reason) {
  World world(with_weights());
  const auto commit = of<CommitWeights>(finish_all(world)).at(0);
  world.tell(WeightsCommitted{"tiny", commit.order, commit.weights, resource_exhausted("the disk is full")});
  EXPECT_EQ(world.state_of("tiny"), Failed);
  EXPECT_EQ(world.reason_of("tiny"), "the final weights cannot be kept: the disk is full");
  EXPECT_EQ(view_job(world.state, "tiny", false, 0)->weights_directory, "");
}

TEST(Weights, those_of_a_job_that_was_cancelled_meanwhile_are_discarded) {
  World world(with_weights());
  const auto commit = of<CommitWeights>(finish_all(world)).at(0);
  world.tell(Cancel{7, "tiny", "bob"});
  const auto commands = world.tell(WeightsCommitted{"tiny", commit.order, commit.weights, ok_status()});
  EXPECT_EQ(world.state_of("tiny"), Cancelled);
  ASSERT_EQ(of<DiscardWeights>(commands).size(), 1u);
  EXPECT_EQ(of<DiscardWeights>(commands)[0].weights.directory, "/state/jobs/tiny/weights");
}

TEST(Weights, coordinator_without_a_place_for_them_asks_nobody_to_write) {
  World world;
  finish_all(world);
  EXPECT_EQ(world.state_of("tiny"), Succeeded);
  EXPECT_EQ(messages<Assignment>(world, world.sent)[0].weights.directory, "");
  EXPECT_EQ(view_job(world.state, "tiny", false, 0)->weights_directory, "");
}

TEST(Weights, job_on_emulated_devices_has_none_and_no_loss) {
  World world(with_weights());
  Registration emulated = registration("worker-0", 1, 2);
  for (DeviceSlot& slot : emulated.devices) slot.kind = "emulated";
  world.open(emulated);
  const std::string name =
      world.submit({.device = "{kind: emulated, costs: {stages: {forward: 1, backward: 2}}}"});
  world.all_ready(name);
  for (int64_t step = 0; step < 3; ++step) {
    for (int rank = 0; rank < 2; ++rank) {
      StepReport report = world.step_report(name, rank, step);
      report.loss.reset();
      world.say("worker-0", report);
    }
  }
  for (int rank = 0; rank < 2; ++rank)
    world.say("worker-0", RankFinished{world.key(name, rank), RankIndex(rank), {}});
  EXPECT_EQ(world.state_of(name), Succeeded) << world.reason_of(name);
  EXPECT_EQ(messages<Assignment>(world, world.sent)[0].weights.directory, "");
  EXPECT_TRUE(of<CommitWeights>(world.sent).empty());
  const auto view = view_job(world.state, name, true, 0);
  EXPECT_EQ(view->weights_digest, "");
  EXPECT_EQ(view->weights_directory, "");
  EXPECT_EQ(view->loss, std::nullopt);
  EXPECT_EQ(view->step, 3);
}

TEST(Weights, job_that_computes_is_not_placed_on_emulated_devices) {
  World world;
  Registration emulated = registration("worker-0", 1, 2);
  for (DeviceSlot& slot : emulated.devices) slot.kind = "emulated";
  world.open(emulated);
  const std::string name = world.submit({});
  EXPECT_EQ(world.state_of(name), Placing);
  EXPECT_THAT(world.reason_of(name), HasSubstr("waits for 2 more cpu devices"));
}

TEST(Placing, ranks_on_emulated_devices_go_to_one_host) {
  World world;
  for (const char* worker : {"worker-0", "worker-1"}) {
    Registration emulated = registration(worker, 1, 1);
    emulated.devices[0].kind = "emulated";
    world.open(emulated);
  }
  const std::string name =
      world.submit({.device = "{kind: emulated, costs: {stages: {forward: 1, backward: 2}}}"});
  EXPECT_EQ(world.state_of(name), Placing);
  EXPECT_THAT(world.reason_of(name),
              HasSubstr("waits for 1 more emulated device on one host (emulated devices share a clock)"));
}

}  // namespace
}  // namespace penstock::coordinator
