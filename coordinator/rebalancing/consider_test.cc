// The coordinator's core with the planner's real answers: jobs whose ranks take what a table of layer costs says.
#include "coordinator/rebalancing/consider.h"

#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "coordinator/core/testing/world.h"
#include "plan/simulation/simulate.h"
#include "plan/spec/schedule_source.h"
#include "plan/spec/split_source.h"

namespace penstock::coordinator {
namespace {

using namespace testing;  // World and its words
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using enum JobState;

// Forward and backward of a microbatch, in seconds.
double seconds_of(const plan::Item& item) {
  switch (item.kind) {
    case plan::ItemKind::Embedding:
      return 1e-6;
    case plan::ItemKind::Block:
      return 0.009;
    case plan::ItemKind::Head:
      return 0.020;
  }
  return 0;
}

double seconds_of(const std::vector<plan::Item>& items) {
  double sum = 0;
  for (const plan::Item& item : items) sum += seconds_of(item);
  return sum;
}

// A step of the job by the simulation of the true costs, which no planner has seen.
double step_seconds(const plan::JobSpec& spec) {
  plan::SimulationCosts costs;
  for (const auto& items : spec.parallel.split) {
    const auto ns = static_cast<int64_t>(std::llround(1e9 * seconds_of(items)));
    costs.stages.push_back({.forward = ns / 3,
                            .input_gradient = ns / 3,
                            .weight_gradient = ns - 2 * (ns / 3),
                            .backward = ns - ns / 3});
  }
  const auto simulation = plan::simulate(*plan::compute_program(spec), costs);
  EXPECT_TRUE(simulation.ok()) << simulation.status();
  return simulation.ok() ? static_cast<double>(simulation->makespan) / 1e9 : 0;
}

constexpr int64_t kEvery = 10;
JobShape uneven(int data = 1, const std::string& rebalance = "apply") {
  return {.data = data,
          .steps = 120,
          .extra = "checkpoint: {every: 10, directory: /kept}\nrebalance: " + rebalance + "\n",
          .parallel = ", split: [[embedding, 0], [1, 2, 3, head]]"};
}
constexpr const char* kEvened = "[[embedding, 0, 1, 2], [3, head]]";

// Steps until the job has got as far as `last`, through whatever moves it makes. `stretch` of attempts 1, 2, ...: what a step takes
// more than its stages say.
void run_to(World& world, const std::string& name, int64_t last, const std::vector<double>& stretch = {}) {
  const int ranks = world.job(name).definition.ranks;
  while (world.job(name).status.step < last) {
    if (world.state_of(name) == Recovering) {
      for (int rank = 0; rank < ranks; ++rank) world.stopped(name, rank);
      for (int i = 0; i < 3; ++i) world.tick();
      ASSERT_EQ(world.state_of(name), Preparing) << world.reason_of(name);
      world.all_ready(name);
    }
    ASSERT_EQ(world.state_of(name), Running) << world.reason_of(name);
    const plan::JobSpec spec = *world.job(name).spec;
    const int64_t step = world.job(name).attempt->window.committed();
    const auto attempt = static_cast<size_t>(world.job(name).attempt->number - 1);
    const double more = attempt < stretch.size() ? stretch[attempt] : 1;
    for (int rank = 0; rank < ranks; ++rank) {
      StepReport report = world.step_report(name, rank, step);
      report.wall_seconds = more * step_seconds(spec);
      const double seconds =
          seconds_of(spec.parallel.split[static_cast<size_t>(report.stages[0].stage.value)]);
      report.stages[0].forward_seconds = seconds / 3;
      report.stages[0].backward_seconds = 2 * seconds / 3;
      report.optimizer_seconds = 1e-5;
      world.say(world.place_of(name, rank).worker, report);
    }
    if ((step + 1) % kEvery != 0) continue;
    const int64_t order = world.job(name).attempt->order;
    for (int rank = 0; rank < ranks; ++rank) world.wrote(name, rank, step + 1);
    world.newest_checkpoint = step + 1;
    world.tell(CheckpointCommitted{name, order, step + 1, ok_status(), std::string(32, 'd')});
  }
}

std::vector<std::string> told_by_rebalancer(World& world, const std::string& name) {
  std::vector<std::string> reasons;
  for (const JobEventView& event : world.job(name).events) {
    if (event.by == "rebalancer") reasons.push_back(event.reason);
  }
  return reasons;
}

std::string split_of(World& world, const std::string& name) {
  return plan::to_text(world.job(name).spec->parallel.split);
}

TEST(ConsiderSplit, uneven_job_moves_once_by_itself_and_keeps_what_paid) {
  World world;
  world.considers = consider_split;
  const std::string name = world.run(uneven());
  const double before = step_seconds(*world.job(name).spec);
  run_to(world, name, 110);
  EXPECT_EQ(split_of(world, name), kEvened);
  const double after = step_seconds(*world.job(name).spec);
  const auto told = told_by_rebalancer(world, name);
  ASSERT_EQ(told.size(), 2u) << ::testing::PrintToString(told);
  EXPECT_THAT(
      told[0],
      HasSubstr("goes on with another split, from the checkpoint of step 30: stages embedding 0-2 | 3 head "
                "in place of embedding 0 | 1-3 head; a step takes"));
  EXPECT_THAT(told[0], HasSubstr(fmt::format("{:.3g}", 1e3 * before)));
  EXPECT_THAT(told[1],
              HasSubstr(fmt::format("keeps the new split: {:.1f} % came of", 100 * (1 - after / before))));
  EXPECT_EQ(world.job(name).status.attempt, 2);
  EXPECT_EQ(world.job(name).status.restarts, 0);
  EXPECT_EQ(world.job(name).definition.moves, SplitMoves{});
  EXPECT_EQ(world.job(name).losses.size(), 110u);
}

// Two microbatches each: filling and draining count as much as the slowest stage, and the best split is another one.
TEST(ConsiderSplit, pipelines_beside_one_another_move_together) {
  World world;
  world.considers = consider_split;
  JobShape shape = uneven(2);
  shape.steps = 200;
  const std::string name = world.run(shape);
  const double before = step_seconds(*world.job(name).spec);
  run_to(world, name, 130);
  EXPECT_EQ(split_of(world, name), "[[embedding, 0, 1, 2, 3], [head]]");
  EXPECT_LT(step_seconds(*world.job(name).spec), 0.8 * before);
  const auto told = told_by_rebalancer(world, name);
  ASSERT_EQ(told.size(), 2u) << ::testing::PrintToString(told);
  EXPECT_THAT(told[0], HasSubstr("from the checkpoint of step 60"));
  EXPECT_THAT(told[1], HasSubstr("keeps the new split"));
}

TEST(ConsiderSplit, move_that_brings_nothing_is_undone_and_not_tried_again) {
  World world;
  world.considers = consider_split;
  const std::string name = world.run(uneven());
  const double before = step_seconds(*world.job(name).spec);
  const double after = step_seconds(*job_spec([&] {
    JobShape shape = uneven();
    shape.parallel = std::string(", split: ") + kEvened;
    return shape;
  }()));
  run_to(world, name, 110, {1, before / after, 1});
  EXPECT_EQ(split_of(world, name), "[[embedding, 0], [1, 2, 3, head]]");
  EXPECT_EQ(world.job(name).definition.spec_yaml, job_yaml(uneven()));
  EXPECT_THAT(world.job(name).definition.moves.undone, ElementsAre(kEvened));
  const auto told = told_by_rebalancer(world, name);
  ASSERT_EQ(told.size(), 2u) << ::testing::PrintToString(told);
  EXPECT_THAT(told[1],
              HasSubstr("goes back to the split before, from the checkpoint of step 60: 0.0 % came of"));
  EXPECT_EQ(world.job(name).status.attempt, 3);
}

TEST(ConsiderSplit, proposal_is_told_and_applied_by_nobody) {
  World world;
  world.considers = consider_split;
  const std::string name = world.run(uneven(1, "propose"));
  run_to(world, name, 110);
  const auto told = told_by_rebalancer(world, name);
  ASSERT_EQ(told.size(), 1u) << ::testing::PrintToString(told);
  EXPECT_THAT(told[0], HasSubstr("another split is proposed: stages embedding 0-2 | 3 head in place of"));
  EXPECT_EQ(world.job(name).status.attempt, 1);
}

// --- many questions on noise, as published: a coefficient of variation of 2 %, one sample in 200 eight times as long.

std::shared_ptr<const plan::JobSpec> wide_job(const plan::Split& split = {}) {
  std::string yaml =
      "name: wide\n"
      "model: {vocab_size: 256, hidden_size: 8, num_hidden_layers: 15, num_attention_heads: 2, "
      "intermediate_size: 16, max_position_embeddings: 8}\n"
      "data: {source: /data/text.txt, sequence_length: 8}\n"
      "train: {steps: 10000, global_batch_size: 16, microbatch_size: 1, dtype: float32}\n"
      "parallel: {pipeline: 8, schedule: 1f1b}\n"
      "checkpoint: {every: 10}\n"
      "rebalance: apply\n";
  if (!split.empty()) yaml = *plan::with_split(yaml, split);
  const auto spec = plan::parse_job_spec(yaml);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return std::make_shared<const plan::JobSpec>(*spec);
}

struct Noise {
  std::mt19937 random{5};
  float of(double seconds) {
    const double outlier = random() % 200 == 0 ? 8 : 1;
    return static_cast<float>(seconds * outlier * std::normal_distribution<>(1, 0.02)(random));
  }
};

AttemptMeasurements measured(const plan::JobSpec& spec, Noise& noise, int64_t attempt) {
  AttemptMeasurements run{.attempt = attempt, .schedule = "1f1b", .stages = stage_items(spec), .steps = 64};
  const double step = step_seconds(spec);
  for (int stage = 0; stage < spec.stages(); ++stage) {
    const double seconds = seconds_of(spec.parallel.split[static_cast<size_t>(stage)]);
    const RankIndex rank(stage);
    MeasuredSeries forward{
        .rank = rank, .stage = StageIndex(stage), .kind = MeasuredKind::Forward, .count = 64};
    MeasuredSeries backward = forward, whole{.rank = rank, .kind = MeasuredKind::Step, .count = 64};
    backward.kind = MeasuredKind::Backward;
    for (int sample = 0; sample < 64; ++sample) {
      forward.seconds.push_back(noise.of(seconds / 3));
      backward.seconds.push_back(noise.of(2 * seconds / 3));
      whole.seconds.push_back(noise.of(step));
    }
    for (MeasuredSeries* series : {&forward, &backward, &whole}) run.series.push_back(std::move(*series));
  }
  return run;
}

TEST(ConsiderSplit, two_hundred_questions_on_noise_change_the_plan_once_at_most) {
  Noise noise;
  auto spec = wide_job();
  const double before = step_seconds(*spec);
  int moves = 0;
  for (int64_t question = 1; question <= 200; ++question) {
    const SplitAnswer answer =
        consider_split({.spec = spec, .attempts = {measured(*spec, noise, question)}, .steps_left = 5000});
    if (answer.advice != SplitAdvice::Move) continue;
    ASSERT_NE(answer.spec, nullptr);
    ASSERT_NE(answer.plan, nullptr);
    spec = answer.spec;
    ++moves;
  }
  EXPECT_EQ(moves, 1);  // the head is two blocks too heavy: equal counts are not the best
  EXPECT_LT(step_seconds(*spec), 0.95 * before);
}

// --- what is not to be moved.

SplitQuestion question_of(const std::string& schedule, const std::string& extra) {
  const auto spec = job_spec({.schedule = schedule,
                              .train = ", optimizer: {clip_grad_norm: 0}",
                              .extra = extra + "rebalance: apply\n"});
  return {.spec = spec, .steps_left = 100};
}

std::vector<std::string> notes_of(const std::shared_ptr<const plan::JobSpec>& spec) {
  return with_rebalancing_notes({spec, outcome_of(*spec)}).outcome.notes;
}

TEST(ConsiderSplit, job_whose_split_is_fixed_is_told_so_and_at_its_submission_too) {
  for (const char* schedule : {"pipedream", "dualpipe", "chimera"}) {
    const SplitQuestion question = question_of(schedule, "checkpoint: {every: 1}\n");
    EXPECT_EQ(consider_split(question).advice, SplitAdvice::Fixed) << schedule;
    const std::vector<std::string> notes = notes_of(question.spec);
    ASSERT_FALSE(notes.empty()) << schedule;
    EXPECT_THAT(notes.back(), HasSubstr("rebalance: its split stays: schedule " + std::string(schedule)));
  }
}

TEST(ConsiderSplit, job_without_checkpoints_is_told_when_it_can_move) {
  const std::vector<std::string> notes = notes_of(question_of("1f1b", "").spec);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes[0], HasSubstr("nothing is moved before the job's next start"));
  EXPECT_TRUE(notes_of(question_of("1f1b", "checkpoint: {every: 1}\n").spec).empty());
  EXPECT_TRUE(notes_of(job_spec({})).empty());  // does not ask for it
}

TEST(ConsiderSplit, split_that_is_not_measured_stays) {
  Noise noise;
  const auto spec = wide_job();
  SplitQuestion question{.spec = spec, .steps_left = 5000};
  EXPECT_EQ(consider_split(question).advice, SplitAdvice::Stay);
  question.attempts = {measured(*spec, noise, 1)};
  question.attempts[0].series.pop_back();
  question.attempts[0].series.pop_back();  // the last stage has no backwards
  EXPECT_THAT(consider_split(question).because,
              HasSubstr("it has not been measured yet; left out: attempt 1: stage"));
}

std::shared_ptr<const plan::JobSpec> job_of_pipelines(int pipelines, int microbatches, int stages = 2) {
  std::string yaml = job_yaml(
      {.pipeline = stages, .data = pipelines, .extra = "checkpoint: {every: 1}\nrebalance: apply\n"});
  const std::string batch = "global_batch_size: 4";
  yaml.replace(yaml.find(batch), batch.size(),
               fmt::format("global_batch_size: {}", pipelines * microbatches));
  const auto spec = plan::parse_job_spec(yaml);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return std::make_shared<const plan::JobSpec>(*spec);
}

// It would be asked about at every checkpoint, for ever.
TEST(ConsiderSplit, job_of_which_too_little_is_kept_is_told_so_once_and_at_its_submission) {
  const auto spec = job_of_pipelines(4000, 6);
  const SplitAnswer answer = consider_split({.spec = spec, .steps_left = 100});
  EXPECT_EQ(answer.advice, SplitAdvice::Fixed) << answer.because;
  EXPECT_EQ(
      answer.because,
      "its ranks hold 8000 stages all together, of each of which the newest 7 steps are kept: 42 samples, and 100 are "
      "needed to tell splits apart");
  ASSERT_EQ(notes_of(spec).size(), 1u);
  EXPECT_EQ(notes_of(spec)[0], "rebalance: its split stays: " + answer.because);
  const auto longer = job_of_pipelines(4000, 15);
  EXPECT_EQ(consider_split({.spec = longer, .steps_left = 100}).advice, SplitAdvice::Stay);
  EXPECT_TRUE(notes_of(longer).empty());
}

TEST(ConsiderSplit, job_that_is_not_measured_as_a_whole_is_told_so_once) {
  const auto spec = job_of_pipelines(4000, 16, 4);
  Measurements measurements;
  measurements.begin(1, "1f1b", stage_items(*spec), static_cast<size_t>(spec->ranks()));
  std::vector<StepReport> reports(static_cast<size_t>(spec->ranks()));
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    reports[rank].rank = RankIndex(static_cast<int64_t>(rank));
    reports[rank].stages = {{StageIndex(static_cast<int64_t>(rank % 4)), 0.01, 0.01, 0.01, 0.01, 2, 2}};
  }
  for (int step = 0; step < kWarmUpSteps + 1; ++step) measurements.add(reports);
  measurements.add(std::vector<WaitParts>(reports.size()));
  const SplitAnswer answer =
      consider_split({.spec = spec, .attempts = {measurements.attempts().back()}, .steps_left = 100});
  EXPECT_EQ(answer.advice, SplitAdvice::Fixed) << answer.because;
  EXPECT_EQ(answer.because,
            "of its 4 stages on 16000 ranks not all are measured: 131072 series are kept of an attempt");
}

