#include "plan/forecast/auto_plan.h"

#include <gmock/gmock.h>

#include "plan/forecast/job_plan.h"
#include "plan/forecast/testing/jobs.h"
#include "plan/interop/planned_job.h"
#include "plan/interop/planning_json.h"
#include "plan/rebalancing/planned_stages.h"
#include "plan/simulation/simulate.h"
#include "plan/spec/same_training.h"
#include "plan/spec/schedule_source.h"

namespace penstock::plan {
namespace {

using ::testing::ElementsAre;
using testing::forward_ms;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::job_of;
using testing::job_text;
using testing::JobText;
using testing::measured;
using testing::run_of;
using testing::Truths;

// A step of the job by the simulation of what its layers truly take.
int64_t true_step_ns(const JobSpec& job, const Truths& truths = {}) {
  SimulationCosts costs;
  for (const auto& items : job.parallel.split) {
    double forward = 0;
    for (const Item& item : items) forward += 1e6 * forward_ms(job, truths, item);
    const auto ns = std::llround(forward);
    costs.stages.push_back({.forward = ns, .input_gradient = ns, .weight_gradient = ns, .backward = 2 * ns});
  }
  return simulate(*compute_program(job), costs)->makespan;
}

CostSources profile_of(const std::vector<JobSpec>& jobs, const Truths& truths = {}) {
  std::vector<MeasuredJobRuns> runs;
  for (const JobSpec& job : jobs) runs.push_back(measured(fmt::format("run-{}", runs.size()), job, truths));
  CostSources sources;
  sources.profile = *measured_model(std::move(runs));
  return sources;
}

JobSpec read(const StatusOr<AutoPlan>& plan) {
  EXPECT_TRUE(plan.ok()) << plan.status();
  const StatusOr<JobSpec> job = parse_job_spec(plan.ok() ? plan->yaml : "");
  EXPECT_TRUE(job.ok()) << job.status();
  return job.value_or(JobSpec{});
}

int64_t peak_of(const JobSpec& job) {
  const StatusOr<std::vector<MemoryPrediction>> ranks = memory_of_job(job);
  EXPECT_TRUE(ranks.ok()) << ranks.status();
  int64_t peak = 0;
  for (const MemoryPrediction& rank : ranks.value_or(std::vector<MemoryPrediction>{}))
    peak = std::max(peak, rank.total());
  return peak;
}

TEST(PlanSchedule, the_chosen_one_is_as_good_as_the_best_of_the_catalogue) {
  Truths truths;
  truths.head = truths.block;  // no stage sets the pace alone: schedules differ
  const std::string yaml = job_text({.parallel = ", schedule: auto"});
  const StatusOr<AutoPlan> plan = plan_schedule_and_sizes(yaml, profile_of({job_of({})}, truths));
  const JobSpec chosen = read(plan);
  const int64_t step = true_step_ns(chosen, truths);
  for (const ScheduleChoice& choice : schedules_to_plan(false)) {
    const StatusOr<JobSpec> other =
        parse_job_spec(job_text({.parallel = fmt::format(", schedule: {}, stages_per_rank: {}",
                                                         choice.schedule, choice.stages_per_rank)}));
    if (!other.ok()) continue;
    EXPECT_LE(static_cast<double>(step), 1.011 * static_cast<double>(true_step_ns(*other, truths)));
  }
  ASSERT_EQ(plan->notes.size(), 3u);
  EXPECT_THAT(plan->notes[0], HasSubstr("schedule: auto is " + chosen.parallel.schedule));
  EXPECT_THAT(plan->notes[0], HasSubstr("; next is "));
  EXPECT_THAT(plan->notes[1], HasSubstr("planned from measured runs of job run-0"));
  EXPECT_THAT(plan->yaml, HasSubstr("\n# schedule: auto is "));
}

TEST(PlanSchedule, stages_a_rank_that_are_written_stay) {
  const std::string yaml = job_text({.parallel = ", schedule: auto, stages_per_rank: 2"});
  const JobSpec chosen = read(plan_schedule_and_sizes(yaml, profile_of({job_of({})})));
  EXPECT_EQ(chosen.parallel.stages_per_rank, 2);
  EXPECT_NE(chosen.parallel.schedule, "1f1b");
}

TEST(PlanSchedule, a_search_is_made_where_its_options_are_there_alone) {
  const std::string searched =
      job_text({.parallel = ", schedule: auto, schedule_options: {search_seconds: 0.1}"});
  const StatusOr<AutoPlan> plan = plan_schedule_and_sizes(searched, profile_of({job_of({})}));
  EXPECT_TRUE(plan.ok()) << plan.status();
  const std::string plain = job_text({.parallel = ", schedule: auto"});
  EXPECT_EQ(plan_schedule_and_sizes(plain, profile_of({job_of({})}))->notes[0].find("-auto"),
            std::string::npos);
}

TEST(PlanSchedule, the_program_that_was_planned_is_written_and_is_within_the_jobs_limit) {
  const JobText text = {
      .pipeline = "5",
      .parallel = ", schedule: zb-auto, schedule_options: {memory_limit: 2, search_seconds: 0.1}",
      .microbatch_size = "auto",
      .blocks = 13};
  const StatusOr<AutoPlan> plan = plan_schedule_and_sizes(job_text(text), {});
  const JobSpec chosen = read(plan);
  ASSERT_FALSE(chosen.parallel.program.empty());
  const std::vector<int> held = high_water_per_stage(*compute_program(chosen));
  EXPECT_EQ(*std::max_element(held.begin(), held.end()), 2);
  // What was told is what this program takes by the same costs, not another search's.
  const StatusOr<PlannedStep> step = simulate_split(*planning_request(chosen, *rates_model({}), {}),
                                                    {"zb-auto", 1}, boundaries_of(chosen.parallel.split));
  EXPECT_THAT(plan->notes[0],
              HasSubstr(fmt::format("a step of {:.4g} ms", static_cast<double>(step->step_ns) / 1e6)));
}

// Of all schedules with a stage a rank only one that holds so few microbatches fits the budget.
TEST(PlanSchedule, a_searched_schedule_that_alone_fits_the_budget_comes_with_its_program) {
  const std::string options = ", schedule_options: {memory_limit: 1, search_seconds: 0.1}";
  const StatusOr<AutoPlan> named = plan_schedule_and_sizes(
      job_text(
          {.parallel = ", schedule: zb-auto" + options, .global_batch_size = "4", .microbatch_size = "auto"}),
      {});
  const int64_t budget = peak_of(read(named));
  const std::string yaml =
      job_text({.parallel = ", schedule: auto, stages_per_rank: 1" + options,
                .microbatch_size = fmt::format("{}", read(named).train.microbatch_size),
                .more = fmt::format("recompute: none\nmemory_budget: {}\n", budget * 7 / 8)});
  const JobSpec chosen = read(plan_schedule_and_sizes(yaml, {}));
  EXPECT_EQ(chosen.parallel.schedule, "zb-auto");
  EXPECT_FALSE(chosen.parallel.program.empty());
  EXPECT_LE(peak_of(chosen), budget * 7 / 8);
}

TEST(PlanSchedule, the_slowest_of_devices_is_planned_for) {
  CostSources slow;
  slow.rates = {.flops_per_second = 1e3, .bytes_per_second = 1e4};
  const StatusOr<AutoPlan> plan = plan_schedule_and_sizes(
      job_text({.parallel = ", schedule: auto, stages_per_rank: 1", .global_batch_size = "16384"}), slow);
  EXPECT_EQ(read(plan).microbatches(), 16384);
}

TEST(PlanSchedule, where_rates_alone_are_known_a_refusal_says_how_to_give_them) {
  CostSources slow;
  slow.rates = {.flops_per_second = 1e3, .bytes_per_second = 1e3};
  const std::string yaml = job_text({.parallel = ", schedule: auto", .vocabulary = 1 << 20});
  EXPECT_THAT(message(plan_schedule_and_sizes(yaml, slow).status()),
              HasSubstr("say those of the devices with --device-flops"));
}

TEST(PlanSchedule, when_time_is_up_the_best_so_far_is_written_and_the_rest_is_told) {
  const std::string yaml = job_text({.parallel = ", schedule: auto", .microbatch_size = "auto"});
  std::vector<double> asked;
  const StartTimer no_time = [&](double seconds) {
    asked.push_back(seconds);
    return [] { return false; };
  };
  const StatusOr<AutoPlan> plan = plan_schedule_and_sizes(yaml, {}, no_time);
  EXPECT_EQ(read(plan).train.microbatch_size, 16);  // the fewest microbatches are looked at first
  EXPECT_THAT(asked, ElementsAre(kPlanningSeconds));
  EXPECT_THAT(plan->notes.back(), HasSubstr("planning was stopped after 10 s and did not look at gpipe, "));
  EXPECT_THAT(plan->notes.back(), HasSubstr("microbatch_size 1, microbatch_size 2, microbatch_size 4"));
}

// A tight budget must not make submit wait for as long as it takes, nor refuse what fits.
TEST(PlanSchedule, when_time_is_up_and_nothing_fits_yet_what_needs_little_is_looked_at_and_no_more) {
  JobText text = {.parallel = ", schedule: auto", .microbatch_size = "auto", .more = "memory_budget: 1KB\n"};
  int left = 3;
  const StartTimer little_time = [&](double) { return [&] { return --left > 0; }; };
  const std::string refusal = message(plan_schedule_and_sizes(job_text(text), {}, little_time).status());
  EXPECT_THAT(refusal, HasSubstr("no plan fits memory_budget; the smallest that works is "));
  EXPECT_THAT(refusal,
              HasSubstr("; planning was stopped after 10 s and did not look at some of the schedules"));
  const int64_t peak = peak_of(job_of({.microbatch_size = "1"}));  // of 1f1b; 16 sequences at once take more
  text.more = fmt::format("memory_budget: {}B\n", peak);
  left = 0;
  const JobSpec chosen = read(plan_schedule_and_sizes(job_text(text), {}, little_time));
  EXPECT_EQ(chosen.parallel.schedule, "1f1b");
}

TEST(PlanSchedule, searches_share_out_their_seconds) {
  const std::string yaml = job_text({.parallel = ", schedule: auto, schedule_options: {search_seconds: 4}"});
  std::vector<double> asked;
  int left = 2'000;
  const StartTimer timer = [&](double seconds) {
    asked.push_back(seconds);
    return [&] { return --left > 0; };
  };
  EXPECT_TRUE(plan_schedule_and_sizes(yaml, {}, timer).ok());
  EXPECT_THAT(asked, ElementsAre(kPlanningSeconds + 4, 2, 2));
}

TEST(PlanSchedule, one_rank_needs_no_split) {
  const std::string yaml =
      "name: tiny\nmodel: {vocab_size: 256, hidden_size: 8, num_hidden_layers: 2, "
      "num_attention_heads: 2, intermediate_size: 16, max_position_embeddings: 8}\n"
      "data: {source: /data/text.txt, sequence_length: 8}\n"
      "train: {steps: 3, global_batch_size: 4, microbatch_size: auto}\n";
  EXPECT_GT(read(plan_schedule_and_sizes(yaml, {})).train.microbatch_size, 0);
}

TEST(PlanSchedule, a_budget_makes_blocks_recompute_and_what_is_written_fits_it) {
  const JobText text = {.parallel = ", schedule: auto", .microbatch_size = "2", .blocks = 14};
  const JobSpec free = read(plan_schedule_and_sizes(job_text(text), {}));
  const int64_t peak = peak_of(free);
  JobText tight = text;
  tight.more = fmt::format("memory_budget: {}\n", peak * 3 / 4);
  const StatusOr<AutoPlan> plan = plan_schedule_and_sizes(job_text(tight), {});
  const JobSpec fits = read(plan);
  EXPECT_LE(peak_of(fits), peak * 3 / 4);
  tight.more = "memory_budget: 1KB\n";
  EXPECT_THAT(message(plan_schedule_and_sizes(job_text(tight), {}).status()),
              HasSubstr("no plan fits memory_budget; the smallest that works is "));
  // What the file says of recomputation stays as it is.
  tight.more = "recompute: [3]\n";
  EXPECT_THAT(read(plan_schedule_and_sizes(job_text(tight), {})).recompute, ElementsAre(3));
}

TEST(PlanSchedule, a_split_beside_it_and_costs_by_stage_are_refused) {
  EXPECT_THAT(
      message(plan_schedule_and_sizes(job_text({.parallel = ", schedule: auto, split: ends-lighter"}), {})
                  .status()),
      HasSubstr("line 6: parallel.split: expected auto, or nothing, beside `schedule: auto`"));
  const std::string by_stage =
      job_text({.parallel = ", schedule: auto",
                .more = "device: {kind: emulated, costs: {stages: {forward: 1, backward: 2}}}\n"});
  EXPECT_THAT(message(plan_schedule_and_sizes(by_stage, {}).status()),
              HasSubstr("line 7: device.costs: expected costs by layer"));
  const std::string named = job_text({.parallel = ", schedule: 1f1b"});
  EXPECT_EQ(plan_schedule_and_sizes(named, {})->yaml, named);
}

TEST(PlanMicrobatches, a_fixed_cost_asks_for_larger_ones_and_bubbles_for_smaller_ones) {
  const JobSpec one = job_of({}), four = job_of({.microbatch_size = "4"});
  const std::string yaml = job_text({.microbatch_size = "auto"});
  const auto size_for = [&](double fixed, double per_token) {
    const Truths truths = {.embedding = {fixed, per_token},
                           .block = {fixed, per_token},
                           .head = {fixed, per_token},
                           .experts = {}};
    const JobSpec chosen = read(plan_schedule_and_sizes(yaml, profile_of({one, four}, truths)));
    // By the truth, no other size is better by what a simulation tells apart.
    for (const std::string size : {"1", "2", "4", "8", "16"}) {
      EXPECT_LE(static_cast<double>(true_step_ns(chosen, truths)),
                1.02 * static_cast<double>(true_step_ns(job_of({.microbatch_size = size}), truths)));
    }
    return chosen.train.microbatch_size;
  };
  EXPECT_EQ(size_for(0.001, 1), 1);
  EXPECT_EQ(size_for(100, 0.001), 16);
  const int64_t between = size_for(16, 1);
  EXPECT_GT(between, 1);
  EXPECT_LT(between, 16);
}

TEST(PlanMicrobatches, costs_of_one_size_cannot_choose) {
  const std::string yaml = job_text({.microbatch_size = "auto"});
  EXPECT_THAT(
      message(plan_schedule_and_sizes(yaml, profile_of({job_of({})})).status()),
      HasSubstr("train.microbatch_size: auto needs costs of any size of microbatch, and job run-0 ran with "
                "train.microbatch_size 1 alone"));
}

TEST(PlanMicrobatches, stages_on_two_ranks_are_refused_with_the_field_and_the_remedy) {
  for (const std::string schedule : {"dualpipe", "chimera"}) {
    for (const std::string split : {"", ", split: ends-lighter"}) {
      const Status refusal =
          plan_schedule_and_sizes(
              job_text({.parallel = ", schedule: " + schedule + split, .microbatch_size = "auto"}), {})
              .status();
      EXPECT_EQ(refusal.code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(
          message(refusal),
          HasSubstr("line 5: train.microbatch_size: expected a number with schedule " + schedule + ", "));
      EXPECT_THAT(message(refusal), HasSubstr("write a number, or `schedule: auto`"));
    }
  }
}

// Of pipedream bits depend on the split: rates, which nobody brought, must not choose one, whatever else is auto.
TEST(PlanMicrobatches, a_split_that_changes_bits_is_not_chosen_by_rates) {
  const JobText text = {.parallel = ", schedule: pipedream",
                        .microbatch_size = "auto",
                        .train = ", optimizer: {clip_grad_norm: 0}",
                        .vocabulary = 1024};
  const JobSpec chosen = read(plan_schedule_and_sizes(job_text(text), {}));
  EXPECT_EQ(chosen.parallel.split, automatic_split(chosen.model, chosen.stages()));
  EXPECT_EQ(chosen.yaml.find("split"), std::string::npos);
  CostSources measured_alike;
  measured_alike.profile = *rates_model({});
  measured_alike.profile->is_measured = true;
  EXPECT_NE(read(plan_schedule_and_sizes(job_text(text), measured_alike)).parallel.split,
            chosen.parallel.split);
}

TEST(PlanMicrobatches, a_split_that_is_written_stays) {
  const std::string yaml =
      job_text({.parallel = ", split: {layers: [1, 2, 2, 3]}", .microbatch_size = "auto"});
  const StatusOr<AutoPlan> plan = plan_schedule_and_sizes(yaml, {});
  const JobSpec chosen = read(plan);
  EXPECT_EQ(chosen.parallel.split[3].size(), 4u);
  EXPECT_THAT(plan->yaml, HasSubstr("split: {layers: [1, 2, 2, 3]}"));
  EXPECT_THAT(plan->notes[0], HasSubstr("microbatch_size: auto is "));
}

// All splits of 8 blocks over 3 ranks.
int64_t best_of_all_splits(const JobText& text) {
  int64_t best = INT64_MAX;
  for (int a = 0; a <= 8; ++a) {
    for (int b = 0; a + b <= 8; ++b) {
      if (b == 0) continue;
      JobText split = text;
      split.parallel += fmt::format(", split: {{layers: [{}, {}, {}]}}", a, b, 8 - a - b);
      best = std::min(best, true_step_ns(job_of(split)));
    }
  }
  return best;
}

TEST(KeepPlan, a_job_that_goes_on_stays_what_it_was_planned_to_be) {
  const std::string yaml = job_text({.parallel = ", schedule: auto", .microbatch_size = "auto"});
  const JobSpec running = job_of({.parallel = ", schedule: zb-h1, split: {layers: [1, 2, 2, 3]}",
                                  .microbatch_size = "4",
                                  .more = "recompute: [5]\n"});
  const StatusOr<AutoPlan> kept = keep_plan(yaml, running);
  const JobSpec chosen = read(kept);
  EXPECT_TRUE(check_same_training(running, chosen).ok());
  EXPECT_EQ(chosen.train.microbatch_size, 4);
  EXPECT_EQ(chosen.parallel.schedule, "zb-h1");
  EXPECT_EQ(chosen.parallel.split, running.parallel.split);
  EXPECT_THAT(chosen.recompute, ElementsAre(5));
  EXPECT_EQ(kept->notes.size(), 2u);
  // On other ranks the schedule is planned anew; the microbatches, which bits follow from, stay.
  const std::string fewer =
      job_text({.pipeline = "2", .parallel = ", schedule: auto", .microbatch_size = "auto"});
  const StatusOr<AutoPlan> left = keep_plan(fewer, running);
  ASSERT_TRUE(left.ok()) << left.status();
  EXPECT_EQ(read(plan_schedule_and_sizes(left->yaml, {})).train.microbatch_size, 4);
  const std::string written = job_text({.parallel = ", schedule: 1f1b"});
  EXPECT_EQ(keep_plan(written, running)->yaml, written);
}

TEST(PlanSplit, measured_costs_give_the_best_split_before_the_first_step) {
  const JobText text = {.pipeline = "3"};
  const StatusOr<AutoPlan> plan = plan_split(job_text(text), profile_of({job_of(text)}));
  const JobSpec chosen = read(plan);
  EXPECT_NE(chosen.parallel.split, job_of(text).parallel.split);
  EXPECT_EQ(true_step_ns(chosen), best_of_all_splits(text));
  ASSERT_EQ(plan->notes.size(), 2u);
  EXPECT_THAT(plan->notes[0], HasSubstr("split: auto is planned from measured runs of job run-0"));
  EXPECT_THAT(plan->notes[0], HasSubstr("with equal counts"));
}

TEST(PlanSplit, what_its_stages_were_planned_to_take_is_found_in_the_file) {
  const JobText text = {.pipeline = "3"};
  MeasuredJobRuns measured_before = measured("before", job_of(text));
  measured_before.runs[0].optimizer_seconds = {0.01, 0.02, 0.03};  // no part of a microbatch
  CostSources sources;
  sources.profile = *measured_model({measured_before});
  const JobSpec chosen = read(plan_split(job_text(text), sources));
  const PlannedStages planned = planned_stages(chosen, {run_of(chosen, {})});
  EXPECT_EQ(planned.by, PlannedBy::Submission);
  ASSERT_EQ(planned.ms.size(), 3u);
  for (size_t stage = 0; stage < 3; ++stage) {
    double ms = 0;  // a backward takes twice as long as its forward
    for (const Item& item : chosen.parallel.split[stage]) ms += 3 * forward_ms(chosen, {}, item);
    EXPECT_NEAR(planned.ms[stage], ms, 2e-3 * ms);
  }
}

TEST(PlanSplit, emulated_costs_by_layer_are_taken_and_those_by_stage_are_not) {
  const auto with_costs = [](const std::string& costs) {
    return job_text({.more = "device: {kind: emulated, costs: {" + costs + "}}\n"});
  };
  const StatusOr<AutoPlan> plan = plan_split(
      with_costs("layers: {embedding: {forward: 0.5, backward: 1}, block: {forward: 3, backward: 6}, "
                 "head: {forward: 10, backward: 19}}"),
      {});
  EXPECT_EQ(read(plan).parallel.split.back().size(), 1u);  // the head alone
  EXPECT_THAT(plan->notes[0], HasSubstr("split: auto is planned from device.costs: a step of"));
  const std::string by_stage = with_costs("stages: {forward: 1, backward: 2}");
  EXPECT_EQ(plan_split(by_stage, {})->yaml, by_stage);
}

TEST(PlanSplit, rates_move_layers_only_for_more_than_their_error) {
  // A head of 1,024 words is worth some three blocks; one of 256 less than one.
  const std::string large = job_text({.vocabulary = 1024});
  const StatusOr<AutoPlan> plan = plan_split(large, {});
  EXPECT_LT(read(plan).parallel.split.back().size(), job_of({}).parallel.split.back().size());
  ASSERT_EQ(plan->notes.size(), 1u);
  EXPECT_THAT(plan->notes[0], HasSubstr("rates of 100 GFLOP/s and 20 GB/s, not measurements"));
  // One block of 62 would stand better on the first rank: 3.4 % of a step.
  const std::string small = job_text({.pipeline = "3", .blocks = 62});
  EXPECT_EQ(plan_split(small, {})->yaml, small);
  EXPECT_THAT(plan_split(small, {})->notes, IsEmpty());
  CostSources measured_alike;
  measured_alike.profile = *rates_model({});
  measured_alike.profile->is_measured = true;
  EXPECT_NE(plan_split(small, measured_alike)->yaml, small);
}

TEST(PlanSplit, what_is_written_or_would_change_a_bit_stays) {
  const auto stays = [](const JobText& text) {
    const std::string yaml = job_text(text);
    const StatusOr<AutoPlan> plan = plan_split(yaml, {});
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->yaml, yaml);
  };
  stays({.parallel = ", split: ends-lighter", .vocabulary = 1024});
  stays({.pipeline = "1", .vocabulary = 1024});
  stays({.parallel = ", schedule: dualpipe", .vocabulary = 1024});
  stays(
      {.parallel = ", schedule: pipedream", .train = ", optimizer: {clip_grad_norm: 0}", .vocabulary = 1024});
}

}  // namespace
}  // namespace penstock::plan
