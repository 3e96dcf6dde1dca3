#include "plan/rebalancing/propose.h"

#include <gmock/gmock.h>

#include <random>

#include "plan/simulation/simulate.h"
#include "plan/spec/schedule_source.h"

namespace penstock::plan {
namespace {

using ::testing::HasSubstr;

struct Shape {
  int pipeline = 8;
  int blocks = 15;
  int microbatches = 16;
  std::string split = "auto";
  std::string schedule = "1f1b";
  std::string more = "";
};

JobSpec job_of(const Shape& shape) {
  const StatusOr<JobSpec> job = parse_job_spec(
      fmt::format("name: tiny\n"
                  "model: {{vocab_size: 256, hidden_size: 8, num_hidden_layers: {}, num_attention_heads: 2,\n"
                  "        intermediate_size: 16, max_position_embeddings: 8}}\n"
                  "data: {{source: /data/text.txt, sequence_length: 8}}\n"
                  "train: {{steps: 100, global_batch_size: {}, microbatch_size: 1, dtype: float32{}}}\n"
                  "parallel: {{pipeline: {}, schedule: {}, split: {}}}\n{}",
                  shape.blocks, shape.microbatches,
                  shape.schedule.starts_with("pipedream") ? ", optimizer: {clip_grad_norm: 0}" : "",
                  shape.pipeline, shape.schedule, shape.split, shape.more));
  EXPECT_TRUE(job.ok()) << job.status();
  return job.value_or(JobSpec{});
}

// What the layers really take: forward and backward in seconds.
struct Truth {
  std::pair<double, double> embedding = {0.0005, 0.001};
  std::pair<double, double> block = {0.003, 0.006};
  std::pair<double, double> head = {0.010, 0.019};
};

std::pair<double, double> stage_seconds(const Truth& truth, const std::vector<Item>& items) {
  std::pair<double, double> sum;
  for (const Item& item : items) {
    const auto& cost = item.kind == ItemKind::Embedding ? truth.embedding
                       : item.kind == ItemKind::Head    ? truth.head
                                                        : truth.block;
    sum.first += cost.first;
    sum.second += cost.second;
  }
  return sum;
}

// A step of the split by the simulation of the true costs: what no proposal has seen.
double true_step_seconds(const ComputeProgram& program, const Truth& truth, const Split& split,
                         const std::vector<double>& optimizer_seconds = {}) {
  SimulationCosts costs;
  for (const double seconds : optimizer_seconds) costs.updates.push_back(std::llround(1e9 * seconds));
  for (const auto& items : split) {
    const auto [forward, backward] = stage_seconds(truth, items);
    const auto ns = static_cast<int64_t>(std::llround(1e9 * backward));
    costs.stages.push_back({.forward = std::llround(1e9 * forward),
                            .input_gradient = ns - ns / 2,
                            .weight_gradient = ns / 2,
                            .backward = ns});
  }
  const StatusOr<Simulation> simulation = simulate(program, costs);
  EXPECT_TRUE(simulation.ok()) << simulation.status();
  return simulation.ok() ? static_cast<double>(simulation->makespan) / 1e9 : 0;
}

// As its ranks would tell of it: every sample off by up to `noise` of it.
MeasuredRun measured(const JobSpec& job, const Truth& truth, double noise = 0.02, int steps = 40) {
  std::mt19937 random(7);
  const auto noisy = [&](double seconds) {
    return seconds * std::uniform_real_distribution<>(1 - noise, 1 + noise)(random);
  };
  MeasuredRun run;
  run.split = job.parallel.split;
  for (size_t stage = 0; stage < run.split.size(); ++stage) {
    const auto [forward, backward] = stage_seconds(truth, run.split[stage]);
    StageSamples& samples = run.stages.emplace_back().emplace_back();
    samples.rank = static_cast<int>(stage);
    for (int step = 0; step < steps; ++step) {
      samples.forward_seconds.push_back(noisy(forward));
      samples.backward_seconds.push_back(noisy(backward));
    }
  }
  const double seconds = true_step_seconds(*compute_program(job), truth, run.split);
  for (int step = 0; step < steps; ++step) run.step_seconds.push_back(noisy(seconds));
  return run;
}

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

TEST(Propose, budget_holds_and_one_that_nothing_fits_is_answered_with_a_number) {
  const JobSpec loose = job_of({});
  const StatusOr<Proposal> without = propose(loose, {measured(loose, {})}, {.steps_left = 1000});
  ASSERT_TRUE(without.ok()) << without.status();
  const int64_t peak = *std::max_element(without->best_rank_bytes.begin(), without->best_rank_bytes.end());
  const JobSpec tight = job_of({.more = fmt::format("memory_budget: {}\n", peak - 1)});
  const StatusOr<Proposal> within = propose(tight, {measured(tight, {})}, {.steps_left = 1000});
  ASSERT_TRUE(within.ok()) << within.status();
  for (const int64_t bytes : within->best_rank_bytes) EXPECT_LT(bytes, peak);
  const JobSpec none = job_of({.more = "memory_budget: 1KB\n"});
  EXPECT_THAT(message(propose(none, {measured(none, {})}, {}).status()),
              HasSubstr("the smallest that works is"));
}

// A slow worker is drained, not helped by other layers.
TEST(Propose, straggler_among_the_replicas_moves_no_layer) {
  const JobSpec job = job_of({.more = ""});
  MeasuredRun run = measured(job, {});
  for (auto& stage : run.stages) stage.push_back(stage.front());
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

TEST(CheckLastMove, gain_that_came_is_kept_and_one_that_did_not_is_undone) {
  const Truth truth;
  const JobSpec before = job_of({});
  const MeasuredRun first = measured(before, truth);
  JobSpec job = before;
  job.parallel.split = propose(before, {first}, {.steps_left = 1000})->best;
  MeasuredRun second = measured(job, truth);
  const auto good = check_last_move(job, {first, second});
  ASSERT_TRUE(good.ok()) << good.status();
  ASSERT_TRUE(good->has_value());
  EXPECT_TRUE((*good)->answer.move) << (*good)->answer.because;
  EXPECT_EQ((*good)->before, before.parallel.split);
  second.step_seconds = first.step_seconds;  // nothing came of it
  const auto bad = check_last_move(job, {first, second});
  ASSERT_TRUE(bad.ok() && bad->has_value());
  EXPECT_FALSE((*bad)->answer.move);
  EXPECT_THAT((*bad)->answer.because, HasSubstr("less than half"));
  EXPECT_FALSE(check_last_move(before, {first, first})->has_value());
  // A worker was lost meanwhile: what the move brought is told by the newest run still.
  const auto interrupted = check_last_move(job, {first, second, second});
  ASSERT_TRUE(interrupted.ok() && interrupted->has_value());
  EXPECT_EQ((*interrupted)->before, before.parallel.split);
  MeasuredRun other = first;
  other.schedule = "gpipe";  // what is faster now is not the split's doing
  EXPECT_FALSE(check_last_move(job, {other, second})->has_value());
}

TEST(PlannedStages, are_the_mean_until_another_split_was_measured) {
  const Truth truth;
  const JobSpec before = job_of({});
  const MeasuredRun first = measured(before, truth);
  const PlannedStages mean = planned_stages(before, {first});
  EXPECT_FALSE(mean.from_costs);
  EXPECT_EQ(mean.ms.front(), mean.ms.back());
  JobSpec job = before;
  job.parallel.split = last_lighter_split(job.model, 8);
  const PlannedStages planned = planned_stages(job, {first, measured(job, truth)});
  EXPECT_TRUE(planned.from_costs);
  for (size_t stage = 0; stage < planned.ms.size(); ++stage) {
    const auto [forward, backward] = stage_seconds(truth, job.parallel.split[stage]);
    EXPECT_NEAR(planned.ms[stage], 1e3 * (forward + backward), 0.05 * planned.ms[stage]);
  }
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
