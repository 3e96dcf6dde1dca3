// Words for tests of jobs whose file says `rebalance: apply`, and a planner that answers what the test wants.
#pragma once

#include <string>
#include <vector>

#include "coordinator/core/testing/world.h"
#include "plan/spec/split_source.h"

namespace penstock::coordinator::testing {

inline const JobShape kUneven = {.steps = 40,
                                 .extra = "checkpoint: {every: 5, directory: /kept}\nrebalance: apply\n",
                                 .parallel = ", split: [[embedding], [0, 1, 2, 3, head]]"};

inline JobShape evened(JobShape shape = kUneven) {
  shape.parallel = ", split: [[embedding, 0, 1, 2], [3, head]]";
  return shape;
}

inline SplitAnswer move_to(const JobShape& shape, double gain = 0.2) {
  const auto spec = job_spec(shape);
  return {.advice = SplitAdvice::Move,
          .because = "20 % faster",
          .split = plan::to_text(spec->parallel.split),
          .gain = gain,
          .spec = spec};
}
inline SplitAnswer undo(const JobShape& shape = kUneven) {
  return {.advice = SplitAdvice::Undo, .because = "1 % came", .spec = job_spec(shape)};
}

// Answers in turn, then Stay; and what was asked.
struct Planner {
  std::vector<SplitAnswer> answers;
  std::vector<SplitQuestion> asked{};

  void serve(World& world) {
    world.considers = [this](const SplitQuestion& question) {
      asked.push_back(question);
      return asked.size() <= answers.size() ? answers[asked.size() - 1] : SplitAnswer{.because = "best"};
    };
  }
};

inline World world_of_quick_questions() {
  Options options;
  options.question = {.steps = 4, .samples = 16};
  return World(options);
}

// Steps [first, last), with their checkpoints.
inline void run_steps(World& world, const std::string& name, int64_t first, int64_t last) {
  for (int64_t step = first; step < last; ++step) {
    world.all_report(name, step);
    const int64_t every = world.job(name).spec->checkpoint.every;
    if ((step + 1) % every != 0 || !world.job(name).attempt) continue;
    const int64_t order = world.job(name).attempt->order;
    for (int rank = 0; rank < world.job(name).definition.ranks; ++rank) world.wrote(name, rank, step + 1);
    world.newest_checkpoint = step + 1;
    world.tell(CheckpointCommitted{name, order, step + 1, ok_status(), std::string(32, 'd')});
  }
}

// Its executors leave, and it prepares the next attempt.
inline void restart(World& world, const std::string& name) {
  for (int rank = 0; rank < 2; ++rank) world.stopped(name, rank);
  for (int i = 0; i < 3; ++i) world.tick();
  ASSERT_EQ(world.state_of(name), JobState::Preparing) << world.reason_of(name);
}

inline void kill_rank(World& world, const std::string& name) {
  world.say(world.place_of(name, 1).worker, RankFailed{world.key(name, 1), RankIndex(1), 1, "ended", -1, 9});
}

inline const JobDefinition& stored(const World& world, const std::string& name) {
  return world.archive.find(name)->definition;
}

inline std::vector<std::string> told_by_rebalancer(World& world, const std::string& name) {
  std::vector<std::string> reasons;
  for (const JobEventView& event : world.job(name).events) {
    if (event.by == "rebalancer") reasons.push_back(event.reason);
  }
  return reasons;
}

// A running job on the better split, whose move is not judged yet.
inline std::string moved_job(World& world, Planner& planner) {
  planner.serve(world);
  const std::string name = world.run(kUneven);
  run_steps(world, name, 0, 10);
  EXPECT_EQ(world.state_of(name), JobState::Recovering) << world.reason_of(name);
  restart(world, name);
  return name;
}

}  // namespace penstock::coordinator::testing
