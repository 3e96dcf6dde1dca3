#include "plan/diagnosis/routing_drift.h"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <random>

#include "plan/diagnosis/statistics.h"

namespace penstock::plan {
namespace {

using testing::HasSubstr;

constexpr int kPoints = 100;

// Noise as published: 2 % from step to step, and 1 step in 200 that takes 8 times as long. `load` and `seconds` say how they go
// with the part of the run that is over.
struct Course {
  std::function<double(double)> load = [](double) { return 1.2; };
  std::function<double(double load)> seconds = [](double) { return 0.05; };
  double load_noise = 0.02;
};

RoutedStage stage_of(const Course& course, uint32_t seed, int points = kPoints, int index = 0) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> noise(1, 0.02), load_noise(1, course.load_noise);
  std::uniform_real_distribution<double> chance(0, 1);
  RoutedStage stage{.stage = index, .load = {}, .seconds = {}};
  for (int i = 0; i < points; ++i) {
    const double load = course.load(static_cast<double>(i) / points) * load_noise(engine);
    stage.load.push_back(load);
    stage.seconds.push_back(course.seconds(load) * noise(engine) * (chance(engine) < 0.005 ? 8 : 1));
  }
  return stage;
}

// 60 % of a stage's time are rows of experts.
double follows(double load) {
  return 0.02 + 0.03 * load;
}

TEST(JudgeRouting, no_drift_is_called_on_noise_as_published) {
  for (const double load_noise : {0.0, 0.02, 0.1, 0.3}) {
    for (uint32_t seed = 0; seed < 200; ++seed) {
      const RoutingJudgement found = judge_routing({stage_of({.load_noise = load_noise}, seed)});
      EXPECT_NE(found.routing, Routing::Drift) << load_noise << " " << seed << ": " << found.because;
    }
  }
}

TEST(JudgeRouting, a_load_that_rises_with_its_stages_time_is_drift) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    const Course course{.load = [](double part) { return 1.1 + 0.4 * part; }, .seconds = follows};
    const RoutingJudgement found = judge_routing({stage_of(course, seed)});
    EXPECT_EQ(found.routing, Routing::Drift) << seed << ": " << found.because;
    EXPECT_NEAR(found.least_load, 1.15, 0.03);
    EXPECT_NEAR(found.most_load, 1.45, 0.03);
    EXPECT_GT(found.correlation, 0.8);
    EXPECT_THAT(found.advice, HasSubstr("do not move layers"));
  }
}

TEST(JudgeRouting, one_that_falls_jumps_or_comes_back_is_drift_too) {
  const std::vector<std::function<double(double)>> courses = {
      [](double part) { return 1.6 - 0.4 * part; }, [](double part) { return part < 0.6 ? 1.1 : 1.4; },
      [](double part) { return part > 0.25 && part < 0.5 ? 1.5 : 1.1; }};
  for (const auto& load : courses) {
    for (uint32_t seed = 0; seed < 20; ++seed)
      EXPECT_EQ(judge_routing({stage_of({.load = load, .seconds = follows}, seed)}).routing, Routing::Drift)
          << seed;
  }
}

TEST(JudgeRouting, an_imbalance_that_stays_is_none) {
  // The busiest rank has 1.8 times the mean from the first step to the last: another split would help.
  for (uint32_t seed = 0; seed < 50; ++seed) {
    const RoutingJudgement found =
        judge_routing({stage_of({.load = [](double) { return 1.8; }, .seconds = follows}, seed)});
    EXPECT_EQ(found.routing, Routing::Steady) << found.because;
    EXPECT_EQ(found.advice, "");
  }
}

TEST(JudgeRouting, a_load_that_moves_without_its_time_is_harmless) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    const Course course{.load = [](double part) { return 1.1 + 0.5 * part; }};
    EXPECT_EQ(judge_routing({stage_of(course, seed)}).routing, Routing::Harmless) << seed;
  }
}

TEST(JudgeRouting, a_time_that_moves_without_the_load_is_not_the_routers) {
  // A machine that gets hot: the time rises by a third, and the load stays.
  for (uint32_t seed = 0; seed < 50; ++seed) {
    RoutedStage stage = stage_of({}, seed);
    for (size_t i = 0; i < stage.seconds.size(); ++i)
      stage.seconds[i] *= 1 + static_cast<double>(i) / (3 * kPoints);
    EXPECT_EQ(judge_routing({stage}).routing, Routing::Steady) << seed;
  }
}

TEST(JudgeRouting, the_stage_whose_time_moves_most_is_named) {
  const auto rising = [](double by) {
    return Course{.load = [by](double part) { return 1.1 + by * part; }, .seconds = follows};
  };
  const RoutingJudgement found =
      judge_routing({stage_of({}, 1, kPoints, 0), stage_of(rising(0.3), 2, kPoints, 1),
                     stage_of(rising(0.6), 3, kPoints, 4), stage_of({}, 4, kPoints, 7)});
  EXPECT_EQ(found.stage, 4);
  EXPECT_THAT(found.because, HasSubstr("of stage 4"));
}

TEST(JudgeRouting, a_few_points_say_nothing) {
  const Course rising{.load = [](double part) { return 1 + part; }, .seconds = follows};
  EXPECT_EQ(judge_routing({stage_of(rising, 1, 15)}).routing, Routing::Unknown);
  EXPECT_EQ(judge_routing({}).because, "");
  RoutedStage empty = stage_of(rising, 1);
  empty.load.assign(empty.load.size(), 0);  // no row came
  EXPECT_EQ(judge_routing({empty}).routing, Routing::Unknown);
  EXPECT_EQ(judge_routing({stage_of(rising, 1, 20)}).routing, Routing::Drift);
}

TEST(RankCorrelation, is_spearmans) {
  // IQ and hours of television of ten people, a textbook's example: -29/165.
  const std::vector<double> iq = {106, 100, 86, 101, 99, 103, 97, 113, 112, 110};
  const std::vector<double> hours = {7, 27, 2, 50, 28, 29, 20, 12, 6, 17};
  EXPECT_NEAR(rank_correlation(iq, hours), -29.0 / 165, 1e-12);
  EXPECT_NEAR(rank_correlation({1, 2, 2, 3}, {1, 2, 2, 3}), 1, 1e-12);  // ties share their rank
  EXPECT_EQ(rank_correlation({1, 1, 1}, {1, 2, 3}), 0);
  EXPECT_NEAR(rank_correlation({1, 2, 3}, {1, 2, 1000}), 1, 1e-12);  // however far an outlier is
}

}  // namespace
}  // namespace penstock::plan
