#include "plan/forecast/measured_costs.h"

#include <gmock/gmock.h>

#include <numeric>

#include "plan/forecast/job_plan.h"
#include "plan/forecast/testing/jobs.h"

namespace penstock::plan {
namespace {

using testing::forward_ms;
using ::testing::HasSubstr;
using testing::job_of;
using testing::JobText;
using testing::measured;
using ::testing::Not;
using testing::run_of;
using testing::Truths;

// Times of the job's items by the model against what they truly take.
void expect_truth(const LayerCostModel& model, const JobSpec& job, const Truths& truths = {}) {
  const StatusOr<JobCosts> costs = model.costs(job);
  ASSERT_TRUE(costs.ok()) << costs.status();
  const std::vector<Item> items = model_items(job.model);
  ASSERT_EQ(costs->layers.layers.size(), items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    const double forward = 1e6 * forward_ms(job, truths, items[i]);
    const bool again = items[i].kind == ItemKind::Block && job.recomputes(items[i].layer);
    EXPECT_NEAR(static_cast<double>(costs->layers.forward_ns[i]), forward, 2e-3 * forward + 100)
        << to_string(items[i]);
    EXPECT_NEAR(static_cast<double>(costs->layers.layers[i].keep.time_ns), (again ? 4 : 3) * forward,
                2e-3 * forward + 100)
        << to_string(items[i]);
  }
}

TEST(MeasuredCosts, runs_say_what_layers_of_another_split_and_more_blocks_take) {
  const StatusOr<LayerCostModel> model = measured_model({measured("before", job_of({}))});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE(model->is_measured);
  EXPECT_THAT(model->source, HasSubstr("measured runs of job before (stages within 0.0 % on average"));
  expect_truth(*model, job_of({.pipeline = "6", .blocks = 13}));
}

TEST(MeasuredCosts, blocks_that_were_measured_in_one_way_are_known_in_the_other) {
  const StatusOr<LayerCostModel> kept = measured_model({measured("kept", job_of({}))});
  const JobSpec again = job_of({.more = "recompute: [1, 2]\n"});
  expect_truth(*kept, again);
  const JobSpec all = job_of({.more = "recompute: full\n"});
  const StatusOr<LayerCostModel> recomputed = measured_model({measured("again", all)});
  ASSERT_TRUE(recomputed.ok()) << recomputed.status();
  expect_truth(*recomputed, again);
}

TEST(MeasuredCosts, two_sizes_of_microbatch_give_those_of_any) {
  const JobSpec one = job_of({}), four = job_of({.microbatch_size = "4"});
  const JobSpec two = job_of({.microbatch_size = "2"});
  const StatusOr<LayerCostModel> of_one = measured_model({measured("one", one)});
  EXPECT_THAT(of_one->one_size, HasSubstr("job one ran with train.microbatch_size 1 alone"));
  EXPECT_THAT(
      message(of_one->costs(two).status()),
      HasSubstr("job one: measured with train.microbatch_size 1, found 2; a run at another size beside it"));
  const StatusOr<LayerCostModel> model = measured_model({measured("one", one), measured("four", four)});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->one_size, "");
  expect_truth(*model, two);
  expect_truth(*model, job_of({.microbatch_size = "8"}));
}

TEST(MeasuredCosts, what_the_optimizer_took_is_shared_out_by_bytes_for_a_step_of_any_size) {
  MeasuredJobRuns runs = measured("before", job_of({}));
  EXPECT_THAT(measured_model({runs})->costs(runs.job)->layers.update_ns, ::testing::IsEmpty());
  runs.runs[0].optimizer_seconds = {0.01, 0.02, 0.03, 0.04};
  for (const std::string batch : {"16", "32"}) {
    const JobSpec job = job_of({.global_batch_size = batch});
    const LayerCosts layers = measured_model({runs})->costs(job)->layers;
    ASSERT_EQ(layers.update_ns.size(), layers.layers.size());
    EXPECT_NEAR(
        static_cast<double>(std::accumulate(layers.update_ns.begin(), layers.update_ns.end(), int64_t{0})),
        1e8, 20);
    EXPECT_EQ(layers.update_ns[1], layers.update_ns[2]);
  }
}

TEST(MeasuredCosts, updates_wait_for_the_norm_unless_steps_are_post_validated) {
  MeasuredJobRuns runs = measured("before", job_of({}));
  runs.runs[0].optimizer_seconds = {0.01, 0.02, 0.03, 0.04};
  const LayerCostModel model = *measured_model({runs});
  const PlanningRequest request = *planning_request(runs.job, model, {});
  EXPECT_EQ(request.update_ns, model.costs(runs.job)->layers.update_ns);
  EXPECT_TRUE(request.updates_wait);
  const JobSpec post_validated = job_of({.parallel = ", optimizer_step: post-validated"});
  EXPECT_FALSE(planning_request(post_validated, model, {})->updates_wait);
}

TEST(MeasuredCosts, a_step_that_the_costs_miss_is_the_error) {
  MeasuredJobRuns runs = measured("before", job_of({}));
  const double right = measured_model({runs})->error;  // of a step that was said to take a second
  for (double& seconds : runs.runs[0].step_seconds) seconds = 2;
  const StatusOr<LayerCostModel> model = measured_model({runs});
  EXPECT_NEAR(1 - model->error, (1 - right) / 2, 1e-9);
  EXPECT_THAT(model->source, HasSubstr("steps within"));
}

// Two stages, two sums: any times would fit, which is no error of 0.
TEST(MeasuredCosts, error_is_not_claimed_where_there_are_no_more_stages_than_unknowns) {
  MeasuredJobRuns runs = measured("pair", job_of({.pipeline = "2"}));
  const StatusOr<LayerCostModel> by_steps = measured_model({runs});
  ASSERT_TRUE(by_steps.ok()) << by_steps.status();
  EXPECT_THAT(by_steps->source, Not(HasSubstr("stages within")));
  EXPECT_THAT(by_steps->source, HasSubstr("(steps within"));
  runs.job.parallel.schedule = "gpipe";  // it goes on otherwise: the step says nothing either
  const StatusOr<LayerCostModel> unknown = measured_model({runs});
  ASSERT_TRUE(unknown.ok()) << unknown.status();
  EXPECT_THAT(unknown->source,
              HasSubstr("(no more stages than unknown costs: how far they miss is not known)"));
  EXPECT_EQ(unknown->error, kRatesError);
}

TEST(MeasuredCosts, a_type_of_layer_that_no_run_has_is_named_with_what_would_measure_it) {
  const JobSpec experts = job_of(
      {.model =
           ", moe: {num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 16, layers: [1, 3]}"});
  JobSpec dense = experts;
  dense.model.moe.layers.clear();
  const StatusOr<LayerCostModel> model = measured_model({measured("dense", dense)});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(message(model->costs(experts).status()),
            "job dense has no block with experts: a run of a job that has one would say what it costs");
  expect_truth(*measured_model({measured("experts", experts)}), experts);
}

TEST(MeasuredCosts, jobs_whose_layers_do_other_work_are_refused_with_the_difference) {
  const JobSpec job = job_of({});
  const StatusOr<LayerCostModel> model = measured_model({measured("before", job)});
  EXPECT_EQ(why_layers_differ(job, job_of({.pipeline = "2", .global_batch_size = "32", .blocks = 12})), "");
  EXPECT_EQ(message(model->costs(job_of({.vocabulary = 512})).status()),
            "job before says nothing about this one: measured with model.vocab_size 256, found 512");
  JobSpec other = job;
  other.train.dtype = "bfloat16";
  EXPECT_EQ(why_layers_differ(job, other), "measured with train.dtype float32, found bfloat16");
  other = job;
  other.device.threads = 3;
  EXPECT_EQ(why_layers_differ(job, other), "measured with device.threads 0, found 3");
  other = job;
  other.data.end_of_document = 0;  // attention ends sooner then
  EXPECT_EQ(why_layers_differ(job, other), "measured with data.end_of_document none, found 0");
  other = job;
  other.model.qk_norm_across_heads = true;
  EXPECT_EQ(why_layers_differ(job, other), "measured with model.qk_norm_across_heads false, found true");
  other = job;
  other.device.threads = 3;
  EXPECT_THAT(message(measured_model({measured("a", job), measured("b", other)}).status()),
              HasSubstr("jobs a and b have other layers: measured with device.threads"));
  EXPECT_THAT(message(measured_model({{"none", job, {}}}).status()),
              HasSubstr("job none: nothing is measured"));
  MeasuredJobRuns broken = measured("broken", job);
  broken.runs[0].split[0].pop_back();
  EXPECT_THAT(message(measured_model({broken}).status()), HasSubstr("job broken: "));
}

TEST(MeasuredCosts, emulated_layers_are_alike_where_their_costs_are) {
  const auto emulated = [](int blocks, const std::string& costs) {
    return job_of({.blocks = blocks, .more = "device: {kind: emulated, costs: {" + costs + "}}\n"});
  };
  const std::string layers =
      "layers: {embedding: {forward: 1, backward: 2}, block: {forward: 3, backward: 6}, head: {forward: 9, "
      "backward: 18}}";
  const JobSpec job = emulated(8, layers);
  EXPECT_EQ(why_layers_differ(job, emulated(12, layers + ", latency: 3")), "");
  EXPECT_THAT(
      why_layers_differ(job, emulated(8,
                                      "layers: {embedding: {forward: 1, backward: 2}, block: "
                                      "{forward: 4, backward: 6}, head: {forward: 9, backward: 18}}")),
      HasSubstr("measured with device.costs of block 3 + 6 ms, found 4 + 6 ms"));
  const JobSpec by_stage = emulated(8, "stages: {forward: 1, backward: 2}");
  EXPECT_THAT(why_layers_differ(job, by_stage),
              HasSubstr("device.costs by layer or by stage, found the other"));
  EXPECT_EQ(why_layers_differ(by_stage, by_stage), "");
}

}  // namespace
}  // namespace penstock::plan
