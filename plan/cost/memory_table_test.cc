#include "plan/cost/memory_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/schedule/families.h"

namespace penstock::plan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kGigabyte = 1'000'000'000;

MemoryTable table_of(const std::string& name, const MemoryAssumptions& assumptions) {
  const ComputeProgram program =
      *generate({.name = name, .ranks = 4, .microbatches = 8, .stages_per_rank = 2});
  return *memory_table(peak_activations_per_rank(program, true), assumptions);
}

std::vector<int64_t> gigabytes(const MemoryTable& table) {
  std::vector<int64_t> of_ranks;
  for (const MemoryRow& row : table.rows) of_ranks.push_back(row.bytes / kGigabyte);
  return of_ranks;
}

std::vector<bool> fits(const MemoryTable& table) {
  std::vector<bool> of_ranks;
  for (const MemoryRow& row : table.rows) of_ranks.push_back(row.fits);
  return of_ranks;
}

// 12 GB of training state, 10 GB a copy, 80 GB devices, PP = 4, eight microbatches: the published example.
const MemoryAssumptions kPublished{{10 * kGigabyte}, {12 * kGigabyte}, {80 * kGigabyte}};

TEST(MemoryTable, interleaved_1f1b_fits_on_the_last_rank_only) {
  const MemoryTable table = table_of("interleaved-1f1b", kPublished);
  EXPECT_THAT(gigabytes(table), ElementsAre(122, 102, 82, 62));
  EXPECT_THAT(fits(table), ElementsAre(false, false, false, true));
  EXPECT_FALSE(table.fits);
  EXPECT_EQ(table.smallest_budget, 122 * kGigabyte);
}

TEST(MemoryTable, placement_in_a_v_fits_on_every_rank) {
  const MemoryTable table = table_of("1f1b-v", kPublished);
  EXPECT_THAT(gigabytes(table), ElementsAre(72, 72, 72, 72));
  EXPECT_TRUE(table.fits);
}

TEST(MemoryTable, smallest_budget_fits_and_a_byte_less_does_not) {
  MemoryAssumptions assumptions = kPublished;
  assumptions.budget_bytes = {122 * kGigabyte};
  EXPECT_TRUE(table_of("interleaved-1f1b", assumptions).fits);
  assumptions.budget_bytes = {122 * kGigabyte - 1};
  EXPECT_THAT(fits(table_of("interleaved-1f1b", assumptions)), ElementsAre(false, true, true, true));
}

TEST(MemoryTable, ranks_may_have_state_and_budgets_of_their_own) {
  // One rank with the large embedding runs out of memory, not the average (sail-sg/zero-bubble-pipeline-parallelism issue 8).
  const std::vector<int> peaks = {2, 2};
  const auto table = memory_table(peaks, {{10}, {50, 5}, {69, 25}});
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(fits(*table), ElementsAre(false, true));
  EXPECT_TRUE(memory_table(peaks, {{10}, {50, 5}, {}})->fits);
}

TEST(MemoryTable, assumptions_that_make_no_sense_are_refused_by_field) {
  const std::vector<int> peaks = {2, 2, 2};
  const auto refusal = [&](const MemoryAssumptions& assumptions) {
    const auto table = memory_table(peaks, assumptions);
    EXPECT_EQ(table.status().code(), StatusCode::kInvalidArgument);
    return message(table.status());
  };
  EXPECT_THAT(refusal({{}, {0}, {}}),
              HasSubstr("bytes_per_activation: expected one value for all ranks, or 3"));
  EXPECT_THAT(refusal({{1}, {1, 2}, {}}), HasSubstr("static_bytes: expected one value for all ranks, or 3"));
  EXPECT_THAT(refusal({{1}, {0}, {-1}}), HasSubstr("memory_budget: expected 0 or more, found -1"));
  EXPECT_THAT(refusal({{INT64_MAX}, {0}, {}}), HasSubstr("more than can be counted"));
  EXPECT_THAT(refusal({{1}, {INT64_MAX}, {}}), HasSubstr("more than can be counted"));
}

}  // namespace
}  // namespace penstock::plan