TEST(ConsiderSplit, move_is_undone_when_both_halves_of_the_steps_since_then_ask_for_it) {
  Noise noise;
  const auto before = wide_job();
  const AttemptMeasurements first = measured(*before, noise, 1);
  const SplitAnswer moved = consider_split({.spec = before, .attempts = {first}, .steps_left = 5000});
  ASSERT_EQ(moved.advice, SplitAdvice::Move) << moved.because;
  // The newest samples of the steps, of which the oldest `slow` took as long as before the move.
  const auto judged = [&](size_t slow) {
    AttemptMeasurements second = measured(*moved.spec, noise, 2);
    for (MeasuredSeries& series : second.series) {
      if (series.kind != MeasuredKind::Step) continue;
      for (size_t step = 0; step < slow; ++step)
        series.seconds[step] = static_cast<float>(step_seconds(*before));
    }
    return consider_split({.spec = moved.spec,
                           .attempts = {first, second},
                           .moves = {.file_before = before->yaml},
                           .steps_left = 5000});
  };
  EXPECT_EQ(judged(0).advice, SplitAdvice::Keep);
  EXPECT_EQ(judged(40).advice, SplitAdvice::Stay) << judged(40).because;
  const SplitAnswer undone = judged(64);
  EXPECT_EQ(undone.advice, SplitAdvice::Undo) << undone.because;
  EXPECT_EQ(undone.spec->yaml, before->yaml);
  EXPECT_THAT(undone.because, HasSubstr("less than half; stages "));
}

TEST(ConsiderSplit, move_whose_past_is_gone_is_kept) {
  Noise noise;
  const auto before = wide_job();
  auto moved =
      consider_split({.spec = before, .attempts = {measured(*before, noise, 1)}, .steps_left = 5000});
  ASSERT_EQ(moved.advice, SplitAdvice::Move) << moved.because;
  const SplitAnswer kept = consider_split({.spec = moved.spec,
                                           .attempts = {measured(*moved.spec, noise, 2)},
                                           .moves = {.file_before = before->yaml},
                                           .steps_left = 5000});
  EXPECT_EQ(kept.advice, SplitAdvice::Keep);
  EXPECT_THAT(kept.because, HasSubstr("not kept any more"));
}

}  // namespace
}  // namespace penstock::coordinator
