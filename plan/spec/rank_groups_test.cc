#include "plan/spec/rank_groups.h"

#include <gmock/gmock.h>

#include <set>

#include "plan/spec/rank_place.h"

namespace penstock::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ParallelSpec degrees(int pipeline, int expert, int data) {
  ParallelSpec parallel;
  parallel.pipeline = pipeline;
  parallel.expert = expert;
  parallel.data = data;
  return parallel;
}

std::vector<int64_t> numbers(const RankGroup& group) {
  std::vector<int64_t> numbers;
  for (const RankIndex rank : group.ranks) numbers.push_back(rank.value);
  return numbers;
}

TEST(RankGroups, of_two_by_two_by_three_ranks_are_these) {
  // By hand: rank = pipeline_rank x 6 + data_rank x 2 + expert_rank.
  const ParallelSpec parallel = degrees(2, 2, 3);
  EXPECT_THAT(numbers(pipeline_group(parallel, 3)), ElementsAre(3, 9));
  EXPECT_THAT(numbers(data_group(parallel, RankIndex(1))), ElementsAre(6, 7, 8, 9, 10, 11));
  EXPECT_THAT(numbers(expert_model_group(parallel, RankIndex(1), 2)), ElementsAre(10, 11));
  EXPECT_THAT(numbers(expert_data_group(parallel, RankIndex(1), 1)), ElementsAre(7, 9, 11));
  EXPECT_EQ(pipeline_group(parallel, 3).member(RankIndex(9)), RankIndex(1));
  EXPECT_FALSE(pipeline_group(parallel, 3).member(RankIndex(8)).is_set());
}

TEST(RankGroups, every_rank_stands_in_one_group_of_each_kind_and_is_found_by_its_name) {
  for (const ParallelSpec& parallel :
       {degrees(1, 1, 1), degrees(3, 2, 1), degrees(2, 1, 3), degrees(2, 4, 2)}) {
    std::set<std::pair<std::string, int64_t>> seen;
    for (int r = 0; r < parallel.pipeline * parallel.pipelines(); ++r) {
      const RankPlace place = place_of_rank(parallel, RankIndex(r));
      const RankGroup groups[] = {pipeline_group(parallel, place.pipeline),
                                  data_group(parallel, place.pipeline_rank),
                                  expert_model_group(parallel, place.pipeline_rank, place.data_rank),
                                  expert_data_group(parallel, place.pipeline_rank, place.expert_rank)};
      const RankIndex members[] = {place.pipeline_rank, RankIndex(place.pipeline),
                                   RankIndex(place.expert_rank), RankIndex(place.data_rank)};
      for (size_t i = 0; i < std::size(groups); ++i) {
        EXPECT_EQ(groups[i].member(RankIndex(r)), members[i]) << groups[i].name << " rank " << r;
        const auto named = group_named(parallel, groups[i].name);
        ASSERT_TRUE(named.ok()) << named.status();
        EXPECT_EQ(named->ranks, groups[i].ranks) << groups[i].name;
      }
    }
  }
}

TEST(RankGroups, names_of_no_group_are_refused) {
  const ParallelSpec parallel = degrees(2, 2, 3);
  for (const char* name : {"", "pipeline", "pipeline 6", "pipeline -1", "pipeline 1.0", "data 2", "data 0.0",
                           "expert-model 0", "expert-model 0.3", "expert-model 2.0", "expert-data 0.2",
                           "experts 0.0", "data", "data 0 ", "expert-model 0.x"}) {
    EXPECT_THAT(
        message(group_named(parallel, name).status()),
        HasSubstr("of 2 x 2 x 3 ranks (pipeline x expert x data), found \"" + std::string(name) + "\""));
  }
  EXPECT_TRUE(group_named(degrees(4, 1, 1), "pipeline").ok());
}

}  // namespace
}  // namespace penstock::plan
