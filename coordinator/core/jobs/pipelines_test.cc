// Jobs whose stages stand on several ranks each: experts shared out, pipelines side by side.
#include <gmock/gmock.h>

#include "coordinator/core/testing/world.h"

namespace penstock::coordinator {
namespace {

using namespace testing;  // World and its words
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using enum JobState;

// Ranks 0 to 3 have the first stage, 4 to 7 the second; rank = pipeline_rank x 4 + data_rank x 2 + expert_rank.
const JobShape kShape = {.expert = 2, .data = 2};

TEST(Pipelines, every_rank_gets_the_program_of_its_place_and_the_hosts_of_all) {
  World world;
  const std::string name = world.run(kShape);
  ASSERT_EQ(world.job(name).definition.ranks, 8);
  for (int rank = 0; rank < 8; ++rank) {
    const auto assignments = messages<Assignment>(world, world.sent, world.place_of(name, rank).worker);
    ASSERT_EQ(assignments.size(), 1u);
    EXPECT_EQ(assignments[0].rank, RankIndex(rank));
    EXPECT_EQ(assignments[0].program.rank, RankIndex(rank / 4));
    EXPECT_EQ(assignments[0].program.ranks, 2);
    EXPECT_EQ(assignments[0].rank_hosts.size(), 8u);
  }
}

TEST(Pipelines, parts_of_the_loss_are_added_in_the_order_of_ranks_however_they_come) {
  // 1e16 + 1 - 1e16 + 3: every other order of these gives another sum.
  World world;
  const std::string name = world.run(kShape);
  const std::map<int, double> parts = {{4, 1e16}, {5, 1.0}, {6, -1e16}, {7, 3.0}};
  for (const int rank : {7, 3, 5, 1, 6, 2, 4}) {
    StepReport report = world.step_report(name, rank, 0);
    if (parts.contains(rank)) report.loss = parts.at(rank);
    world.say(world.place_of(name, rank).worker, report);
  }
  EXPECT_EQ(world.job(name).status.step, 0);  // rank 0 is missing
  world.report(name, 0, 0);
  EXPECT_EQ(world.job(name).status.step, 1);
  EXPECT_EQ(world.job(name).status.loss, ((1e16 + 1.0) + -1e16) + 3.0);
}

TEST(Pipelines, loss_rank_of_any_pipeline_without_its_part_fails_the_job) {
  World world;
  const std::string name = world.run(kShape);
  StepReport report = world.step_report(name, 6, 0);
  report.loss.reset();
  world.say(world.place_of(name, 6).worker, report);
  EXPECT_EQ(world.state_of(name), Failed);
  EXPECT_THAT(world.reason_of(name),
              HasSubstr("rank 6 on worker-6 holds the loss stage and reported step 0 without a loss"));
}

TEST(Pipelines, validation_loss_is_the_sum_of_all_parts_or_the_job_fails) {
  for (const bool is_whole : {true, false}) {
    World world;
    JobShape shape = kShape;
    shape.extra = "validation: {source: /data/held-out.txt, every: 1}\n";
    const std::string name = world.run(shape);
    for (int rank = 0; rank < 8; ++rank) {
      StepReport report = world.step_report(name, rank, 0);
      if (rank >= 4 && (is_whole || rank != 5)) report.validation_loss = 0.5 * rank;
      world.say(world.place_of(name, rank).worker, report);
    }
    if (is_whole) {
      ASSERT_EQ(world.job(name).validation.size(), 1u);
      EXPECT_EQ(world.job(name).validation[0].loss, 11.0);
    } else {
      EXPECT_EQ(world.state_of(name), Failed);
      EXPECT_THAT(world.reason_of(name),
                  HasSubstr("rank 5 on worker-5 reported step 0 without its part of the validation loss"));
    }
  }
}

TEST(Pipelines, pass_of_validation_is_shared_out_among_the_pipelines) {
  // Five microbatches in four pipelines: two each, of which the last are padding.
  const auto plan = plan_attempt(*job_spec(
      {.expert = 2, .data = 2, .extra = "validation: {source: /h.txt, every: 1, microbatches: 5}\n"}));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)->validation.ranks[0].microbatches, 2);
  EXPECT_EQ(
      job_spec({.data = 4, .extra = "validation: {source: /h.txt, every: 1}\n"})->validation.microbatches, 4);
}

