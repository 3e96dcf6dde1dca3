// Jobs that move of their own accord: what a move may cost them, and what not.
#include <gmock/gmock.h>

#include "coordinator/core/testing/rebalanced_job.h"

namespace penstock::coordinator {
namespace {

using namespace testing;  // World and its words
using ::testing::HasSubstr;
using enum JobState;

const JobShape kYoung = {.name = "young", .pipeline = 1, .steps = 1000};

// Its executors leave one after the other.
void leave_slowly(World& world, const std::string& name) {
  for (int rank = 0; rank < 2; ++rank) {
    world.tick();
    world.stopped(name, rank);
  }
  for (int i = 0; i < 3; ++i) world.tick();
}

TEST(Moving, job_gets_its_devices_back_before_a_younger_one_that_waits) {
  World world = world_of_quick_questions();
  Planner planner{{move_to(evened())}};
  planner.serve(world);
  const std::string name = world.run(kUneven);
  const std::string young = world.submit(kYoung);
  run_steps(world, name, 0, 10);
  ASSERT_EQ(world.state_of(name), Recovering);
  world.tick();
  world.stopped(name, 0);
  world.tick();
  EXPECT_EQ(
      world.reason_of(young),
      "waits for 1 more cpu device: 1 needed, 0 free (worker-0 cpu:0 is kept for tiny, worker-1 cpu:0 stops "
      "tiny rank 1)");
  world.stopped(name, 1);
  for (int i = 0; i < 3; ++i) world.tick();
  EXPECT_EQ(world.state_of(name), Preparing) << world.reason_of(name);
  EXPECT_EQ(world.reason_of(young),
            "waits for 1 more cpu device: 1 needed, 0 free (worker-0 cpu:0 runs tiny rank 0, "
            "worker-1 cpu:0 runs tiny rank 1)");
}

// It would wait for what the move gave away, and the older one for more than that.
TEST(Moving, job_gets_its_devices_back_before_an_older_one_that_needs_more) {
  World world = world_of_quick_questions();
  const std::string old = world.submit({.name = "old", .pipeline = 3, .steps = 1000});
  Planner planner{{move_to(evened())}};
  planner.serve(world);
  const std::string name = world.run(kUneven);
  world.open(registration("worker-2"));
  ASSERT_THAT(world.reason_of(old), HasSubstr("waits for 2 more"));
  run_steps(world, name, 0, 10);
  ASSERT_EQ(world.state_of(name), Recovering);
  leave_slowly(world, name);
  EXPECT_EQ(world.state_of(name), Preparing) << world.reason_of(name);
}

// Another machine may compute other bits, and steps that are done again must come out the same.
TEST(Moving, job_stays_on_its_machine) {
  World world = world_of_quick_questions();
  Planner planner{{move_to(evened())}};
  planner.serve(world);
  world.open(registration("big", 1, 4));
  const std::string name = world.submit(kUneven);
  world.all_ready(name);
  world.open(registration("small", 1, 2));
  run_steps(world, name, 0, 10);
  ASSERT_EQ(world.state_of(name), Recovering);
  leave_slowly(world, name);
  ASSERT_EQ(world.state_of(name), Preparing) << world.reason_of(name);
  EXPECT_EQ(world.reason_of(name), "0 of 2 ranks are ready");
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(world.place_of(name, rank).worker, "big");
}

TEST(Moving, job_whose_worker_is_drained_meanwhile_is_placed_as_any_other) {
  World world = world_of_quick_questions();
  Planner planner{{move_to(evened())}};
  planner.serve(world);
  const std::string name = world.run(kUneven);
  run_steps(world, name, 0, 10);
  world.tell(Drain{91, "worker-0", "bob"});
  leave_slowly(world, name);
  EXPECT_THAT(world.reason_of(name), HasSubstr("waits for 1 more"));
  world.open(registration("worker-2"));
  EXPECT_EQ(world.state_of(name), Preparing) << world.reason_of(name);
  EXPECT_EQ(world.place_of(name, 1).worker, "worker-2");
}

TEST(Moving, job_that_a_person_pauses_meanwhile_keeps_no_devices) {
  World world = world_of_quick_questions();
  Planner planner{{move_to(evened())}};
  planner.serve(world);
  const std::string name = world.run(kUneven);
  const std::string young = world.submit(kYoung);
  run_steps(world, name, 0, 10);
  world.tell(Pause{91, name, "bob"});
  leave_slowly(world, name);
  EXPECT_EQ(world.state_of(young), Preparing) << world.reason_of(young);
}

TEST(Moving, job_whose_restarts_are_spent_survives_a_split_that_cannot_run) {
  World world = world_of_quick_questions();
  JobShape shape = kUneven;
  shape.extra += "restart: {max: 1}\n";
  Planner planner{{{}, move_to(evened(shape))}};
  planner.serve(world);
  const std::string name = world.run(shape);
  run_steps(world, name, 0, 7);
  kill_rank(world, name);
  restart(world, name);
  world.all_ready(name);
  run_steps(world, name, 5, 15);
  ASSERT_EQ(world.state_of(name), Recovering) << world.reason_of(name);
  restart(world, name);
  kill_rank(world, name);
  EXPECT_EQ(world.state_of(name), Recovering) << world.reason_of(name);
  EXPECT_EQ(world.job(name).status.restarts, 1);  // the first rank's
  EXPECT_EQ(world.job(name).status.barren_attempts, 0);
  EXPECT_EQ(stored(world, name).spec_yaml, job_yaml(shape));
  restart(world, name);
  kill_rank(world, name);
  EXPECT_EQ(world.job(name).ending->status.state, Failed);  // once per move
}

TEST(Moving, split_that_did_steps_is_not_taken_back_when_a_later_attempt_does_none) {
  World world = world_of_quick_questions();
  Planner planner{{move_to(evened())}};
  const std::string name = moved_job(world, planner);
  world.all_ready(name);
  run_steps(world, name, 10, 12);
  kill_rank(world, name);
  restart(world, name);
  kill_rank(world, name);
  EXPECT_EQ(world.job(name).status.restarts, 2);
  EXPECT_EQ(stored(world, name).moves, SplitMoves{.file_before = job_yaml(kUneven)});
}

TEST(Moving, split_is_not_to_blame_for_a_worker_that_leaves) {
  for (const bool drains : {false, true}) {
    World world = world_of_quick_questions();
    Planner planner{{move_to(evened())}};
    const std::string name = moved_job(world, planner);
    if (drains)
      world.say("worker-0", coordinator::Draining{"SIGTERM"});
    else
      world.tell(SessionClosed{world.sessions.at("worker-0"), "stream closed"});
    EXPECT_EQ(world.state_of(name), Recovering);
    EXPECT_EQ(world.job(name).status.restarts, 1);
    EXPECT_EQ(stored(world, name).moves, SplitMoves{.file_before = job_yaml(kUneven)});
  }
}

// Heartbeats of the others while worker-0 is silent.
void pass_without_worker_0(World& world, int seconds) {
  for (int i = 0; i < seconds; ++i) {
    world.say("worker-1", Heartbeat{1});
    world.tick(1s);
  }
}

void lose_peer(World& world, const std::string& name) {
  world.say("worker-1", RankFailed{world.key(name, 1), RankIndex(1), -1, "rank 0 does not answer", 1, 0});
}

// Its peers feel it long before its lease ends.
TEST(Moving, split_is_not_to_blame_for_a_machine_that_dies_without_a_word) {
  World world = world_of_quick_questions();
  Planner planner{{move_to(evened())}};
  const std::string name = moved_job(world, planner);
  lose_peer(world, name);
  pass_without_worker_0(world, 4);
  EXPECT_EQ(world.state_of(name), Preparing) << world.reason_of(name);
  pass_without_worker_0(world, 3);
  EXPECT_EQ(world.state_of(name), Recovering);
  EXPECT_THAT(world.reason_of(name), HasSubstr("worker worker-0: silent for"));
  EXPECT_EQ(world.job(name).status.restarts, 1);
  EXPECT_EQ(stored(world, name).moves, SplitMoves{.file_before = job_yaml(kUneven)});
}

TEST(Moving, split_is_judged_as_soon_as_all_its_workers_were_heard) {
  World world = world_of_quick_questions();
  Planner planner{{move_to(evened())}};
  const std::string name = moved_job(world, planner);
  lose_peer(world, name);
  pass_without_worker_0(world, 2);
  world.say("worker-0", Heartbeat{1});
  world.tick();
  EXPECT_EQ(world.state_of(name), Recovering) << world.reason_of(name);
  EXPECT_THAT(world.reason_of(name), HasSubstr("goes back to the one before"));
  EXPECT_EQ(stored(world, name).moves, SplitMoves{});
}

// Its executor has stopped, so that nothing of the attempt is lost with it.
TEST(Moving, split_is_not_to_blame_for_a_worker_that_is_gone_when_its_failure_is_judged) {
  World world = world_of_quick_questions();
  Planner planner{{move_to(evened())}};
  const std::string name = moved_job(world, planner);
  world.stopped(name, 0);
  world.say("worker-0", coordinator::Draining{"SIGTERM"});
  world.tell(SessionClosed{world.sessions.at("worker-0"), "stream closed"});
  world.tick(400ms);
  EXPECT_EQ(world.state_of(name), Recovering) << world.reason_of(name);
  EXPECT_EQ(stored(world, name).moves, SplitMoves{.file_before = job_yaml(kUneven)});
}

// An executor may be killed by anybody, once.
TEST(Moving, split_that_cannot_start_is_tried_twice) {
  World world = world_of_quick_questions();
  Planner planner{{move_to(evened()), move_to(evened())}};
  const std::string name = moved_job(world, planner);
  kill_rank(world, name);
  EXPECT_EQ(stored(world, name).moves, SplitMoves{});
  restart(world, name);
  world.all_ready(name);
  run_steps(world, name, 10, 20);
  ASSERT_EQ(world.state_of(name), Recovering) << world.reason_of(name);
  restart(world, name);
  kill_rank(world, name);
  EXPECT_THAT(world.reason_of(name), HasSubstr("goes back to the one before, for good"));
  const std::string split = plan::to_text(job_spec(evened())->parallel.split);
  EXPECT_EQ(stored(world, name).moves, (SplitMoves{.undone = {split}}));
  EXPECT_EQ(world.job(name).status.restarts, 0);
}

// The only question that was asked, answered now.
void answer_question(World& world, const std::string& name, SplitAnswer answer) {
  const auto asked = of<ConsiderSplit>(world.sent);
  ASSERT_EQ(asked.size(), 1u);
  world.tell(SplitConsidered{name, asked[0].order, std::move(answer)});
}

TEST(Moving, job_does_not_move_at_its_last_checkpoint) {
  World world = world_of_quick_questions();
  JobShape shape = kUneven;
  shape.steps = 15;
  const std::string name = world.run(shape);
  run_steps(world, name, 0, 13);
  answer_question(world, name, move_to(evened(shape)));
  run_steps(world, name, 13, 15);
  EXPECT_EQ(world.state_of(name), Running) << world.reason_of(name);
  EXPECT_EQ(stored(world, name).spec_yaml, job_yaml(shape));
}

TEST(Moving, job_whose_steps_are_done_does_none_of_them_again) {
  World world = world_of_quick_questions();
  JobShape shape = kUneven;
  shape.steps = 12;
  const std::string name = world.run(shape);
  run_steps(world, name, 0, 12);
  answer_question(world, name, move_to(evened(shape), 0.7));
  EXPECT_EQ(world.state_of(name), Running) << world.reason_of(name);
}

// A decision that waited may wait too long.
TEST(Moving, decision_is_weighed_again_at_the_checkpoint_that_it_waited_for) {
  World world = world_of_quick_questions();
  JobShape shape = kUneven;
  shape.steps = 20;
  const std::string name = world.run(shape);
  run_steps(world, name, 0, 13);
  answer_question(world, name, move_to(evened(shape)));
  const int64_t order = world.job(name).attempt->order;
  for (int64_t step = 13; step < 19; ++step) world.all_report(name, step);  // the commit takes four steps
  for (int rank = 0; rank < 2; ++rank) world.wrote(name, rank, 15);
  world.tell(CheckpointCommitted{name, order, 15, ok_status(), std::string(32, 'd')});
  EXPECT_EQ(world.state_of(name), Running) << world.reason_of(name);
}

TEST(Moving, steps_done_again_are_counted_from_the_checkpoint) {
  World world = world_of_quick_questions();
  JobShape shape = kUneven;
  shape.steps = 200;
  shape.extra = "checkpoint: {every: 50, directory: /kept}\nrebalance: apply\n";
  const std::string name = world.run(shape);
  const int64_t order = world.job(name).attempt->order;
  for (int64_t step = 0; step < 95; ++step) world.all_report(name, step);  // the commit takes 45 steps
  for (int rank = 0; rank < 2; ++rank) world.wrote(name, rank, 50);
  world.tell(CheckpointCommitted{name, order, 50, ok_status(), std::string(32, 'd')});
  answer_question(world, name, move_to(evened(shape), 0.05));
  EXPECT_EQ(world.state_of(name), Running) << world.reason_of(name);
  run_steps(world, name, 95, 100);
  EXPECT_EQ(world.state_of(name), Recovering);
}

TEST(Moving, failure_of_a_rank_is_not_covered_by_a_move) {
  for (const bool waits : {false, true}) {
    World world = world_of_quick_questions();
    const std::string name = world.run(kUneven);
    run_steps(world, name, 0, waits ? 13 : 10);
    if (waits) answer_question(world, name, move_to(evened()));
    if (waits) run_steps(world, name, 13, 14);
    world.say(world.place_of(name, 1).worker,
              RankFailed{world.key(name, 1), RankIndex(1), 1, "out of memory", -1, 0});
    if (waits)
      run_steps(world, name, 14, 15);
    else
      answer_question(world, name, move_to(evened()));
    EXPECT_EQ(world.state_of(name), Running) << world.reason_of(name);
    world.tick(400ms);
    EXPECT_EQ(world.state_of(name), Recovering);
    EXPECT_THAT(world.reason_of(name), HasSubstr("out of memory"));
    EXPECT_EQ(world.job(name).status.restarts, 1);
  }
}

// It would stop, and start only when the store commits again.
TEST(Moving, job_runs_on_while_the_store_fails) {
  World world = world_of_quick_questions();
  const std::string name = world.run(kUneven);
  run_steps(world, name, 0, 10);
  world.tell(StoreHealth{resource_exhausted("database or disk is full")});
  answer_question(world, name, move_to(evened()));
  EXPECT_EQ(world.state_of(name), Running) << world.reason_of(name);
  world.tell(StoreHealth{ok_status()});
  run_steps(world, name, 10, 15);
  EXPECT_EQ(world.state_of(name), Recovering);
}

TEST(Moving, person_who_pauses_is_told_as_the_one_who_did) {
  World world = world_of_quick_questions();
  const std::string name = world.run(kUneven);
  run_steps(world, name, 0, 10);
  world.tell(Pause{91, name, "bob"});
  answer_question(world, name, {.advice = SplitAdvice::Fixed, .because = "one stage"});
  EXPECT_EQ(world.job(name).status.by, "bob");
  for (int i = 0; i < 8; ++i) {
    world.tick(4s);
    for (const char* worker : {"worker-0", "worker-1"}) world.say(worker, Heartbeat{1});
  }
  EXPECT_THAT(world.reason_of(name), HasSubstr("no step for 32 s"));  // of the coordinator
  run_steps(world, name, 10, 15);
  EXPECT_EQ(world.state_of(name), Paused);
  EXPECT_EQ(world.job(name).status.by, "bob");
}

TEST(Moving, what_a_move_takes_is_measured_from_the_first_stop_to_the_last_start) {
  World world = world_of_quick_questions();
  Planner planner{{move_to(evened())}};
  planner.serve(world);
  const std::string name = world.run(kUneven);
  run_steps(world, name, 0, 10);
  ASSERT_EQ(world.state_of(name), Recovering);
  world.tick(1s);
  world.stopped(name, 0);
  world.tick(2s);
  world.stopped(name, 1);
  world.tick(500ms);
  world.tick(500ms);
  ASSERT_EQ(world.state_of(name), Preparing) << world.reason_of(name);
  world.tick(1s);
  world.all_ready(name);
  run_steps(world, name, 10, 20);
  ASSERT_EQ(planner.asked.size(), 2u);
  EXPECT_DOUBLE_EQ(planner.asked[1].move_seconds, 5);
}

TEST(Moving, submission_that_is_repeated_after_a_move_finds_its_job) {
  World world = world_of_quick_questions();
  Planner planner{{move_to(evened())}};
  planner.serve(world);
  for (const char* worker : {"worker-0", "worker-1"}) world.open(registration(worker));
  const std::string name = world.submit(kUneven, "request-1");
  world.all_ready(name);
  run_steps(world, name, 0, 10);
  ASSERT_EQ(stored(world, name).spec_yaml, job_yaml(evened()));
  EXPECT_EQ(world.submit(kUneven, "request-1"), name);
  World next = world_of_quick_questions();
  next.tell(Restore{world.archive.jobs()});
  EXPECT_EQ(next.submit(kUneven, "request-1"), name);
  const auto other = of<AnswerSubmit>(next.tell(Submit{91, "ann", "request-1", job_spec(evened())}));
  ASSERT_EQ(other.size(), 1u);
  EXPECT_EQ(other[0].outcome.status().code(), StatusCode::kAlreadyExists);
}

// 40 steps are left, a checkpoint comes every 10, and nothing was done since the last.
const MoveWeights kFair = {.gain = 0.2, .checkpoint_every = 10, .steps_left = 40};

TEST(TimeToMove, is_now_where_doing_steps_again_costs_less_than_waiting_with_the_old_split) {
  MoveWeights weights = kFair;
  weights.checkpoint_every = 50;
  weights.steps_left = 1000;
  weights.steps_since = 8;  // 8 again, or 42 of which a fifth is lost
  EXPECT_EQ(time_to_move(weights), MoveTime::Now);
  weights.steps_since = 9;
  EXPECT_EQ(time_to_move(weights), MoveTime::AtCheckpoint);
  weights.steps_since = 60;  // a late commit
  EXPECT_EQ(time_to_move(weights), MoveTime::AtCheckpoint);
}

TEST(TimeToMove, is_never_where_the_steps_left_do_not_bring_what_it_costs) {
  MoveWeights weights = kFair;
  weights.move_steps = 8;  // a fifth of 40
  EXPECT_EQ(time_to_move(weights), MoveTime::Now);
  weights.move_steps = 9;
  EXPECT_EQ(time_to_move(weights), MoveTime::Never);
  weights = kFair;
  weights.steps_since = 5;
  weights.steps_left = 5;  // the next checkpoint is the last
  EXPECT_EQ(time_to_move(weights), MoveTime::Never);
  weights.steps_left = 6;
  EXPECT_EQ(time_to_move(weights), MoveTime::AtCheckpoint);
  weights = kFair;
  weights.steps_left = 0;
  EXPECT_EQ(time_to_move(weights), MoveTime::Never);
}

// A split that has not kept its promise goes, whatever that wins; not for longer than the job still takes.
TEST(TimeToMove, of_going_back_is_never_where_it_takes_longer_than_the_rest_of_the_job) {
  MoveWeights weights = {.goes_back = true, .checkpoint_every = 10, .steps_left = 40, .move_steps = 40};
  EXPECT_EQ(time_to_move(weights), MoveTime::Now);
  weights.steps_left = 39;
  EXPECT_EQ(time_to_move(weights), MoveTime::Never);
  weights.steps_since = 1;
  weights.steps_left = 49;
  EXPECT_EQ(time_to_move(weights), MoveTime::AtCheckpoint);
}

}  // namespace
}  // namespace penstock::coordinator
