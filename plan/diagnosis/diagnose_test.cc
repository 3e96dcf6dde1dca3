#include "plan/diagnosis/diagnose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace penstock::plan {
namespace {

using testing::HasSubstr;

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

// Even stages with the noise of healthy machines; `scale` says by how much a microbatch's sequences are longer.
template <typename Scale>
StageTrace noisy_trace(size_t stages, size_t replicas, uint32_t seed, const Scale& scale) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> noise(1, 0.02);
  StageTrace trace;
  trace.cells.assign(stages, std::vector<CellSamples>(replicas));
  for (int microbatch = 0; microbatch < 200; ++microbatch) {
    for (size_t replica = 0; replica < replicas; ++replica) {
      const double length = scale(engine);
      for (size_t stage = 0; stage < stages; ++stage) {
        trace.cells[stage][replica].forward_ms.push_back(20 * length * noise(engine));
        trace.cells[stage][replica].backward_ms.push_back(40 * length * noise(engine));
      }
    }
  }
  return trace;
}

StageTrace even_trace(size_t stages, size_t replicas, uint32_t seed) {
  return noisy_trace(stages, replicas, seed, [](std::mt19937&) { return 1.0; });
}

void slow_down(CellSamples& cell, double factor) {
  for (double& ms : cell.forward_ms) ms *= factor;
  for (double& ms : cell.backward_ms) ms *= factor;
}

TEST(DiagnoseTest, the_published_imbalance_is_found_in_the_last_stage) {
  const StatusOr<Diagnosis> diagnosis = diagnose(published_trace());
  ASSERT_TRUE(diagnosis.ok()) << diagnosis.status();
  EXPECT_EQ(diagnosis->finding, Finding::Imbalance);
  EXPECT_EQ(diagnosis->stage, 3);
  EXPECT_NEAR(diagnosis->stage_factor[3], 1.62, 0.02);  // published: 1.6234
  for (const auto& row : diagnosis->residual_factor) {
    for (const double residual : row) EXPECT_NEAR(residual, 1, 0.02);
  }
  EXPECT_LT(*std::max_element(diagnosis->spread.begin(), diagnosis->spread.end()), 0.05);
}

TEST(DiagnoseTest, permuted_stages_move_the_verdict_with_them) {
  std::vector<size_t> order = {0, 1, 2, 3};
  do {
    const StageTrace published = published_trace();
    StageTrace trace;
    for (const size_t stage : order) trace.cells.push_back(published.cells[stage]);
    const StatusOr<Diagnosis> diagnosis = diagnose(trace);
    EXPECT_EQ(diagnosis->finding, Finding::Imbalance);
    EXPECT_EQ(order[static_cast<size_t>(diagnosis->stage)], 3u);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(DiagnoseTest, one_slow_worker_is_a_straggler_wherever_it_is) {
  for (const size_t replicas : {size_t{2}, size_t{3}, size_t{8}}) {
    for (const double factor : {1.2, 2.34}) {
      for (size_t stage = 0; stage < 4; ++stage) {
        StageTrace trace = even_trace(4, replicas, 7);
        slow_down(trace.cells[stage][replicas - 1], factor);
        const StatusOr<Diagnosis> diagnosis = diagnose(trace);
        EXPECT_EQ(diagnosis->finding, Finding::Straggler) << diagnosis->because;
        EXPECT_EQ(diagnosis->stage, static_cast<int>(stage));
        EXPECT_EQ(diagnosis->replica, static_cast<int>(replicas) - 1);
        EXPECT_THAT(diagnosis->advice, HasSubstr("do not move layers"));
      }
    }
  }
}

TEST(DiagnoseTest, of_a_straggler_and_an_imbalance_the_larger_is_the_verdict) {
  StageTrace trace = published_trace();
  slow_down(trace.cells[1][0], 1.3);
  EXPECT_EQ(diagnose(trace)->finding, Finding::Imbalance);
  slow_down(trace.cells[1][0], 2);
  EXPECT_EQ(diagnose(trace)->finding, Finding::Straggler);
}

TEST(DiagnoseTest, mixed_lengths_with_a_heavy_tail_are_data_variance) {
  const StageTrace trace = noisy_trace(4, 2, 3, [](std::mt19937& engine) {
    const double uniform = std::uniform_real_distribution<double>(0.001, 1)(engine);
    return std::pow(uniform, -1 / 1.8);  // Pareto
  });
  const StatusOr<Diagnosis> diagnosis = diagnose(trace);
  EXPECT_EQ(diagnosis->finding, Finding::DataVariance);
  EXPECT_GT(diagnosis->forward_backward_correlation, 0.9);
  EXPECT_THAT(diagnosis->advice, HasSubstr("pack sequences"));
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
      EXPECT_THAT(found.advice, HasSubstr("pack sequences"));
    }
    // As much of the machine as of the data (0.5), twice as much of the data (0.8), and the machine alone.
    for (const auto& [data, machine] : {std::pair(0.15, 0.15), {0.2, 0.1}, {0.0, 0.2}}) {
      const Diagnosis found = *diagnose(varying_trace(data, machine, seed));
      EXPECT_EQ(found.finding, Finding::DataVariance);
      EXPECT_FALSE(is_of_the_data(found))
          << data << " " << machine << ": " << found.forward_backward_correlation;
      EXPECT_THAT(found.advice, HasSubstr("what else runs on the machines"));
    }
  }
  EXPECT_FALSE(is_of_the_data(*diagnose(even_trace(4, 2, 1))));
}

