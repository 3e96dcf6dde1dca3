#include "coordinator/core/assignment/assignment.h"

#include <gmock/gmock.h>

#include <set>

#include "coordinator/core/testing/world.h"
#include "plan/verification/verify.h"

namespace penstock::coordinator {
namespace {

using namespace testing;  // job_spec and its words
using ::testing::HasSubstr;

TEST(Assignment, plan_of_every_schedule_verifies_rank_by_rank) {
  for (const char* schedule : {"naive", "gpipe", "1f1b", "interleaved-1f1b"}) {
    SCOPED_TRACE(schedule);
    const auto spec = job_spec({.pipeline = 3, .schedule = schedule});
    const auto plan = plan_attempt(*spec);
    ASSERT_TRUE(plan.ok()) << plan.status();
    ASSERT_EQ((*plan)->program.ranks.size(), 3u);
    EXPECT_TRUE((*plan)->program.bit_identical);
    EXPECT_EQ((*plan)->loss_ranks, std::vector<RankIndex>{RankIndex(2)});
    for (int rank = 0; rank < 3; ++rank) {
      const Assignment assignment = make_assignment(
          *spec, **plan, {.attempt = {"tiny", 1, 1}, .rank = RankIndex(rank), .rank_hosts = {"a", "a", "b"}});
      EXPECT_TRUE(plan::verify(assignment.program).valid());
      EXPECT_EQ(assignment.program.rank, RankIndex(rank));
      EXPECT_EQ(assignment.split, spec->parallel.split);
    }
  }
}

TEST(Assignment, without_a_flush_a_program_spans_the_updates_between_drains_and_its_versions_are_predicted) {
  for (const char* schedule : {"pipedream", "pipedream-2bw"}) {
    SCOPED_TRACE(schedule);
    const auto planned = [&](int flush_every) {
      return *plan_attempt(*job_spec({.pipeline = 3,
                                      .steps = 20,
                                      .schedule = fmt::format("{}, flush_every: {}", schedule, flush_every),
                                      .train = ", optimizer: {clip_grad_norm: 0}"}));
    };
    const auto plan = planned(10), drained = planned(1);
    EXPECT_EQ(plan->program.ranks[0].updates, 10);
    EXPECT_TRUE(plan->program.bit_identical);
    EXPECT_GT(plan->memory[0].total(), drained->memory[0].total());
  }
}

TEST(Assignment, program_of_a_file_is_proved_and_need_not_accumulate_in_order) {
  // Its owner knows the order; gpipe with the last microbatch first.
  const auto brought = [](const std::string& first, const std::string& second) {
    return job_spec(
        {.schedule = fmt::format("{{file: mine.csv, program: [\"{}\", \"{}\"]}}", first, second)});
  };
  const auto plan =
      plan_attempt(*brought("0F0 0F1 0F2 0F3 0B3 0B2 0B1 0B0", "1F0 1F1 1F2 1F3 1B3 1B2 1B1 1B0"));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_FALSE((*plan)->program.bit_identical);
  EXPECT_EQ((*plan)->loss_ranks, std::vector<RankIndex>{RankIndex(1)});

  const auto circle =
      plan_attempt(*brought("0F0 0B0 0F1 0B1 0F2 0B2 0F3 0B3", "1F1 1B1 1F0 1B0 1F2 1B2 1F3 1B3"));
  EXPECT_EQ(circle.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(message(circle.status()), HasSubstr("schedule file:mine.csv does not verify:\ndeadlock: rank"));
  const auto short_one = plan_attempt(*brought("0F0 0B0", "1F0 1B0"));
  EXPECT_THAT(message(short_one.status()), HasSubstr("complete: rank 0 0F1: is missing"));
}

TEST(Assignment, schedule_that_is_known_by_another_order_of_sums_is_what_was_asked_for) {
  const auto plan = plan_attempt(*job_spec({.schedule = "gpipe-lifo"}));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_FALSE((*plan)->program.bit_identical);
}

TEST(Assignment, both_ends_of_a_link_get_the_same_digest) {
  const auto plan = *plan_attempt(*job_spec({.pipeline = 3}));
  std::map<std::pair<RankIndex, RankIndex>, std::set<uint64_t>> digests;
  for (const plan::RankProgram& rank : plan->program.ranks) {
    for (const plan::Link& link : rank.links) {
      digests[{link.source, link.target}].insert(link.digest);
      EXPECT_EQ(plan::transfer_digest(rank, link.source, link.target), link.digest);
    }
  }
  EXPECT_EQ(digests.size(), 4u);
  for (const auto& [ends, values] : digests) EXPECT_EQ(values.size(), 1u);
}

TEST(Assignment, planned_stages_say_what_is_known_and_nothing_else) {
  const auto spec = job_spec({});
  const auto stages = planned_stages(*spec, **plan_attempt(*spec), {"worker-a", "worker-b"});
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(stages[0].worker, "worker-a");
  EXPECT_EQ(stages[0].layers.front(), "embedding");
  EXPECT_EQ(stages[1].layers.back(), "head");
  EXPECT_EQ(stages[0].activation_slots, 2);
  EXPECT_GT(*stages[0].memory_predicted_bytes, 0);
  EXPECT_FALSE(stages[0].forward_ms.has_value());
  EXPECT_FALSE(stages[0].memory_peak_bytes.has_value());
}

TEST(Assignment, job_that_needs_more_than_its_memory_budget_is_refused_at_submit) {
  const auto refused = check_job(job_yaml({}) + "memory_budget: 1KB\n");
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(message(refused.status()), HasSubstr("rank"));
}

TEST(Assignment, checked_job_says_what_it_will_be) {
  const auto checked = check_job(job_yaml({}));
  ASSERT_TRUE(checked.ok()) << checked.status();
  EXPECT_EQ(checked->outcome.name, "tiny");
  EXPECT_EQ(checked->outcome.ranks, 2);
  EXPECT_EQ(checked->outcome.stage_items, (std::vector<std::string>{"embedding 0 1", "2 3 head"}));
}

}  // namespace
}  // namespace penstock::coordinator