TEST(Pipelines, stages_have_a_row_a_rank_and_memory_stands_beside_what_was_predicted) {
  World world;
  const std::string name = world.run(kShape);
  const auto before = view_job(world.state, name, false, world.now.unix_ms);
  ASSERT_EQ(before->memory.size(), 8u);
  EXPECT_GT(before->memory[5][0].predicted_bytes, 0);
  EXPECT_FALSE(before->memory[5][0].peak_bytes.has_value());
  for (int rank = 0; rank < 8; ++rank) {
    StepReport report = world.step_report(name, rank, 0);
    report.memory = {{"parameters", 1000 + rank}, {"rows", 7}};
    if (rank == 6) {
      report.payloads = {{StageIndex(1), LayerIndex(1), "inputs", 3, 0, 2, 0.5},
                         {StageIndex(1), LayerIndex(1), "output_gradients", 1, 0, 1, 0.25}};
    }
    world.say(world.place_of(name, rank).worker, report);
  }
  const auto view = view_job(world.state, name, false, world.now.unix_ms);
  ASSERT_EQ(view->stages.size(), 8u);
  for (int row = 0; row < 8; ++row) {
    EXPECT_EQ(view->stages[row].stage, StageIndex(row / 4));
    EXPECT_EQ(view->stages[row].rank, RankIndex(row));
    EXPECT_EQ(view->stages[row].memory_peak_bytes, 1007 + row);
  }
  EXPECT_EQ(view->stages[6].payload_slots, 4);
  EXPECT_EQ(view->stages[6].payload_slots_peak, 3);
  EXPECT_FALSE(view->stages[5].payload_slots.has_value());
  EXPECT_EQ(view->memory[6][0].kind, "parameters");
  EXPECT_EQ(view->memory[6][0].predicted_bytes, before->memory[6][0].predicted_bytes);
  EXPECT_EQ(view->memory[6][0].peak_bytes, 1006);
  EXPECT_EQ(view->memory[6].back(), (MemoryUseView{.kind = "rows", .peak_bytes = 7}));
  EXPECT_EQ(world.archive.find(name)->memory, view->memory);
}

TEST(Pipelines, kinds_of_memory_that_a_rank_can_make_up_are_bounded) {
  World world;
  const std::string name = world.run({.pipeline = 1});
  for (int64_t step = 0; step < 3; ++step) {
    StepReport report = world.step_report(name, 0, step);
    report.memory.clear();
    for (int kind = 0; kind < 30; ++kind) report.memory.push_back({fmt::format("kind-{}-{}", step, kind), 1});
    world.say(world.place_of(name, 0).worker, report);
  }
  EXPECT_EQ(world.job(name).memory[0].size(), codec::kMostMemoryKinds);
}

TEST(Pipelines, job_succeeds_when_replicas_of_what_is_dense_and_of_experts_agree) {
  for (const bool they_part : {false, true}) {
    World world;
    const std::string name = world.run(kShape);
    for (int64_t step = 0; step < 3; ++step) world.all_report(name, step);
    EXPECT_THAT(world.job(name).losses, ElementsAre(4.0, 3.75, 3.5));
    for (int rank = 0; rank < 8; ++rank) {
      RankFinished finished{world.key(name, rank), RankIndex(rank),
                            digests_of(*world.job(name).spec, RankIndex(rank))};
      if (they_part && rank == 7) finished.digests.back().digest[7] = 1;
      world.say(world.place_of(name, rank).worker, finished);
    }
    EXPECT_EQ(world.state_of(name), they_part ? Failed : Succeeded);
    if (!they_part) continue;
    EXPECT_THAT(world.reason_of(name), HasSubstr("and 7 ended with different bits of it"));
  }
}