TEST(DiagnoseTest, rare_outliers_are_not_the_data) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const StageTrace trace = noisy_trace(4, 2, seed, [](std::mt19937& engine) {
      return std::uniform_real_distribution<double>(0, 1)(engine) < 0.005 ? 8.0 : 1.0;
    });
    EXPECT_EQ(diagnose(trace)->finding, Finding::Balanced) << seed;
  }
}

TEST(DiagnoseTest, even_stages_are_balanced) {
  const StatusOr<Diagnosis> diagnosis = diagnose(even_trace(8, 2, 1));
  EXPECT_EQ(diagnosis->finding, Finding::Balanced) << diagnosis->because;
  EXPECT_EQ(diagnosis->stage, -1);
  EXPECT_EQ(diagnose(even_trace(1, 1, 1))->finding, Finding::Balanced);
}

TEST(DiagnoseTest, one_replica_cannot_tell_a_slow_worker_and_says_so) {
  StageTrace trace = even_trace(4, 1, 1);
  slow_down(trace.cells[2][0], 1.5);
  const StatusOr<Diagnosis> diagnosis = diagnose(trace);
  EXPECT_EQ(diagnosis->finding, Finding::Imbalance);
  EXPECT_EQ(diagnosis->stage, 2);
  EXPECT_THAT(diagnosis->note, HasSubstr("with one replica"));
}

TEST(DiagnoseTest, bad_traces_are_refused_by_cell) {
  StageTrace trace = even_trace(2, 2, 1);
  trace.cells[1][0].backward_ms.pop_back();
  EXPECT_THAT(message(diagnose(trace).status()),
              HasSubstr("stage 1 replica 0: expected as many forwards as"));
  trace = even_trace(2, 2, 1);
  trace.cells[0][1].forward_ms[3] = std::nan("");
  EXPECT_THAT(message(diagnose(trace).status()), HasSubstr("stage 0 replica 1: expected times above 0"));
  trace = even_trace(2, 2, 1);
  trace.cells[1].pop_back();
  EXPECT_THAT(message(diagnose(trace).status()), HasSubstr("stage 1: expected 2 replicas, found 1"));
  EXPECT_FALSE(diagnose({}).ok());
}

}  // namespace
}  // namespace penstock::plan
