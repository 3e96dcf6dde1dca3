// Trains a chain of scalar stages with the weight versions that lowering writes down, and compares the weights
// at the end with those of the papers' recurrences.
#include <gtest/gtest.h>

#include <map>

#include "plan/schedule/families.h"
#include "plan/schedule/lowered.h"
#include "plan/schedule/testing/expected_async.h"

namespace penstock::plan {
namespace {

using plan::testing::kLearningRate;
using plan::testing::kSamples;
using plan::testing::kTrained;
using plan::testing::Sample;
using plan::testing::Trained;

// Stage s multiplies by its weight. One stage a rank, whole backwards.
class ScalarChain {
 public:
  explicit ScalarChain(const LoweredProgram& program) : program_(program), ranks_(program.ranks.size()) {
    for (size_t rank = 0; rank < ranks_.size(); ++rank)
      ranks_[rank].versions[0] = 1.0 + static_cast<double>(rank) / 20;
  }

  std::vector<double> train() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank < ranks_.size(); ++rank) {
        const auto& instructions = program_.ranks[rank].instructions;
        while (ranks_[rank].next < instructions.size() &&
               runs(static_cast<int>(rank), instructions[ranks_[rank].next])) {
          ++ranks_[rank].next;
          moved = true;
        }
      }
    }
    std::vector<double> weights;
    for (const Rank& rank : ranks_) weights.push_back(rank.versions.rbegin()->second);
    return weights;
  }

 private:
  struct Rank {
    size_t next = 0;
    std::map<int, double> versions;  // every version that was ever made
    double gradient = 0;             // of the update under way
  };

  bool runs(int stage, const Instruction& instruction) {
    Rank& rank = ranks_[stage];
    if (instruction.kind == InstructionKind::OptimizerStep) {
      const double mean = rank.gradient / program_.ranks[stage].microbatches;
      const double newest = rank.versions.rbegin()->second;
      rank.versions[instruction.update + 1] = newest - kLearningRate * mean;
      rank.gradient = 0;
      return true;
    }
    if (instruction.kind != InstructionKind::Compute) return true;
    const int k = instruction.work.microbatch.value;
    const double weight = rank.versions.at(instruction.weight_version);
    return instruction.work.kind == ActionKind::Forward ? forward(stage, k, weight)
                                                        : backward(stage, k, weight);
  }

  bool forward(int stage, int k, double weight) {
    if (stage == 0) inputs_[{stage, k}] = kSamples[k].input;
    const auto input = inputs_.find({stage, k});
    if (input == inputs_.end()) return false;
    inputs_[{stage + 1, k}] = weight * input->second;
    return true;
  }

  bool backward(int stage, int k, double weight) {
    const int last = static_cast<int>(ranks_.size()) - 1;
    if (stage == last) gradients_[{stage, k}] = inputs_.at({stage + 1, k}) - kSamples[k].target;
    const auto gradient = gradients_.find({stage, k});
    if (gradient == gradients_.end()) return false;
    ranks_[stage].gradient += gradient->second * inputs_.at({stage, k});
    gradients_[{stage - 1, k}] = gradient->second * weight;
    return true;
  }

  const LoweredProgram& program_;
  std::vector<Rank> ranks_;
  std::map<std::pair<int, int>, double> inputs_;     // [stage, microbatch]
  std::map<std::pair<int, int>, double> gradients_;  // with respect to the stage's output
};

LoweredProgram lowered(const ScheduleRequest& request) {
  return *lower(*generate(request));
}

TEST(AsynchronousWeights, are_those_of_the_recurrences) {
  for (const Trained& trained : kTrained) {
    SCOPED_TRACE(fmt::format("{} P={} m={} updates={}", trained.schedule, trained.ranks, trained.microbatches,
                             trained.updates));
    const LoweredProgram program = lowered({.name = trained.schedule,
                                            .ranks = trained.ranks,
                                            .microbatches = trained.microbatches,
                                            .updates = trained.updates});
    const std::vector<double> weights = ScalarChain(program).train();
    ASSERT_EQ(weights.size(), trained.weights.size());
    for (size_t stage = 0; stage < weights.size(); ++stage)
      EXPECT_NEAR(weights[stage], trained.weights[stage], 1e-12) << "stage " << stage;
  }
}

// Versions of the forwards of a rank, in order.
std::vector<int> forward_versions(const RankProgram& rank) {
  std::vector<int> versions;
  for (const Instruction& instruction : rank.instructions) {
    if (instruction.kind == InstructionKind::Compute && instruction.work.kind == ActionKind::Forward)
      versions.push_back(instruction.weight_version);
  }
  return versions;
}

TEST(AsynchronousWeights, pipedream_computes_input_k_of_stage_s_with_the_published_version) {
  const int ranks = 5, n = 20;
  const LoweredProgram program =
      lowered({.name = "pipedream", .ranks = ranks, .microbatches = 1, .updates = n});
  for (int stage = 0; stage < ranks; ++stage) {
    const std::vector<int> versions = forward_versions(program.ranks[stage]);
    for (int k = 0; k < n; ++k) EXPECT_EQ(versions[k], std::max(0, k - (ranks - 1 - stage))) << stage << k;
  }
}

TEST(AsynchronousWeights, pipedream_2bw_computes_with_the_weights_of_the_step_before) {
  for (const int m : {1, 2, 4, 8}) {
    const LoweredProgram program =
        lowered({.name = "pipedream-2bw", .ranks = 4, .microbatches = m, .updates = 5});
    for (const RankProgram& rank : program.ranks) {
      const std::vector<int> versions = forward_versions(rank);
      for (int k = 0; k < 5 * m; ++k) EXPECT_EQ(versions[k], std::max(k / m - 1, 0)) << m << k;
    }
  }
}

}  // namespace
}  // namespace penstock::plan