TEST(Pipelines, checkpoint_is_committed_when_the_ranks_of_all_pipelines_have_told) {
  World world;
  JobShape shape = kShape;
  shape.extra = "checkpoint: {every: 1, directory: /kept}\n";
  const std::string name = world.run(shape);
  world.all_report(name, 0);
  for (int rank = 0; rank < 7; ++rank) EXPECT_TRUE(of<CommitCheckpoint>(world.wrote(name, rank, 1)).empty());
  EXPECT_EQ(of<CommitCheckpoint>(world.wrote(name, 7, 1)).size(), 1u);
}

TEST(Pipelines, resumed_with_other_degrees_is_allowed_and_told) {
  World world;
  JobShape shape = kShape;
  shape.steps = 9;
  shape.extra = "checkpoint: {every: 1, directory: /kept}\n";
  const std::string name = world.run(shape);
  world.tell(Pause{91, name, "bob"});
  for (int64_t step = 0; step < 2; ++step) world.all_report(name, step);
  for (int rank = 0; rank < 8; ++rank) world.wrote(name, rank, 1);
  world.tell(CheckpointCommitted{name, world.job(name).attempt->order, 1, ok_status(), std::string(32, 'd')});
  ASSERT_EQ(world.state_of(name), Paused);
  for (int rank = 0; rank < 8; ++rank) world.stopped(name, rank);
  world.newest_checkpoint = 1;
  shape.expert = 1;
  shape.has_experts = true;
  const auto answers = of<AnswerControl>(world.tell(Resume{92, name, "bob", job_spec(shape)}));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_TRUE(answers[0].state.ok()) << answers[0].state.status();
  EXPECT_EQ(world.job(name).definition.ranks, 4);
  world.tick();
  world.all_ready(name);
  ASSERT_EQ(world.state_of(name), Running) << world.reason_of(name);
  std::string told;
  for (const JobEventView& event : world.archive.find(name)->events) told += event.reason + "\n";
  EXPECT_THAT(told, HasSubstr("goes on with parallel.expert 1 in place of 2: sums in another order"));
  world.all_report(name, 1);  // not the loss of before to the bit
  EXPECT_EQ(world.job(name).losses.size(), 2u);
}

TEST(Pipelines, ranks_meet_in_groups_and_are_named_by_their_number_in_the_job) {
  World world;
  const std::string name = world.run(kShape);
  // Rank 6 stands in pipeline 2 as the second of two, and in its data group as the third of four.
  const auto publish = [&](CommunicatorKey key) {
    return of<AnswerPublish>(world.tell(Publish{7, std::move(key), "address"}))[0].status;
  };
  EXPECT_TRUE(publish({world.key(name, 6), "pipeline 2", RankIndex(1), "address"}).ok());
  EXPECT_TRUE(publish({world.key(name, 6), "data 1", RankIndex(2), "address"}).ok());
  const auto found = of<AnswerLookUp>(world.tell(
      LookUp{8, {world.key(name, 2), "pipeline 2", RankIndex(1), "address"}, world.now.time + 1s}));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(*found[0].value, "address");

  CommunicatorKey other_life{world.key(name, 6), "expert-data 1.0", RankIndex(1), "address"};
  other_life.attempt.incarnation += 5;
  EXPECT_THAT(message(publish(other_life)), HasSubstr("rank 6: incarnation 1 expected, found 6"));
  EXPECT_THAT(message(publish({world.key(name, 6), "pipeline 2", RankIndex(2), "address"})),
              HasSubstr("rank in pipeline 2: expected 0 to 1, found 2"));
  EXPECT_THAT(message(publish({world.key(name, 6), "pipeline 4", RankIndex(0), "address"})),
              HasSubstr("communicator: expected pipeline N, data P"));

  EXPECT_TRUE(
      of<AnswerLookUp>(
          world.tell(LookUp{
              9, {world.key(name, 2), "expert-model 1.1", RankIndex(1), "address"}, world.now.time + 50ms}))
          .empty());
  const auto late = of<AnswerLookUp>(world.tick());
  ASSERT_EQ(late.size(), 1u);
  EXPECT_THAT(
      message(late[0].value.status()),
      HasSubstr(
          "rank 7 on worker-7 has not published address for communicator expert-model 1.1; see its log"));
}

}  // namespace
}  // namespace penstock::coordinator
