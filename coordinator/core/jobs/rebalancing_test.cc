// Jobs whose file says `rebalance:`, with a planner that answers what the test wants.
#include <gmock/gmock.h>

#include "coordinator/core/testing/rebalanced_job.h"

namespace penstock::coordinator {
namespace {

using namespace testing;  // World and its words
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using enum JobState;

TEST(Rebalancing, job_that_is_measured_moves_from_its_checkpoint_and_no_restart_is_counted) {
  World world = world_of_quick_questions();
  Planner planner{{move_to(evened())}};
  planner.serve(world);
  const std::string name = world.run(kUneven);
  run_steps(world, name, 0, 5);
  EXPECT_TRUE(planner.asked.empty());  // three steps behind the warm-up
  run_steps(world, name, 5, 10);
  ASSERT_EQ(planner.asked.size(), 1u);
  EXPECT_EQ(planner.asked[0].attempts.back().steps, 8);
  EXPECT_EQ(planner.asked[0].steps_left, 30);
  EXPECT_EQ(planner.asked[0].spec->yaml, job_yaml(kUneven));
  EXPECT_EQ(world.state_of(name), Recovering);
  EXPECT_EQ(world.reason_of(name), "goes on with another split, from the checkpoint of step 10: 20 % faster");
  EXPECT_THAT(told_by_rebalancer(world, name), ElementsAre(world.reason_of(name)));
  EXPECT_EQ(stored(world, name).spec_yaml, job_yaml(evened()));
  EXPECT_EQ(stored(world, name).moves.file_before, job_yaml(kUneven));
  world.sent.clear();
  restart(world, name);
  const auto assignments = messages<Assignment>(world, world.sent);
  ASSERT_EQ(assignments.size(), 2u);
  EXPECT_EQ(assignments[0].first_step, 10);
  EXPECT_EQ(assignments[1].split, job_spec(evened())->parallel.split);
  world.all_ready(name);
  run_steps(world, name, 10, 12);
  EXPECT_EQ(world.job(name).status.restarts, 0);
  EXPECT_EQ(world.job(name).status.barren_attempts, 0);
  EXPECT_EQ(world.job(name).losses.size(), 12u);
}

TEST(Rebalancing, proposal_is_told_once_and_moves_nothing) {
  World world = world_of_quick_questions();
  SplitAnswer proposal = move_to(evened());
  proposal.spec = nullptr;
  Planner planner{{proposal, proposal}};
  planner.serve(world);
  JobShape shape = kUneven;
  shape.extra = "checkpoint: {every: 5, directory: /kept}\nrebalance: propose\n";
  const std::string name = world.run(shape);
  run_steps(world, name, 0, 20);
  EXPECT_EQ(planner.asked.size(), 3u);
  EXPECT_EQ(world.state_of(name), Running);
  EXPECT_THAT(
      told_by_rebalancer(world, name),
      ElementsAre(
          "another split is proposed: 20 % faster; `penstock rebalance tiny --apply` goes on with it"));
  EXPECT_EQ(stored(world, name).spec_yaml, job_yaml(shape));
}

TEST(Rebalancing, job_that_does_not_ask_for_it_is_left_alone) {
  World world = world_of_quick_questions();
  Planner planner;
  planner.serve(world);
  JobShape shape = kUneven;
  shape.extra = "checkpoint: {every: 5, directory: /kept}\n";
  const std::string name = world.run(shape);
  run_steps(world, name, 0, 10);
  kill_rank(world, name);
  restart(world, name);
  EXPECT_TRUE(planner.asked.empty());
}

TEST(Rebalancing, move_that_paid_is_kept_and_told) {
  World world = world_of_quick_questions();
  Planner planner{
      {move_to(evened()), {.advice = SplitAdvice::Keep, .because = "18 % came of 20 % predicted"}}};
  const std::string name = moved_job(world, planner);
  EXPECT_EQ(planner.asked.size(), 1u);  // the new split is not measured when its attempt is planned
  world.all_ready(name);
  run_steps(world, name, 10, 20);
  ASSERT_EQ(planner.asked.size(), 2u);
  EXPECT_EQ(planner.asked[1].moves.file_before, job_yaml(kUneven));
  EXPECT_EQ(planner.asked[1].attempts.size(), 2u);
  EXPECT_EQ(told_by_rebalancer(world, name).back(), "keeps the new split: 18 % came of 20 % predicted");
  EXPECT_EQ(stored(world, name).moves, SplitMoves{});
  EXPECT_EQ(stored(world, name).spec_yaml, job_yaml(evened()));
  EXPECT_EQ(world.state_of(name), Running);
}

TEST(Rebalancing, move_that_did_not_pay_goes_back_and_is_remembered) {
  World world = world_of_quick_questions();
  Planner planner{{move_to(evened()), undo()}};
  const std::string name = moved_job(world, planner);
  world.all_ready(name);
  run_steps(world, name, 10, 20);
  EXPECT_EQ(world.state_of(name), Recovering);
  EXPECT_EQ(world.reason_of(name), "goes back to the split before, from the checkpoint of step 20: 1 % came");
  EXPECT_EQ(stored(world, name).spec_yaml, job_yaml(kUneven));
  const std::string split = plan::to_text(job_spec(evened())->parallel.split);
  EXPECT_EQ(stored(world, name).moves, (SplitMoves{.undone = {split}}));
  restart(world, name);
  world.all_ready(name);
  run_steps(world, name, 20, 30);
  EXPECT_THAT(planner.asked.back().moves.undone, ElementsAre(split));
  EXPECT_EQ(world.job(name).status.restarts, 0);
}

TEST(Rebalancing, answer_that_comes_late_waits_for_the_next_checkpoint) {
  World world = world_of_quick_questions();
  const std::string name = world.run(kUneven);
  run_steps(world, name, 0, 10);
  const auto asked = of<ConsiderSplit>(world.sent);
  ASSERT_EQ(asked.size(), 1u);
  run_steps(world, name, 10, 13);  // three steps would be done again, two are left until the next one
  world.tell(SplitConsidered{name, asked[0].order, move_to(evened())});
  EXPECT_EQ(world.state_of(name), Running);
  run_steps(world, name, 13, 15);
  EXPECT_EQ(world.state_of(name), Recovering);
  EXPECT_THAT(world.reason_of(name), HasSubstr("from the checkpoint of step 15"));
  EXPECT_EQ(of<ConsiderSplit>(world.sent).size(), 1u);
}

TEST(Rebalancing, answer_to_an_attempt_that_is_over_changes_nothing) {
  World world = world_of_quick_questions();
  const std::string name = world.run(kUneven);
  run_steps(world, name, 0, 10);
  const int64_t order = of<ConsiderSplit>(world.sent).at(0).order;
  kill_rank(world, name);
  restart(world, name);
  world.all_ready(name);
  world.tell(SplitConsidered{name, order, move_to(evened())});
  world.tell(SplitConsidered{"nobody", order, move_to(evened())});
  EXPECT_EQ(world.state_of(name), Running);
  EXPECT_EQ(stored(world, name).spec_yaml, job_yaml(kUneven));
}

TEST(Rebalancing, answer_that_waits_for_a_checkpoint_is_forgotten_with_its_attempt) {
  World world = world_of_quick_questions();
  const std::string name = world.run(kUneven);
  run_steps(world, name, 0, 10);
  run_steps(world, name, 10, 13);
  world.tell(SplitConsidered{name, of<ConsiderSplit>(world.sent).at(0).order, move_to(evened())});
  kill_rank(world, name);
  restart(world, name);
  world.all_ready(name);
  run_steps(world, name, 10, 20);
  EXPECT_EQ(world.state_of(name), Running) << world.reason_of(name);
  EXPECT_EQ(of<ConsiderSplit>(world.sent).size(),
            2u);  // the new attempt is asked about by its own measurements
}

TEST(Rebalancing, attempt_that_follows_a_measured_one_starts_with_the_better_split) {
  World world = world_of_quick_questions();
  Planner planner{{{.because = "8 samples of a stage; 100 are needed"}, move_to(evened())}};
  planner.serve(world);
  const std::string name = world.run(kUneven);
  run_steps(world, name, 0, 12);
  kill_rank(world, name);
  world.sent.clear();
  restart(world, name);
  ASSERT_EQ(planner.asked.size(), 2u);
  EXPECT_EQ(planner.asked[1].move_seconds, 0);
  EXPECT_EQ(told_by_rebalancer(world, name).back(), "goes on with another split: 20 % faster");
  EXPECT_EQ(messages<Assignment>(world, world.sent).at(0).split, job_spec(evened())->parallel.split);
  EXPECT_EQ(messages<Assignment>(world, world.sent).at(0).spec_yaml, job_yaml(evened()));
  EXPECT_EQ(stored(world, name).spec_yaml, job_yaml(evened()));
  EXPECT_EQ(world.job(name).status.restarts, 1);  // the lost rank's
  world.all_ready(name);
  run_steps(world, name, 10, 15);
  EXPECT_EQ(world.state_of(name), Running) << world.reason_of(name);
}

// The new split may need more than a rank has.
TEST(Rebalancing, attempt_that_does_no_step_after_a_move_takes_it_back) {
  World world = world_of_quick_questions();
  Planner planner{{move_to(evened())}};
  const std::string name = moved_job(world, planner);
  kill_rank(world, name);
  EXPECT_EQ(world.state_of(name), Recovering);
  EXPECT_THAT(world.reason_of(name),
              HasSubstr("no step was done with the new split: goes back to the one before"));
  EXPECT_EQ(stored(world, name).spec_yaml, job_yaml(kUneven));
  EXPECT_EQ(stored(world, name).moves, SplitMoves{});
  EXPECT_EQ(world.job(name).status.restarts, 0);  // not the job's fault
}

TEST(Rebalancing, attempt_that_did_steps_after_a_move_and_is_lost_keeps_it) {
  World world = world_of_quick_questions();
  Planner planner{{move_to(evened())}};
  const std::string name = moved_job(world, planner);
  world.all_ready(name);
  run_steps(world, name, 10, 11);
  kill_rank(world, name);
  EXPECT_EQ(stored(world, name).spec_yaml, job_yaml(evened()));
  EXPECT_EQ(stored(world, name).moves.file_before, job_yaml(kUneven));
}

TEST(Rebalancing, person_who_pauses_before_the_answer_comes_wins_and_the_next_start_asks_again) {
  World world = world_of_quick_questions();
  const std::string name = world.run(kUneven);
  run_steps(world, name, 0, 10);
  const int64_t order = of<ConsiderSplit>(world.sent).at(0).order;
  world.tell(Pause{91, name, "bob"});
  world.tell(SplitConsidered{name, order, move_to(evened())});
  EXPECT_EQ(world.state_of(name), Draining);
  run_steps(world, name, 10, 15);
  EXPECT_EQ(world.state_of(name), Paused);
  EXPECT_EQ(stored(world, name).spec_yaml, job_yaml(kUneven));
  for (int rank = 0; rank < 2; ++rank) world.stopped(name, rank);
  Planner planner{{move_to(evened())}};
  planner.serve(world);
  world.tell(Resume{92, name, "bob", nullptr});
  world.tick();
  EXPECT_EQ(planner.asked.size(), 1u);
  EXPECT_EQ(stored(world, name).spec_yaml, job_yaml(evened()));
  EXPECT_EQ(world.job(name).losses.size(), 15u);
}

TEST(Rebalancing, person_who_pauses_or_cancels_a_job_that_moves_wins) {
  for (const bool cancels : {false, true}) {
    World world = world_of_quick_questions();
    Planner planner{{move_to(evened())}};
    planner.serve(world);
    const std::string name = world.run(kUneven);
    run_steps(world, name, 0, 10);
    ASSERT_EQ(world.state_of(name), Recovering);
    if (cancels) {
      world.tell(Cancel{91, name, "bob"});
      EXPECT_EQ(world.state_of(name), Cancelled);
      continue;
    }
    world.tell(Pause{91, name, "bob"});
    EXPECT_EQ(world.state_of(name), Paused);
    for (int rank = 0; rank < 2; ++rank) world.stopped(name, rank);
    world.tell(Resume{92, name, "bob", nullptr});
    world.tick();
    world.all_ready(name);
    run_steps(world, name, 10, 12);
    EXPECT_EQ(world.state_of(name), Running);
    EXPECT_EQ(stored(world, name).spec_yaml, job_yaml(evened()));
  }
}

TEST(Rebalancing, split_that_a_person_resumes_with_is_not_judged) {
  World world = world_of_quick_questions();
  Planner planner{{move_to(evened())}};
  const std::string name = moved_job(world, planner);
  world.tell(Pause{91, name, "bob"});
  ASSERT_EQ(world.state_of(name), Paused);
  for (int rank = 0; rank < 2; ++rank) world.stopped(name, rank);
  JobShape own = kUneven;
  own.parallel = ", split: [[embedding, 0], [1, 2, 3, head]]";
  world.tell(Resume{92, name, "bob", job_spec(own)});
  EXPECT_EQ(stored(world, name).moves, SplitMoves{});
  EXPECT_EQ(stored(world, name).spec_yaml, job_yaml(own));
}

TEST(Rebalancing, what_can_never_move_is_told_once_and_not_asked_again) {
  World world = world_of_quick_questions();
  const SplitAnswer fixed{.advice = SplitAdvice::Fixed, .because = "costs by stage"};
  Planner planner{{fixed, fixed, fixed}};
  planner.serve(world);
  const std::string name = world.run(kUneven);
  run_steps(world, name, 0, 20);
  EXPECT_THAT(told_by_rebalancer(world, name), ElementsAre("its split stays: costs by stage"));
  EXPECT_EQ(planner.asked.size(), 1u);
}

TEST(Rebalancing, coordinator_that_restarts_goes_on_with_the_new_split_and_judges_it) {
  World world = world_of_quick_questions();
  Planner planner{{move_to(evened())}};
  planner.serve(world);
  const std::string name = world.run(kUneven);
  run_steps(world, name, 0, 10);
  ASSERT_EQ(world.state_of(name), Recovering);
  World next = world_of_quick_questions();
  next.archive = world.archive;
  next.newest_checkpoint = 10;
  Planner judge{{{.advice = SplitAdvice::Keep, .because = "all of it came"}}};
  judge.serve(next);
  next.tell(Restore{world.archive.jobs()});
  for (const char* worker : {"worker-8", "worker-9"}) next.open(registration(worker));
  next.tick(50s);  // the executors of before end by themselves
  for (const char* worker : {"worker-8", "worker-9"}) next.open(registration(worker, 2));
  next.tick();
  next.tick();
  ASSERT_EQ(next.state_of(name), Preparing) << next.reason_of(name);
  next.all_ready(name);
  run_steps(next, name, 10, 20);
  ASSERT_EQ(judge.asked.size(), 1u);
  EXPECT_EQ(judge.asked[0].spec->yaml, job_yaml(evened()));
  EXPECT_EQ(judge.asked[0].moves.file_before, job_yaml(kUneven));
  EXPECT_EQ(judge.asked[0].attempts.size(), 2u);  // those of before the restart too
  EXPECT_EQ(told_by_rebalancer(next, name).back(), "keeps the new split: all of it came");
}

}  // namespace
}  // namespace penstock::coordinator
