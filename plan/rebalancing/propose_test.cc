#include "plan/rebalancing/propose.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>

#include "plan/interop/planned_job.h"
#include "plan/rebalancing/testing/noisy_job.h"

namespace penstock::plan {
namespace {

using namespace testing;  // job_of and its words
using ::testing::HasSubstr;

// Calls `take` with every split into stages that hold something.
template <typename Take>
void for_every_split(const std::vector<Item>& items, size_t from, int stages, Split& split, Take take) {
  if (stages == 1) {
    split.emplace_back(items.begin() + static_cast<std::ptrdiff_t>(from), items.end());
    take(split);
    split.pop_back();
    return;
  }
  for (size_t end = from + 1; items.size() - end + 1 >= static_cast<size_t>(stages); ++end) {
    split.emplace_back(items.begin() + static_cast<std::ptrdiff_t>(from),
                       items.begin() + static_cast<std::ptrdiff_t>(end));
    for_every_split(items, end, stages - 1, split, take);
    split.pop_back();
  }
}

double best_step_of_all_splits(const JobSpec& job, const Truth& truth) {
  const ComputeProgram program = *compute_program(job);
  double best = std::numeric_limits<double>::infinity();
  Split split;
  for_every_split(model_items(job.model), 0, job.stages(), split,
                  [&](const Split& each) { best = std::min(best, true_step_seconds(program, truth, each)); });
  return best;
}

TEST(Propose, split_of_noisy_measurements_is_within_5_percent_of_the_best_of_all_and_comes_as_predicted) {
  const JobSpec job = job_of({.blocks = 14});
  const Truth truth;
  const StatusOr<Proposal> proposal = propose(job, {measured(job, truth)}, {.steps_left = 1000});
  ASSERT_TRUE(proposal.ok()) << proposal.status();
  EXPECT_TRUE(proposal->answer.move) << proposal->answer.because;
  const double now = true_step_seconds(*compute_program(job), truth, proposal->now);
  const double then = true_step_seconds(*compute_program(job), truth, proposal->best);
  EXPECT_LT(then, 0.85 * now);
  EXPECT_LE(then, 1.05 * best_step_of_all_splits(job, truth));
  EXPECT_NEAR(proposal->best_step_seconds, then, 0.05 * then);
  EXPECT_NEAR(proposal->step_seconds, now, 0.02 * now);
  EXPECT_LT(proposal->model_error, 0.04);
}

// Two ranks: a rank's part of the optimizer goes with its layers, and is over before its next step begins.
TEST(Propose, step_is_predicted_with_the_updates_of_the_layers_that_move) {
  const JobSpec job = job_of({.pipeline = 2, .blocks = 10, .microbatches = 4});
  const Truth truth = {.head = {0.010, 0.035}};
  MeasuredRun run = measured(job, truth, 0);
  const auto bytes_of = [&](const std::vector<Item>& items) {
    int64_t bytes =
        0;  // 16 of a parameter: 256 x 8 of the embedding and of the head, 4 x 8 x 8 + 3 x 8 x 16 + 16 of a block
    for (const Item& item : items)
      bytes += item.kind == ItemKind::Block ? 656 : item.kind == ItemKind::Head ? 2056 : 2048;
    return bytes;
  };
  const auto updates_of = [&](const Split& split) {
    std::vector<double> seconds;
    for (const auto& items : split) seconds.push_back(5e-6 * static_cast<double>(bytes_of(items)));
    return seconds;
  };
  const ComputeProgram program = *compute_program(job);
  run.optimizer_seconds = updates_of(run.split);
  run.step_seconds.assign(40, true_step_seconds(program, truth, run.split, run.optimizer_seconds));
  const StatusOr<Proposal> proposal = propose(job, {run}, {.steps_left = 1000});
  ASSERT_TRUE(proposal.ok()) << proposal.status();
  ASSERT_TRUE(proposal->changes());
  EXPECT_LT(proposal->model_error, 0.01);
  const double then = true_step_seconds(program, truth, proposal->best, updates_of(proposal->best));
  EXPECT_NEAR(proposal->best_step_seconds, then, 0.01 * then);
}

// Two stages are two sums: what single layers took tells the embedding and the head from the blocks, and the best split with it.
TEST(Propose, sampled_layers_tell_apart_what_stages_cannot) {
  const Truth truth = {.embedding = {0.006, 0.012}};
  const JobSpec one_block = job_of(
      {.pipeline = 2, .blocks = 12, .split = "[[embedding, 0], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, head]]"});
  MeasuredRun run = measured(one_block, truth, 0);
  const StatusOr<Proposal> without = propose(one_block, {run}, {.steps_left = 1000});
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_THAT(without->notes, ::testing::Contains(HasSubstr("embedding")));
  run.layers = {{0, LayerType::Embedding, truth.embedding.first, truth.embedding.second},
                {0, LayerType::Block, truth.block.first, truth.block.second},
                {1, LayerType::Block, truth.block.first, truth.block.second},
                {1, LayerType::Head, truth.head.first, truth.head.second}};
  const StatusOr<Proposal> with = propose(one_block, {run}, {.steps_left = 1000});
  ASSERT_TRUE(with.ok()) << with.status();
  EXPECT_THAT(with->notes, ::testing::IsEmpty());
  EXPECT_NEAR(with->costs.types.at("embedding").forward.fixed_ms, 6, 1e-3);
  EXPECT_NEAR(with->costs.types.at("head").backward.fixed_ms, 19, 1e-3);
  const ComputeProgram program = *compute_program(one_block);
  const double best = best_step_of_all_splits(one_block, truth);
  EXPECT_NEAR(true_step_seconds(program, truth, with->best), best, 1e-6);
  EXPECT_GT(true_step_seconds(program, truth, without->best), 1.02 * best);
}

TEST(Propose, sampled_layers_say_shares_of_a_stage_not_its_time) {
  const Truth truth;
  const JobSpec job = job_of({.pipeline = 2, .blocks = 6});
  MeasuredRun run = measured(job, truth, 0);
  // The steps that were traced were slow ones: half as long again on one rank, a tenth on the other.
  run.layers = {{0, LayerType::Embedding, 1.5 * truth.embedding.first, 1.5 * truth.embedding.second},
                {0, LayerType::Block, 1.5 * truth.block.first, 1.5 * truth.block.second},
                {1, LayerType::Block, 1.1 * truth.block.first, 1.1 * truth.block.second},
                {1, LayerType::Head, 1.1 * truth.head.first, 1.1 * truth.head.second}};
  const StatusOr<Proposal> proposal = propose(job, {run}, {.steps_left = 1000});
  ASSERT_TRUE(proposal.ok()) << proposal.status();
  EXPECT_NEAR(proposal->costs.types.at("head").forward.fixed_ms, 1e3 * truth.head.first, 1e-3);
  EXPECT_NEAR(proposal->costs.types.at("block").backward.fixed_ms, 1e3 * truth.block.second, 1e-3);
  for (const StageFigures& stage : proposal->stages) EXPECT_NEAR(stage.modelled_ms, stage.measured_ms, 1e-3);
}

TEST(Propose, head_that_stands_with_the_same_blocks_in_every_run_is_known_by_its_samples) {
  const Truth truth;
  const JobSpec job =
      job_of({.pipeline = 2, .blocks = 6, .split = "[[embedding], [0, 1, 2, 3, 4, 5, head]]"});
  MeasuredRun run = measured(job, truth, 0);
  EXPECT_THAT(message(propose(job, {run}, {.steps_left = 1000}).status()), HasSubstr("head cannot be told"));
  run.layers = {{1, LayerType::Head, truth.head.first, truth.head.second}};
  const StatusOr<Proposal> proposal = propose(job, {run}, {.steps_left = 1000});
  ASSERT_TRUE(proposal.ok()) << proposal.status();
  EXPECT_NEAR(true_step_seconds(*compute_program(job), truth, proposal->best),
              best_step_of_all_splits(job, truth), 1e-6);
}

TEST(Propose, best_split_stays) {
  const Truth truth;
  JobSpec job = job_of({});
  const StatusOr<Proposal> first = propose(job, {measured(job, truth)}, {.steps_left = 1000});
  ASSERT_TRUE(first.ok()) << first.status();
  job.parallel.split = first->best;
  const StatusOr<Proposal> second = propose(job, {measured(job, truth)}, {.steps_left = 1000});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_FALSE(second->answer.move);
}

// Two sums for three unknowns.
TEST(Propose, two_stages_are_enough_where_the_embedding_is_next_to_nothing) {
  const JobSpec job = job_of({.pipeline = 2, .blocks = 8, .microbatches = 8});
  const Truth truth{.embedding = {0.00001, 0.00002}, .head = {0.012, 0.025}};
  const StatusOr<Proposal> proposal = propose(job, {measured(job, truth)}, {.steps_left = 1000});
  ASSERT_TRUE(proposal.ok()) << proposal.status();
  ASSERT_EQ(proposal->notes.size(), 1u);
  EXPECT_THAT(proposal->notes[0], HasSubstr("taken as nothing"));
  const double then = true_step_seconds(*compute_program(job), truth, proposal->best);
  EXPECT_LE(then, 1.05 * best_step_of_all_splits(job, truth));
  EXPECT_NEAR(proposal->best_step_seconds, then, 0.05 * then);
}

// What one split cannot tell, two can.
TEST(Propose, another_split_of_the_past_tells_the_embedding_from_the_blocks) {
  const Truth truth{.embedding = {0.004, 0.007}};
  const JobSpec before = job_of({.pipeline = 2, .blocks = 8, .split = "{layers: [5, 3]}"});
  const JobSpec job = job_of({.pipeline = 2, .blocks = 8, .split = "{layers: [3, 5]}"});
  const StatusOr<Proposal> proposal =
      propose(job, {measured(before, truth, 0.001), measured(job, truth, 0.001)}, {.steps_left = 1000});
  ASSERT_TRUE(proposal.ok()) << proposal.status();
  EXPECT_TRUE(proposal->notes.empty());
  EXPECT_NEAR(proposal->costs.types.at("embedding").forward.fixed_ms, 4, 0.4);
}

TEST(Propose, gain_within_the_error_of_the_model_is_no_reason_to_move) {
  const JobSpec job = job_of({});
  MeasuredRun run = measured(job, {});
  for (double& seconds : run.step_seconds) seconds *= 3;  // two thirds of a step are nobody's
  const StatusOr<Proposal> proposal = propose(job, {run}, {.steps_left = 1000});
  ASSERT_TRUE(proposal.ok()) << proposal.status();
  EXPECT_GT(proposal->model_error, 0.5);
  EXPECT_FALSE(proposal->answer.move);
  EXPECT_THAT(proposal->answer.because, HasSubstr("within the model's error"));
}

TEST(Propose, few_samples_or_few_steps_left_are_no_reason_to_move) {
  const JobSpec job = job_of({});
  const StatusOr<Proposal> early = propose(job, {measured(job, {}, 0.02, 4)}, {.steps_left = 1000});
  ASSERT_TRUE(early.ok()) << early.status();
  EXPECT_FALSE(early->answer.move);
  EXPECT_THAT(early->answer.because, HasSubstr("64 samples"));
  const StatusOr<Proposal> late = propose(job, {measured(job, {})}, {.steps_left = 1, .move_seconds = 30});
  ASSERT_TRUE(late.ok()) << late.status();
  EXPECT_FALSE(late->answer.move);
  EXPECT_THAT(late->answer.because, HasSubstr("the move takes 30 s"));
}

// As every rank counts before it starts: what training needs beside layers is among it.
int64_t largest_rank(JobSpec job, const Split& split) {
  job.parallel.split = split;
  const StatusOr<std::vector<MemoryPrediction>> ranks = memory_of_job(job);
  EXPECT_TRUE(ranks.ok()) << ranks.status();
  int64_t largest = 0;
  for (const MemoryPrediction& rank : *ranks) largest = std::max(largest, rank.total());
  return largest;
}

TEST(Propose, budget_holds_for_all_that_a_rank_holds_and_one_that_nothing_fits_is_answered_with_a_number) {
  const JobSpec loose = job_of({});
  const StatusOr<Proposal> without = propose(loose, {measured(loose, {})}, {.steps_left = 1000});
  ASSERT_TRUE(without.ok()) << without.status();
  ASSERT_TRUE(without->answer.move) << without->answer.because;
  const int64_t budget = largest_rank(loose, without->best) - 1;
  const JobSpec tight = job_of({.more = fmt::format("memory_budget: {}\n", budget)});
  const StatusOr<Proposal> within = propose(tight, {measured(tight, {})}, {.steps_left = 1000});
  ASSERT_TRUE(within.ok()) << within.status();
  EXPECT_TRUE(within->changes());
  EXPECT_LE(largest_rank(tight, within->best), budget);
  const JobSpec none = job_of({.more = "memory_budget: 1KB\n"});
  EXPECT_THAT(message(propose(none, {measured(none, {})}, {}).status()),
              HasSubstr("the smallest that works is"));
}

// Before the job is paused for it.
TEST(WithProposedSplit, file_that_its_ranks_have_no_memory_for_is_refused) {
  const JobSpec loose = job_of({.blocks = 14});
  Split split = loose.parallel.split;  // 14 blocks and two more items: two a stage
  split[4].insert(split[4].end(), split[5].begin(), split[5].begin() + 1);
  split[5].erase(split[5].begin());
  const int64_t needed = largest_rank(loose, split);
  ASSERT_GT(needed, largest_rank(loose, loose.parallel.split));
  const auto budget = [](int64_t bytes) {
    return job_of({.blocks = 14, .more = fmt::format("memory_budget: {}\n", bytes)});
  };
  EXPECT_TRUE(with_proposed_split(budget(needed), split).ok());
  EXPECT_THAT(message(with_proposed_split(budget(needed - 1), split).status()),
              HasSubstr(fmt::format("found {} on rank", needed)));
}

// A slow worker is drained, not helped by other layers.
TEST(Propose, straggler_among_the_replicas_moves_no_layer) {
  const JobSpec job = job_of({.more = ""});
  MeasuredRun run = measured(job, {});
  for (auto& stage : run.stages) {
    stage.push_back(stage.front());
    stage[0].rank *= 2;
    stage[1].rank = stage[0].rank + 1;
  }
  for (double& seconds : run.stages[3][1].forward_seconds) seconds *= 6;
  for (double& seconds : run.stages[3][1].backward_seconds) seconds *= 6;
  const StatusOr<Proposal> proposal = propose(job, {run}, {.steps_left = 1000});
  ASSERT_TRUE(proposal.ok()) << proposal.status();
  EXPECT_FALSE(proposal->answer.move);
  EXPECT_THAT(proposal->answer.because, HasSubstr("drain"));
}

TEST(Propose, what_no_split_could_change_is_refused) {
  const JobSpec one = job_of({.pipeline = 1});
  EXPECT_THAT(message(propose(one, {measured(one, {})}, {}).status()), HasSubstr("one stage"));
  const JobSpec job = job_of({.blocks = 14});
  JobSpec other = job;
  other.parallel.split = last_lighter_split(job.model, 8);
  EXPECT_THAT(message(propose(other, {measured(job, {})}, {}).status()), HasSubstr("has not been measured"));
  EXPECT_FALSE(propose(job, {}, {}).ok());
}

// What another split may not change, or could not.
TEST(Propose, job_whose_layers_stay_is_told_why) {
  const auto refusal = [](const Shape& shape) {
    const JobSpec job = job_of(shape);
    const Status status = can_move_layers(job);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(message(propose(job, {measured(job, {})}, {}).status()), message(status));
    return message(status);
  };
  EXPECT_THAT(refusal({.blocks = 14, .schedule = "pipedream"}), HasSubstr("weight versions of its own"));
  EXPECT_THAT(refusal({.blocks = 14, .schedule = "dualpipe"}), HasSubstr("stages on two ranks each"));
  EXPECT_TRUE(can_move_layers(job_of({.blocks = 14, .schedule = "pipedream-2bw"})).ok());
  EXPECT_TRUE(can_move_layers(job_of({.blocks = 14})).ok());
}

TEST(Propose, emulated_costs_by_stage_do_not_follow_a_split) {
  const JobSpec job = job_of({.pipeline = 2,
                              .more = "device: {kind: emulated, costs: {stages: [{forward: 1, backward: 2}, "
                                      "{forward: 3, backward: 4}]}}\n"});
  Split other = job.parallel.split;
  other[1].insert(other[1].begin(), other[0].back());
  other[0].pop_back();
  EXPECT_THAT(message(with_proposed_split(job, other).status()), HasSubstr("expected costs by layer"));
  const JobSpec by_layer =
      job_of({.pipeline = 2,
              .more = "device: {kind: emulated, costs: {layers: {embedding: {forward: 1, backward: 2}, "
                      "block: {forward: 1, backward: 2}, head: {forward: 3, backward: 4}}}}\n"});
  EXPECT_TRUE(with_proposed_split(by_layer, other).ok());
}

}  // namespace
}  // namespace penstock::plan
