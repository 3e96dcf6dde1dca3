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
  plan::ModelSpec model = testing::job_spec({})->model;
  std::vector<ParameterDigest> digests;
};

TEST_F(WeightsDigestTest, does_not_depend_on_who_sent_what_when) {
  // Any split over ranks must give the same digest of the same weights.
  const std::string digest = *combine_digests(model, digests);
  std::shuffle(digests.begin(), digests.end(), std::mt19937(1));
  EXPECT_EQ(*combine_digests(model, digests), digest);
  EXPECT_EQ(digest.size(), 32u);
}

TEST_F(WeightsDigestTest, any_bit_of_any_parameter_changes_it) {
  const std::string digest = *combine_digests(model, digests);
  for (ParameterDigest& one : digests) {
    one.digest[15] ^= 1;
    EXPECT_NE(*combine_digests(model, digests), digest);
    one.digest[15] ^= 1;
  }
  model.intermediate_size += 2;
  EXPECT_NE(*combine_digests(model, digests), digest);
}

TEST_F(WeightsDigestTest, missing_repeated_and_unknown_parameters_are_refused_by_name) {
  const ParameterDigest last = digests.back();
  digests.pop_back();
  EXPECT_THAT(message(combine_digests(model, digests).status()),
              HasSubstr("lm_head.weight: no rank sent it"));
  digests.push_back(digests.front());
  EXPECT_THAT(message(combine_digests(model, digests).status()),
              HasSubstr("model.embed_tokens.weight: expected from one rank, found from two"));
  digests.back() = last;
  digests.push_back({9999, {}});
  EXPECT_THAT(message(combine_digests(model, digests).status()), HasSubstr("found 9999"));
  digests.back().parameter = -1;
  EXPECT_FALSE(combine_digests(model, digests).ok());
}

TEST_F(WeightsDigestTest, replicas_must_agree_and_count_once) {
  // Two ranks that drift apart train two models; the job must not look as if it had one.
  const std::string digest = *combine_digests(model, digests);
  std::vector<ParameterDigest> twice = digests;
  twice.insert(twice.end(), digests.begin(), digests.end());
  EXPECT_EQ(*combine_digests(model, twice, 2), digest);
  twice.back().digest[3] ^= 1;
  EXPECT_THAT(message(combine_digests(model, twice, 2).status()),
              HasSubstr("lm_head.weight: its two replicas ended with different bits"));
  twice.pop_back();
  EXPECT_THAT(message(combine_digests(model, twice, 2).status()),
              HasSubstr("lm_head.weight: expected from two ranks, found from one"));
  twice.push_back(digests.front());
  EXPECT_THAT(message(combine_digests(model, twice, 2).status()),
              HasSubstr("model.embed_tokens.weight: expected from two ranks, found from three"));
}

}  // namespace
}  // namespace penstock::coordinator
