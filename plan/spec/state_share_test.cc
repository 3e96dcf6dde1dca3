#include "plan/spec/state_share.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace penstock::plan {
namespace {

JobSpec job_of(int expert, int data, bool sharded) {
  JobSpec job;
  job.model.vocab_size = 64;
  job.model.hidden_size = 16;
  job.model.num_hidden_layers = 3;
  job.model.num_attention_heads = 2;
  job.model.num_key_value_heads = 2;
  job.model.intermediate_size = 24;
  job.model.moe.num_experts = 4;
  job.model.moe.num_experts_per_tok = 2;
  job.model.moe.moe_intermediate_size = 8;
  job.model.moe.layers = {0, 2};
  job.parallel.expert = expert;
  job.parallel.data = data;
  job.parallel.shard_optimizer = sharded;
  return job;
}

struct Held {
  int has_moments = 0;
  int writes_weight = 0;
  int writes_moments = 0;
};

// How many ranks of a stage, which has the whole model, do what with each parameter.
std::map<int32_t, Held> held_by_all(const JobSpec& job) {
  std::map<int32_t, Held> held;
  for (int pipeline = 0; pipeline < job.parallel.pipelines(); ++pipeline) {
    const RankPlace place = place_of_rank(job.parallel, RankIndex(pipeline));
    const auto parameters = parameters_of(job.model, model_items(job.model), experts_at(job, place));
    const std::vector<StateShare> shares = state_shares(job, place, parameters);
    for (size_t i = 0; i < parameters.size(); ++i) {
      Held& counts = held[parameters[i].index];
      counts.has_moments += shares[i].has_moments;
      counts.writes_weight += shares[i].writes_weight;
      counts.writes_moments += shares[i].writes_moments;
    }
  }
  return held;
}

TEST(StateShare, everything_is_written_once_however_the_ranks_stand) {
  for (const bool sharded : {false, true}) {
    for (const auto& [expert, data] : {std::pair{1, 1}, {2, 1}, {1, 3}, {2, 3}, {4, 2}}) {
      const JobSpec job = job_of(expert, data, sharded);
      const auto parameters = model_parameters(job.model);
      const auto held = held_by_all(job);
      ASSERT_EQ(held.size(), parameters.size());
      for (const auto& [index, counts] : held) {
        const ParameterSpec& parameter = parameters[static_cast<size_t>(index)];
        const int holders = parameter.is_dense() ? expert * data : data;
        EXPECT_EQ(counts.writes_weight, 1) << parameter.name;
        EXPECT_EQ(counts.writes_moments, 1) << parameter.name;
        EXPECT_EQ(counts.has_moments, sharded ? 1 : holders) << parameter.name;
      }
    }
  }
}

TEST(StateShare, ranks_of_a_group_name_the_same_owners) {
  // Each sends what it owns and receives the rest: two answers would hang.
  const JobSpec job = job_of(2, 3, true);
  std::map<int32_t, RankIndex> dense;
  std::map<std::pair<int, int32_t>, RankIndex> experts;
  for (int pipeline = 0; pipeline < 6; ++pipeline) {
    const RankPlace place = place_of_rank(job.parallel, RankIndex(pipeline));
    const auto parameters = parameters_of(job.model, model_items(job.model), experts_at(job, place));
    const std::vector<StateShare> shares = state_shares(job, place, parameters);
    for (size_t i = 0; i < parameters.size(); ++i) {
      const RankIndex owner = shares[i].owner;
      const bool is_dense = parameters[i].is_dense();
      ASSERT_LT(owner.value, is_dense ? 6 : 3);
      const RankIndex first =
          is_dense ? dense.emplace(parameters[i].index, owner).first->second
                   : experts.emplace(std::pair(place.expert_rank, parameters[i].index), owner).first->second;
      EXPECT_EQ(owner, first) << parameters[i].name;
    }
  }
}

TEST(StateShare, no_rank_has_more_than_the_largest_above_another) {
  const JobSpec job = job_of(1, 3, true);
  std::vector<int64_t> elements(3);
  int64_t largest = 0;
  for (int pipeline = 0; pipeline < 3; ++pipeline) {
    const RankPlace place = place_of_rank(job.parallel, RankIndex(pipeline));
    const auto parameters = parameters_of(job.model, model_items(job.model));
    const std::vector<StateShare> shares = state_shares(job, place, parameters);
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (!parameters[i].is_dense()) continue;
      if (shares[i].has_moments) elements[static_cast<size_t>(pipeline)] += parameters[i].elements();
      largest = std::max(largest, parameters[i].elements());
    }
  }
  const auto [least, most] = std::minmax_element(elements.begin(), elements.end());
  EXPECT_GT(*least, 0);
  EXPECT_LE(*most - *least, largest);
}

}  // namespace
}  // namespace penstock::plan
