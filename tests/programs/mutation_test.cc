// Valid programs of every family, and random ones, with one to three pieces of damage: the verifier never
// accepts what the separate checker refuses. A sample by default, a million with PENSTOCK_TEST_SCALE=full.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <string>

#include "plan/schedule/families.h"
#include "plan/schedule/lowered.h"
#include "plan/schedule/post_validation.h"
#include "plan/verification/testing/random_programs.h"
#include "plan/verification/verify.h"
#include "tests/programs/checker.h"
#include "tests/programs/mutations.h"

namespace penstock::plan {
namespace {

using checking::check;
using checking::Checked;
using judging::draw;
using judging::Random;

constexpr int kParts = 20;  // of each kind, none of which takes long

int mutations_of_a_part() {
  const char* scale = std::getenv("PENSTOCK_TEST_SCALE");
  return scale != nullptr && std::string(scale) == "full" ? 25'000 : 500;
}

const std::vector<ComputeProgram>& programs_of_all_families() {
  static const std::vector<ComputeProgram> programs = [] {
    struct Shape {
      int ranks, microbatches, stages_per_rank;
    };
    std::vector<ComputeProgram> all;
    for (const std::string& name : schedule_names()) {
      for (const Shape shape :
           {Shape{1, 2, 1}, {2, 2, 1}, {3, 4, 1}, {4, 3, 1}, {2, 2, 2}, {3, 2, 2}, {4, 4, 2}}) {
        StatusOr<ComputeProgram> program = generate({.name = name,
                                                     .ranks = shape.ranks,
                                                     .microbatches = shape.microbatches,
                                                     .stages_per_rank = shape.stages_per_rank});
        if (program.ok()) all.push_back(*std::move(program));
      }
    }
    return all;
  }();
  return programs;
}

ComputeProgram draw_program(Random& random) {
  const auto& all = programs_of_all_families();
  if (draw(random, 4) == 0) return judging::random_program(random);
  return all[draw(random, static_cast<int>(all.size()))];
}

const std::vector<LoweredProgram>& lowered_programs_of_all_families() {
  static const std::vector<LoweredProgram> programs = [] {
    std::vector<LoweredProgram> all;
    for (const ComputeProgram& program : programs_of_all_families()) {
      for (const Posting posting : {Posting::Early, Posting::InQueueOrder})
        all.push_back(*lower(program, {2, 2, posting}));
      if (why_not_post_validated(program).empty())
        all.push_back(*lower(program, {2, 2, Posting::Early, StepRule::PostValidated}));
    }
    return all;
  }();
  return programs;
}

LoweredProgram draw_lowered_program(Random& random) {
  const auto& all = lowered_programs_of_all_families();
  if (draw(random, 4) > 0) return all[draw(random, static_cast<int>(all.size()))];
  if (draw(random, 2) == 0) {
    return *lower(judging::random_flat_program(random),
                  {1 + draw(random, 3), 1 + draw(random, 2), Posting::Early, StepRule::PostValidated});
  }
  const Posting posting = draw(random, 2) == 0 ? Posting::Early : Posting::InQueueOrder;
  return *lower(judging::random_program(random), {1 + draw(random, 3), 1 + draw(random, 2), posting});
}

std::string first_violation(const Verdict& verdict) {
  return verdict.valid() ? "" : verdict.violations.front().to_string();
}

class Mutation : public testing::TestWithParam<int> {
 protected:
  uint64_t seed_of(int index) const {
    return static_cast<uint64_t>(GetParam()) * 1'000'000 + static_cast<uint64_t>(index);
  }

  void TearDown() override {
    std::cout << fmt::format("part {}: {} accepted by both, {} refused\n", GetParam(), accepted_, refused_);
    // Both outcomes must occur, or the test shows nothing.
    EXPECT_GT(accepted_, mutations_of_a_part() / 50);
    EXPECT_GT(refused_, mutations_of_a_part() / 4);
  }

  int accepted_ = 0;
  int refused_ = 0;
};

// Lowered programs carry counts, digests and slots of their links that only the verifier holds them to.
class LoweredMutation : public Mutation {
 protected:
  void TearDown() override {
    Mutation::TearDown();
    EXPECT_GT(refused_by_both_, 4 * refused_by_verifier_only_);
  }

  int refused_by_both_ = 0;
  int refused_by_verifier_only_ = 0;
};

TEST_P(Mutation, verifier_and_checker_agree_on_compute_programs) {
  for (int index = 0; index < mutations_of_a_part(); ++index) {
    Random random(seed_of(index));
    ComputeProgram program = draw_program(random);
    for (int pieces = draw(random, 3); pieces >= 0; --pieces) checking::mutate(program, random);
    const Verdict verdict = verify(program);
    const std::string checked = check(program);
    ASSERT_EQ(verdict.valid(), checked.empty())
        << "seed " << seed_of(index) << " " << program.schedule << "\nverifier: " << first_violation(verdict)
        << "\nchecker: " << checked;
    ++(verdict.valid() ? accepted_ : refused_);
  }
}

TEST_P(LoweredMutation, what_the_verifier_accepts_of_lowered_programs_the_checker_accepts) {
  for (int index = 0; index < mutations_of_a_part(); ++index) {
    Random random(seed_of(index));
    LoweredProgram program = draw_lowered_program(random);
    for (int pieces = draw(random, 3); pieces >= 0; --pieces) checking::mutate(program, random);
    if (draw(random, 4) > 0) checking::describe_links_again(program);
    const Verdict verdict = verify(program);
    ++(verdict.valid() ? accepted_ : refused_);
    // Of what the verifier refuses, a part is enough to show that the checker refuses at all.
    if (!verdict.valid() && index % 8 != 0) continue;
    const Checked checked = check(program);
    if (!verdict.valid()) {
      const bool is_refused = !checked.why.empty() || !checked.rendezvous;
      ++(is_refused ? refused_by_both_ : refused_by_verifier_only_);
      continue;
    }
    ASSERT_EQ(checked.why, "") << "seed " << seed_of(index);
    ASSERT_TRUE(checked.buffered && checked.rendezvous) << "seed " << seed_of(index);
    ASSERT_EQ(verdict.holds.in_order_queue, checked.in_order_queue) << "seed " << seed_of(index);
  }
}

INSTANTIATE_TEST_SUITE_P(Parts, Mutation, testing::Range(0, kParts));
INSTANTIATE_TEST_SUITE_P(Parts, LoweredMutation, testing::Range(0, kParts));

// The families' programs, unharmed: if the checker refused those, agreement above would show little.
TEST(Checker, accepts_the_programs_of_every_family) {
  for (const ComputeProgram& program : programs_of_all_families())
    EXPECT_EQ(check(program), "") << program.schedule;
  for (const LoweredProgram& program : lowered_programs_of_all_families()) EXPECT_EQ(check(program).why, "");
}

}  // namespace
}  // namespace penstock::plan
