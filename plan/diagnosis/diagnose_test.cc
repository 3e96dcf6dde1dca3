#include "plan/diagnosis/diagnose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "plan/diagnosis/testing/traces.h"

namespace penstock::plan {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::place_on_ranks;
using ::testing::SizeIs;
using testing::slow_down;
using testing::slow_replica;
using testing::slow_stage;
using testing::trace_of;

#include "plan/diagnosis/published_trace.inc"

StageTrace published_trace() {
  StageTrace trace;
  for (const auto& stage : kPublishedTrace) {
    auto& cells = trace.cells.emplace_back();
    for (const PublishedCell& cell : stage) {
      cells.push_back({{std::begin(cell.forward_ms), std::end(cell.forward_ms)},
                       {std::begin(cell.backward_ms), std::end(cell.backward_ms)}});
    }
  }
  return trace;
}

StageTrace even_trace(size_t stages, size_t replicas, uint32_t seed = 7) {
  return trace_of({.stages = stages, .replicas = replicas}, seed);
}

std::vector<Finding> findings_of(const Diagnosis& diagnosis) {
  std::vector<Finding> findings;
  for (const Judgement& verdict : diagnosis.verdicts) findings.push_back(verdict.finding);
  return findings;
}

// --- imbalance.

TEST(DiagnoseTest, the_published_imbalance_is_found_in_the_last_stage) {
  const StatusOr<Diagnosis> diagnosis = diagnose(published_trace());
  ASSERT_TRUE(diagnosis.ok()) << diagnosis.status();
  EXPECT_THAT(findings_of(*diagnosis), ElementsAre(Finding::Imbalance));
  EXPECT_THAT(diagnosis->main().stages, ElementsAre(3));
  EXPECT_NEAR(diagnosis->stage_factor[3], 1.62, 0.02);  // published: 1.6234
  EXPECT_NEAR(diagnosis->main().factor, 1.62, 0.02);
  // Of medians 211.8, 211.1, 213.4, 345.8 the mean is 245.5.
  EXPECT_NEAR(diagnosis->main().gain, 1 - 245.5 / 345.8, 0.01);
  EXPECT_EQ(diagnosis->main().advice, "move layers away from stage 3, which holds the head, to the others");
  for (const auto& row : diagnosis->worker_factor) {
    for (const double factor : row) EXPECT_NEAR(factor, 1, 0.02);
  }
  EXPECT_THAT(diagnosis->replica_factor, Each(1));
  EXPECT_LT(*std::max_element(diagnosis->spread.begin(), diagnosis->spread.end()), 0.05);
}

TEST(DiagnoseTest, permuted_stages_move_the_verdict_with_them) {
  std::vector<size_t> order = {0, 1, 2, 3};
  do {
    const StageTrace published = published_trace();
    StageTrace trace;
    for (const size_t stage : order) trace.cells.push_back(published.cells[stage]);
    const StatusOr<Diagnosis> diagnosis = diagnose(trace);
    EXPECT_THAT(findings_of(*diagnosis), ElementsAre(Finding::Imbalance));
    EXPECT_EQ(order[static_cast<size_t>(diagnosis->main().stages[0])], 3u);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(DiagnoseTest, of_two_stages_the_heavy_one_is_told_against_the_other) {
  StageTrace trace = even_trace(2, 1);
  slow_stage(trace, 1, 1.67);
  const Diagnosis diagnosis = *diagnose(trace);
  EXPECT_THAT(findings_of(diagnosis), ElementsAre(Finding::Imbalance));
  EXPECT_NEAR(diagnosis.main().factor, 1.67, 0.02);
  EXPECT_THAT(diagnosis.main().because, HasSubstr("stage 1 takes 1.6"));
  EXPECT_THAT(diagnosis.main().because, HasSubstr("times what the other takes"));
  EXPECT_THAT(diagnosis.main().because, HasSubstr("the slowest stage would take 20 % less"));
}

TEST(DiagnoseTest, a_light_stage_is_given_layers) {
  // Three of four stages are even: their median says nothing of the eighth of a stage that is to be had.
  StageTrace trace = even_trace(4, 1);
  slow_stage(trace, 3, 0.5);
  const Diagnosis diagnosis = *diagnose(trace);
  EXPECT_THAT(findings_of(diagnosis), ElementsAre(Finding::Imbalance));
  EXPECT_THAT(diagnosis.main().stages, ElementsAre(3));
  EXPECT_NEAR(diagnosis.main().factor, 0.5, 0.01);
  EXPECT_NEAR(diagnosis.main().gain, 0.125, 0.01);
  EXPECT_EQ(diagnosis.main().advice, "move layers from the others to stage 3");
  EXPECT_THAT(diagnosis.notes, IsEmpty());  // a worker is not fast by itself
}

TEST(DiagnoseTest, several_heavy_stages_are_all_named) {
  StageTrace trace = even_trace(4, 1);
  slow_stage(trace, 0, 2);
  slow_stage(trace, 1, 2);
  EXPECT_EQ(diagnose(trace)->main().advice, "move layers away from stages 0, 1 to the others");
}

TEST(DiagnoseTest, one_replica_cannot_tell_a_slow_worker_and_says_so) {
  StageTrace trace = even_trace(4, 1);
  slow_stage(trace, 2, 1.5);
  const StatusOr<Diagnosis> diagnosis = diagnose(trace);
  EXPECT_THAT(findings_of(*diagnosis), ElementsAre(Finding::Imbalance));
  EXPECT_THAT(diagnosis->main().stages, ElementsAre(2));
  EXPECT_THAT(diagnosis->notes, ElementsAre(HasSubstr("with one replica")));
}

TEST(DiagnoseTest, even_stages_are_balanced) {
  const StatusOr<Diagnosis> diagnosis = diagnose(even_trace(8, 2, 1));
  EXPECT_THAT(findings_of(*diagnosis), ElementsAre(Finding::Balanced)) << diagnosis->main().because;
  EXPECT_THAT(diagnosis->main().stages, IsEmpty());
  EXPECT_THAT(diagnosis->main().because,
              HasSubstr("more than their mean, workers of a stage differ by at most"));
  EXPECT_THAT(diagnosis->notes, IsEmpty());
  EXPECT_EQ(diagnose(even_trace(1, 1))->main().finding, Finding::Balanced);
}

// --- stragglers and slow replicas.

TEST(DiagnoseTest, one_slow_worker_is_a_straggler_wherever_it_is) {
  for (const size_t stages : {size_t{1}, size_t{2}, size_t{4}}) {
    for (const size_t replicas : {size_t{2}, size_t{3}, size_t{8}}) {
      for (const double factor : {1.2, 2.34}) {
        for (size_t stage = 0; stage < stages; ++stage) {
          StageTrace trace = even_trace(stages, replicas);
          slow_down(trace.cells[stage][replicas - 1], factor);
          const StatusOr<Diagnosis> diagnosis = diagnose(trace);
          ASSERT_THAT(findings_of(*diagnosis), ElementsAre(Finding::Straggler)) << diagnosis->main().because;
          EXPECT_THAT(diagnosis->main().stages, ElementsAre(static_cast<int>(stage)));
          EXPECT_EQ(diagnosis->main().replica, static_cast<int>(replicas) - 1);
          EXPECT_NEAR(diagnosis->main().gain, 1 - 1 / factor, 0.02);
          EXPECT_THAT(diagnosis->main().workers, SizeIs(1));
          EXPECT_EQ(diagnosis->main().advice, "derate or drain that worker; do not move layers");
        }
      }
    }
  }
}

TEST(DiagnoseTest, a_slow_replica_is_no_worker_of_it) {
  for (const size_t replicas : {size_t{2}, size_t{4}}) {
    StageTrace trace = even_trace(4, replicas);
    slow_replica(trace, replicas - 1, 1.5);
    const Diagnosis diagnosis = *diagnose(trace);
    EXPECT_THAT(findings_of(diagnosis), ElementsAre(Finding::SlowReplica));
    EXPECT_EQ(diagnosis.main().replica, static_cast<int>(replicas) - 1);
    EXPECT_NEAR(diagnosis.main().gain, 1.0 / 3, 0.02);
    EXPECT_THAT(diagnosis.main().workers, SizeIs(4));
    EXPECT_THAT(diagnosis.main().because, HasSubstr("what the others take, on each of its 4 ranks"));
    EXPECT_THAT(diagnosis.main().advice, AllOf(HasSubstr("what its workers share"),
                                               HasSubstr("do not move layers"), Not(HasSubstr("drain"))));
  }
}

TEST(DiagnoseTest, of_a_replica_that_is_mostly_slow_the_healthy_worker_is_not_blamed) {
  // By effects of stages and replicas alone the last stage's worker in the other replica would stick out, at the time of its like.
  for (const size_t slow : {size_t{2}, size_t{3}}) {
    StageTrace trace = even_trace(4, 2);
    for (size_t stage = 0; stage < slow; ++stage) slow_down(trace.cells[stage][1], 1.5);
    const Diagnosis diagnosis = *diagnose(trace);
    ASSERT_THAT(findings_of(diagnosis), ElementsAre(Finding::Straggler)) << diagnosis.main().because;
    EXPECT_THAT(diagnosis.main().workers, SizeIs(slow));
    EXPECT_THAT(diagnosis.main().workers, Each(Field(&SlowWorker::replica, 1)));
    EXPECT_THAT(diagnosis.main().advice, HasSubstr("after a look at what they share"));
  }
}

TEST(DiagnoseTest, a_straggler_beside_a_slow_replica_is_found_too) {
  StageTrace trace = even_trace(4, 2);
  slow_replica(trace, 1, 1.5);
  slow_down(trace.cells[2][0], 2);
  const Diagnosis diagnosis = *diagnose(trace);
  EXPECT_THAT(findings_of(diagnosis), ElementsAre(Finding::Straggler, Finding::SlowReplica));
  EXPECT_THAT(diagnosis.main().workers,
              ElementsAre(AllOf(Field(&SlowWorker::stages, ElementsAre(2)), Field(&SlowWorker::replica, 0))));
  EXPECT_NEAR(diagnosis.main().factor, 2, 0.05);
  EXPECT_EQ(diagnosis.verdicts[1].replica, 1);
}

TEST(DiagnoseTest, two_slow_workers_of_three_do_not_speak_for_their_stage) {
  StageTrace trace = even_trace(4, 3);
  slow_down(trace.cells[1][1], 2);
  slow_down(trace.cells[1][2], 2);
  const Diagnosis diagnosis = *diagnose(trace);
  EXPECT_THAT(findings_of(diagnosis), ElementsAre(Finding::Straggler));
  EXPECT_THAT(diagnosis.main().workers, SizeIs(2));
  // Where the stage is heavy by its fastest worker too, that one is no measure.
  slow_stage(trace, 1, 1.5);
  EXPECT_THAT(findings_of(*diagnose(trace)), ElementsAre(Finding::Imbalance));
}

TEST(DiagnoseTest, a_worker_that_is_fast_makes_no_other_slow) {
  StageTrace trace = even_trace(4, 4);
  slow_down(trace.cells[1][2], 0.7);
  EXPECT_THAT(findings_of(*diagnose(trace)), ElementsAre(Finding::Balanced));
  trace = even_trace(4, 4);
  slow_replica(trace, 2, 0.7);
  const Diagnosis diagnosis = *diagnose(trace);
  EXPECT_THAT(findings_of(diagnosis), ElementsAre(Finding::Balanced));
  EXPECT_THAT(diagnosis.notes, ElementsAre(HasSubstr("replica 2 takes 0.70 times what most take")));
}

TEST(DiagnoseTest, of_a_straggler_and_an_imbalance_both_are_told_what_costs_more_first) {
  StageTrace trace = published_trace();
  slow_down(trace.cells[1][0], 1.3);  // 275 ms, and the last stage takes 346
  Diagnosis diagnosis = *diagnose(trace);
  EXPECT_THAT(findings_of(diagnosis), ElementsAre(Finding::Imbalance, Finding::Straggler));
  EXPECT_THAT(diagnosis.verdicts[1].because, HasSubstr("no rank waits for it as things are"));
  EXPECT_THAT(diagnosis.verdicts[1].advice, Not(HasSubstr("do not move layers")));
  slow_down(trace.cells[1][0], 2);
  EXPECT_THAT(findings_of(*diagnose(trace)), ElementsAre(Finding::Straggler, Finding::Imbalance));
  trace = published_trace();
  slow_down(trace.cells[3][1], 1.5);
  diagnosis = *diagnose(trace);
  EXPECT_THAT(findings_of(diagnosis), ElementsAre(Finding::Straggler, Finding::Imbalance));
  EXPECT_THAT(diagnosis.main().stages, ElementsAre(3));
  EXPECT_THAT(diagnosis.verdicts[1].stages, ElementsAre(3));
}

TEST(DiagnoseTest, a_straggler_that_nobody_waits_for_is_not_the_verdict) {
  StageTrace trace = even_trace(16, 2);
  slow_stage(trace, 4, 0.8);
  slow_down(trace.cells[4][1], 1.2);
  const Diagnosis diagnosis = *diagnose(trace);
  EXPECT_THAT(findings_of(diagnosis), ElementsAre(Finding::Balanced, Finding::Straggler));
}

// --- ranks with several stages.

TEST(DiagnoseTest, uneven_stages_on_even_ranks_are_balanced) {
  for (const std::vector<int>& of_stage : {std::vector{0, 1, 0, 1}, {0, 1, 1, 0}}) {
    for (const size_t replicas : {size_t{1}, size_t{2}}) {
      StageTrace trace = even_trace(4, replicas);
      slow_stage(trace, 0, 2);
      slow_stage(trace, 1, 2);
      place_on_ranks(trace, of_stage);
      const Diagnosis diagnosis = *diagnose(trace);
      EXPECT_THAT(findings_of(diagnosis), ElementsAre(Finding::Balanced)) << diagnosis.main().because;
      EXPECT_THAT(diagnosis.main().because, HasSubstr("the slowest rank takes"));
      EXPECT_THAT(diagnosis.notes, ElementsAre(HasSubstr("and yet the ranks are even")));
    }
  }
}

TEST(DiagnoseTest, of_ranks_with_several_stages_the_sums_are_judged) {
  StageTrace trace = even_trace(8, 2);
  slow_stage(trace, 3, 3);
  slow_stage(trace, 4, 2);
  place_on_ranks(trace, {0, 1, 2, 3, 3, 2, 1, 0});
  Diagnosis diagnosis = *diagnose(trace);
  EXPECT_THAT(findings_of(diagnosis), ElementsAre(Finding::Imbalance));
  EXPECT_THAT(diagnosis.main().stages, ElementsAre(3, 4));
  EXPECT_NEAR(diagnosis.main().factor, 2.5, 0.05);
  EXPECT_THAT(diagnosis.main().because, HasSubstr("stages 3, 4 take 2.5"));
  EXPECT_THAT(diagnosis.main().because, HasSubstr("the slowest rank would take 45 % less"));
  EXPECT_EQ(diagnosis.main().advice, "move layers away from stages 3, 4 to the others");

  trace = even_trace(8, 2);
  for (const size_t stage : {size_t{2}, size_t{5}}) slow_down(trace.cells[stage][1], 1.4);
  place_on_ranks(trace, {0, 1, 2, 3, 3, 2, 1, 0});
  diagnosis = *diagnose(trace);
  EXPECT_THAT(findings_of(diagnosis), ElementsAre(Finding::Straggler));
  EXPECT_THAT(diagnosis.main().workers,
              ElementsAre(AllOf(Field(&SlowWorker::stages, ElementsAre(2, 5)), Field(&SlowWorker::rank, 5))));
}

TEST(DiagnoseTest, stages_that_are_on_two_ranks_of_a_pipeline_each_are_compared_there) {
  // Two directions: rank 0 has stages 0 and 3, rank 3 too.
  StageTrace trace = even_trace(4, 2);
  trace.ranks = {{0, 3}, {1, 2}, {1, 2}, {0, 3}};
  slow_down(trace.cells[0][1], 1.4);
  slow_down(trace.cells[3][1], 1.4);
  const Diagnosis diagnosis = *diagnose(trace);
  EXPECT_THAT(findings_of(diagnosis), ElementsAre(Finding::Straggler));
  EXPECT_EQ(diagnosis.main().workers[0].rank, 3);
}

// --- data that vary, and machines that hiccup.

TEST(DiagnoseTest, mixed_lengths_with_a_heavy_tail_are_data_variance) {
  const StageTrace trace = trace_of({.microbatches = 200,
                                     .length =
                                         [](std::mt19937& engine) {
                                           const double uniform =
                                               std::uniform_real_distribution<double>(0.001, 1)(engine);
                                           return std::pow(uniform, -1 / 1.8);  // Pareto
                                         }},
                                    3);
  const StatusOr<Diagnosis> diagnosis = diagnose(trace);
  EXPECT_THAT(findings_of(*diagnosis), ElementsAre(Finding::DataVariance));
  EXPECT_GT(diagnosis->forward_backward_correlation, 0.9);
  EXPECT_THAT(diagnosis->main().advice, HasSubstr("pack sequences"));
}

TEST(DiagnoseTest, data_that_vary_do_not_hide_an_imbalance) {
  StageTrace trace = trace_of(
      {.length = [](std::mt19937& engine) { return std::lognormal_distribution<double>(0, 0.10)(engine); }},
      1);
  slow_stage(trace, 3, 3);
  const Diagnosis diagnosis = *diagnose(trace);
  EXPECT_THAT(findings_of(diagnosis), ElementsAre(Finding::Imbalance, Finding::DataVariance));
  EXPECT_THAT(diagnosis.main().stages, ElementsAre(3));
  EXPECT_TRUE(is_of_the_data(diagnosis));
}

TEST(DiagnoseTest, one_hiccup_of_few_samples_is_not_the_data) {
  StageTrace trace = trace_of({.stages = 2, .replicas = 1, .microbatches = 32}, 1);
  trace.cells[0][0].forward_ms[5] *= 8;
  trace.cells[0][0].backward_ms[5] *= 8;
  EXPECT_THAT(findings_of(*diagnose(trace)), ElementsAre(Finding::Balanced));
  slow_stage(trace, 1, 1.6);
  const Diagnosis diagnosis = *diagnose(trace);
  EXPECT_THAT(findings_of(diagnosis), ElementsAre(Finding::Imbalance));
  EXPECT_THAT(diagnosis.main().stages, ElementsAre(1));
}

TEST(DiagnoseTest, rare_outliers_are_not_the_data) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const StageTrace trace =
        trace_of({.microbatches = 200,
                  .length =
                      [](std::mt19937& engine) {
                        return std::uniform_real_distribution<double>(0, 1)(engine) < 0.005 ? 8.0 : 1.0;
                      }},
                 seed);
    EXPECT_EQ(diagnose(trace)->main().finding, Finding::Balanced) << seed;
  }
}

// Lengths vary by `data` (a part of the mean) in forward and backward alike, and the machine by `machine` in each alone.
StageTrace varying_trace(double data, double machine, uint32_t seed) {
  std::mt19937 engine(seed);
  std::lognormal_distribution<double> length(0, data), forward(0, machine), backward(0, machine);
  StageTrace trace;
  trace.cells.assign(4, std::vector<CellSamples>(2));
  for (int microbatch = 0; microbatch < 200; ++microbatch) {
    for (size_t replica = 0; replica < 2; ++replica) {
      const double tokens = length(engine);
      for (auto& stage : trace.cells) {
        stage[replica].forward_ms.push_back(20 * tokens * forward(engine));
        stage[replica].backward_ms.push_back(40 * tokens * backward(engine));
      }
    }
  }
  return trace;
}

TEST(DiagnoseTest, what_varies_is_the_data_where_forward_and_backward_vary_together) {
  // With spreads d of the data and m of the machine the correlation is d^2 / (d^2 + m^2).
  for (uint32_t seed = 0; seed < 20; ++seed) {
    for (const auto& [data, machine] : {std::pair(0.10, 0.02), {0.15, 0.03}, {0.4, 0.05}}) {
      const Diagnosis found = *diagnose(varying_trace(data, machine, seed));
      EXPECT_TRUE(is_of_the_data(found))
          << data << " " << machine << ": " << found.forward_backward_correlation;
      EXPECT_THAT(found.main().advice, HasSubstr("pack sequences"));
    }
    // As much of the machine as of the data (0.5), twice as much of the data (0.8), and the machine alone.
    for (const auto& [data, machine] : {std::pair(0.15, 0.15), {0.2, 0.1}, {0.0, 0.2}}) {
      const Diagnosis found = *diagnose(varying_trace(data, machine, seed));
      EXPECT_EQ(found.main().finding, Finding::DataVariance);
      EXPECT_FALSE(is_of_the_data(found))
          << data << " " << machine << ": " << found.forward_backward_correlation;
      EXPECT_THAT(found.main().advice, HasSubstr("what else runs on the machines"));
    }
  }
  EXPECT_FALSE(is_of_the_data(*diagnose(even_trace(4, 2, 1))));
}

// --- what cannot be judged.

TEST(DiagnoseTest, few_samples_are_said) {
  EXPECT_THAT(diagnose(trace_of({.microbatches = 3}, 1))->notes,
              ElementsAre("of some stage 3 microbatches are measured: more tell more surely"));
}

TEST(DiagnoseTest, bad_traces_are_refused_by_cell) {
  const auto refusal = [](auto change) {
    StageTrace trace = even_trace(2, 2);
    change(trace);
    return message(diagnose(trace).status());
  };
  EXPECT_THAT(refusal([](StageTrace& t) { t.cells[1][0].backward_ms.pop_back(); }),
              HasSubstr("stage 1 replica 0: expected as many forwards as"));
  for (const double bad : {std::nan(""), 0.0, -1.0, 1e-300, 1e13})
    EXPECT_THAT(refusal([&](StageTrace& t) { t.cells[0][1].forward_ms[3] = bad; }),
                HasSubstr("stage 0 replica 1: expected times above 0"));
  EXPECT_THAT(refusal([](StageTrace& t) { t.cells[1].pop_back(); }),
              HasSubstr("stage 1: expected 2 replicas, found 1"));
  EXPECT_THAT(refusal([](StageTrace& t) {
                t.ranks = {{0, 1}};
              }),
              HasSubstr("ranks: expected those of 2 stages, found 1"));
  EXPECT_THAT(refusal([](StageTrace& t) {
                t.ranks = {{0, 1}, {2}};
              }),
              HasSubstr("stage 1: expected 2 ranks, found 1"));
  EXPECT_THAT(refusal([](StageTrace& t) {
                t.ranks = {{0, 1}, {3, 2}};
              }),
              HasSubstr("stage 1: expected ranks that ascend"));
  EXPECT_THAT(refusal([](StageTrace& t) {
                t.ranks = {{0, 1}, {1, 2}};
              }),
              HasSubstr("expected 2 ranks with the same stages, found 1"));
  EXPECT_FALSE(diagnose({}).ok());
}

}  // namespace
}  // namespace penstock::plan
