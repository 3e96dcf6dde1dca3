#include "coordinator/core/digest/weights_digest.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "coordinator/core/testing/world.h"

namespace penstock::coordinator {
namespace {

using ::testing::HasSubstr;

class WeightsDigestTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const plan::ParameterSpec& parameter : plan::model_parameters(model)) {
      digests.push_back({parameter.index, {static_cast<uint8_t>(parameter.index), 7}});
    }
  }
  // All of it on one rank.
  StatusOr<std::string> combined() const { return combine_digests(model, std::vector<std::vector<ParameterDigest>>{digests}); }

  plan::ModelSpec model = testing::job_spec({})->model;
  std::vector<ParameterDigest> digests;
};

TEST_F(WeightsDigestTest, does_not_depend_on_who_sent_what_when) {
  // Any split over ranks must give the same digest of the same weights.
  const std::string digest = *combined();
  std::shuffle(digests.begin(), digests.end(), std::mt19937(1));
  EXPECT_EQ(*combined(), digest);
  const std::vector<std::vector<ParameterDigest>> shared_out = {
      {digests.begin(), digests.begin() + 5}, {}, {digests.begin() + 5, digests.end()}};
  EXPECT_EQ(*combine_digests(model, shared_out), digest);
  EXPECT_EQ(digest.size(), 32u);
}

TEST_F(WeightsDigestTest, any_bit_of_any_parameter_changes_it) {
  const std::string digest = *combined();
  for (ParameterDigest& one : digests) {
    one.digest[15] ^= 1;
    EXPECT_NE(*combined(), digest);
    one.digest[15] ^= 1;
  }
  model.intermediate_size += 2;
  EXPECT_NE(*combined(), digest);
}

TEST_F(WeightsDigestTest, missing_repeated_and_unknown_parameters_are_refused_by_name) {
  const ParameterDigest last = digests.back();
  digests.pop_back();
  EXPECT_THAT(message(combined().status()), HasSubstr("lm_head.weight: no rank sent it"));
  digests.push_back(digests.front());
  EXPECT_THAT(message(combined().status()),
              HasSubstr("model.embed_tokens.weight: expected from one rank, found from 2 ranks"));
  digests.back() = last;
  digests.push_back({9999, {}});
  EXPECT_THAT(message(combined().status()), HasSubstr("parameter of rank 0: expected 0 to 38, found 9999"));
  digests.back().parameter = -1;
  EXPECT_FALSE(combined().ok());
}

TEST_F(WeightsDigestTest, replicas_must_agree_and_count_once) {
  // Two ranks that drift apart train two models; the job must not look as if it had one.
  const std::string digest = *combined();
  std::vector<std::vector<ParameterDigest>> twice = {digests, digests};
  EXPECT_EQ(*combine_digests(model, twice, {.of_dense = 2}), digest);
  twice[1].back().digest[3] ^= 1;
  EXPECT_THAT(message(combine_digests(model, twice, {.of_dense = 2}).status()),
              HasSubstr("lm_head.weight: ranks 0 and 1 ended with different bits of it"));
  twice[1].pop_back();
  EXPECT_THAT(message(combine_digests(model, twice, {.of_dense = 2}).status()),
              HasSubstr("lm_head.weight: expected from 2 ranks, found from one rank"));
  twice.push_back({digests.front()});
  EXPECT_THAT(message(combine_digests(model, twice, {.of_dense = 2}).status()),
              HasSubstr("model.embed_tokens.weight: expected from 2 ranks, found from 3 ranks"));
}

TEST_F(WeightsDigestTest, experts_come_from_fewer_ranks_than_what_is_dense) {
  // Four ranks of a stage, experts shared out among two: each expert stands on two of them, the rest on all.
  model.moe = {.num_experts = 4, .num_experts_per_tok = 2, .moe_intermediate_size = 16, .layers = {1}};
  std::vector<std::vector<ParameterDigest>> ranks(4);
  std::vector<ParameterDigest> once;
  for (const plan::ParameterSpec& parameter : plan::model_parameters(model)) {
    const ParameterDigest digest{parameter.index, {static_cast<uint8_t>(parameter.index), 7}};
    once.push_back(digest);
    for (size_t rank = 0; rank < 4; ++rank) {
      const bool holds = parameter.expert < 0 || parameter.expert / 2 == static_cast<int64_t>(rank % 2);
      if (holds) ranks[rank].push_back(digest);
    }
  }
  const ReplicaCounts replicas{.of_dense = 4, .of_experts = 2};
  EXPECT_EQ(*combine_digests(model, ranks, replicas), *combine_digests(model, std::vector<std::vector<ParameterDigest>>{once}));
  const auto expert = std::find_if(ranks[3].begin(), ranks[3].end(), [&](const ParameterDigest& digest) {
    return plan::model_parameters(model)[static_cast<size_t>(digest.parameter)].expert == 2;
  });
  ASSERT_NE(expert, ranks[3].end());
  expert->digest[0] ^= 1;
  EXPECT_THAT(
      message(combine_digests(model, ranks, replicas).status()),
      HasSubstr("model.layers.1.mlp.experts.2.gate_proj.weight: ranks 1 and 3 ended with different bits"));
  ranks[3].erase(expert);
  EXPECT_THAT(message(combine_digests(model, ranks, replicas).status()),
              HasSubstr("experts.2.gate_proj.weight: expected from 2 ranks, found from one rank"));
}

}  // namespace
}  // namespace penstock::coordinator
