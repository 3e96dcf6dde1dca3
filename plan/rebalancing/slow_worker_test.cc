#include "plan/rebalancing/slow_worker.h"

#include <gmock/gmock.h>

#include "plan/rebalancing/propose.h"
#include "plan/rebalancing/testing/noisy_job.h"

namespace penstock::plan {
namespace {

using ::testing::HasSubstr;
using testing::job_of;
using testing::measured;
using testing::Truth;

// A run whose stages were sampled layer by layer, where the worker of `slow` takes `factor` times as long for everything.
MeasuredRun sampled(const JobSpec& job, int slow, double factor) {
  const Truth truth;
  MeasuredRun run = measured(job, truth);
  for (size_t stage = 0; stage < run.stages.size(); ++stage) {
    const double by = static_cast<int>(stage) == slow ? factor : 1;
    const double forward = by * truth.block.first, backward = by * truth.block.second;
    run.layers.push_back({static_cast<int>(stage), LayerType::Block, forward, backward, kStepsLeast,
                          0.98 * (forward + backward)});
    for (StageSamples& samples : run.stages[stage]) {
      for (double& seconds : samples.forward_seconds) seconds *= by;
      for (double& seconds : samples.backward_seconds) seconds *= by;
    }
  }
  return run;
}

TEST(SlowWorker, is_told_by_blocks_that_take_longer_on_it) {
  const JobSpec job = job_of({.pipeline = 4, .blocks = 14});
  const auto worker = slow_worker(sampled(job, 2, 1.5));
  ASSERT_TRUE(worker.has_value());
  EXPECT_EQ(worker->stage, 2);
  EXPECT_NEAR(worker->factor(), 1.5, 1e-9);
  EXPECT_EQ(
      to_string(*worker),
      "rank 2 takes 1.50 times as long for a block as other ranks (13.5 ms against 9.0 ms): its worker is slow, not its "
      "layers");
  EXPECT_FALSE(slow_worker(sampled(job, 2, 1.2)).has_value());
  MeasuredRun seldom = sampled(job, 2, 1.5);
  for (LayerSamples& layer : seldom.layers) layer.steps = kStepsLeast - 1;
  EXPECT_FALSE(slow_worker(seldom).has_value());
  MeasuredRun delayed = sampled(job, 2, 1.5);  // in most steps, but once it was as fast as all
  delayed.layers[2].least_seconds = delayed.layers[1].least_seconds;
  EXPECT_FALSE(slow_worker(delayed).has_value());
  MeasuredRun unsampled = sampled(job, 2, 1.5);
  unsampled.layers.clear();
  EXPECT_FALSE(slow_worker(unsampled).has_value());
}

TEST(SlowWorker, is_not_one_whose_experts_have_more_rows_or_that_has_the_head) {
  const JobSpec job = job_of({.pipeline = 4, .blocks = 14});
  MeasuredRun run = sampled(job, -1, 1);
  run.layers.push_back({0, LayerType::ExpertBlock, 0.001, 0.002, kStepsLeast, 0.003});
  run.layers.push_back({1, LayerType::ExpertBlock, 0.010, 0.020, kStepsLeast, 0.030});
  run.layers.push_back({3, LayerType::Head, 0.1, 0.2, kStepsLeast, 0.3});
  EXPECT_FALSE(slow_worker(run).has_value());
}

TEST(SlowWorker, is_the_verdict_of_a_pipeline_whose_stages_look_uneven) {
  const JobSpec job = job_of({.pipeline = 4, .blocks = 14});
  const StatusOr<Diagnosis> slow = diagnose_run(sampled(job, 2, 2));
  ASSERT_TRUE(slow.ok()) << slow.status();
  EXPECT_EQ(slow->main().finding, Finding::Straggler);
  ASSERT_EQ(slow->main().workers.size(), 1u);
  EXPECT_EQ(slow->main().workers[0].rank, 2);
  MeasuredRun unsampled = sampled(job, 2, 2);
  unsampled.layers.clear();
  EXPECT_EQ(diagnose_run(unsampled)->main().finding, Finding::Imbalance);
  EXPECT_THAT(diagnose_run(unsampled)->notes, ::testing::Contains(HasSubstr("with one replica")));
  EXPECT_THAT(diagnose_run(sampled(job, -1, 1))->notes,
              ::testing::Not(::testing::Contains(HasSubstr("with one replica"))));
  // The head is heavy whoever is slow.
  const StatusOr<Diagnosis> both = diagnose_run(sampled(job, 1, 1.3));
  EXPECT_EQ(both->main().finding, Finding::Straggler);
  ASSERT_NE(both->of(Finding::Imbalance), nullptr);
  EXPECT_THAT(both->of(Finding::Imbalance)->stages, ::testing::ElementsAre(3));
}

TEST(SlowWorker, keeps_layers_where_they_are) {
  const JobSpec job = job_of({.pipeline = 4, .blocks = 14});
  const StatusOr<Proposal> heavy = propose(job, {sampled(job, -1, 1)}, {.steps_left = 100'000});
  ASSERT_TRUE(heavy.ok()) << heavy.status();
  EXPECT_TRUE(heavy->answer.move);  // the head's stage
  const StatusOr<Proposal> slow = propose(job, {sampled(job, 1, 1.6)}, {.steps_left = 100'000});
  ASSERT_TRUE(slow.ok()) << slow.status();
  EXPECT_FALSE(slow->answer.move);
  EXPECT_THAT(slow->answer.because, HasSubstr("rank 1 takes 1.60 times as long for a block"));
  EXPECT_THAT(slow->answer.because, HasSubstr("drain"));
}

}  // namespace
}  // namespace penstock::plan
