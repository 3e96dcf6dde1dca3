#include "plan/spec/parameter_count.h"

#include <gtest/gtest.h>

#include "plan/spec/parameters.h"
#include "plan/spec/rank_place.h"

namespace penstock::plan {
namespace {

JobSpec job(const std::string& parallel, const std::string& model = "") {
  const StatusOr<JobSpec> spec = parse_job_spec(
      "name: a\n"
      "model: {vocab_size: 300, hidden_size: 8, num_hidden_layers: 2, num_attention_heads: 2, num_key_value_heads: 1,\n"
      "        intermediate_size: 16, max_position_embeddings: 8" +
      model +
      ",\n        moe: {num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 8, layers: [1]}}\n"
      "data: {source: /a.txt, sequence_length: 8}\n"
      "train: {steps: 1, global_batch_size: 16, microbatch_size: 1}\n"
      "parallel: {" +
      parallel + "}\n");
  EXPECT_TRUE(spec.ok()) << spec.status();
  return *spec;
}

// By hand: embedding and head 300 x 8 each; a block's norms 2 x 8, q and o 8 x 8, k and v 4 x 8: 208; the MLP of block 0
// 3 x 8 x 16 = 384; of block 1 the router 4 x 8 and four experts of 3 x 8 x 8 = 192; the final norm 8.
constexpr int64_t kDense = 2 * 2400 + 2 * 208 + 384 + 32 + 8;
constexpr int64_t kExperts = 4 * 192;

TEST(ParameterCount, of_a_model_is_what_a_person_counts) {
  EXPECT_EQ(count_parameters(job("pipeline: 1").model), (ParameterCount{kDense, kExperts}));
  EXPECT_EQ(count_parameters(job("pipeline: 1", ", tie_word_embeddings: true").model).dense, kDense - 2400);
}

TEST(ParameterCount, of_a_stage_counts_a_rank_s_share_of_its_experts) {
  const JobSpec spec = job("pipeline: 2, expert: 2, data: 2");  // stages: embedding 0 | 1 head
  EXPECT_EQ(parameters_of_stages(spec),
            (std::vector<ParameterCount>{{2400 + 208 + 384, 0}, {208 + 32 + 8 + 2400, 2 * 192}}));
  // The parameters that each rank allocates.
  for (int rank = 0; rank < spec.ranks(); ++rank) {
    const RankPlace place = place_of_rank(spec.parallel, RankIndex(rank));
    const auto stage = static_cast<size_t>(place.pipeline_rank.value);
    int64_t elements = 0;
    for (const ParameterSpec& parameter :
         parameters_of(spec.model, spec.parallel.split[stage], experts_at(spec, place)))
      elements += parameter.elements();
    EXPECT_EQ(parameters_of_stages(spec)[stage].total(), elements) << rank;
  }
}

TEST(ParameterCount, rough_one_is_the_mean_over_the_ranks_of_a_pipeline) {
  for (const char* parallel : {"pipeline: 1", "pipeline: 2, expert: 2", "pipeline: 2, expert: 4, data: 2"}) {
    const JobSpec spec = job(parallel);
    int64_t sum = 0;
    for (const ParameterCount& stage : parameters_of_stages(spec)) sum += stage.total();
    EXPECT_DOUBLE_EQ(rough_parameters_of_rank(spec), static_cast<double>(sum) / spec.parallel.pipeline)
        << parallel;
  }
  EXPECT_DOUBLE_EQ(rough_parameters_of_rank(job("pipeline: 2, expert: 2")), (kDense + kExperts / 2.0) / 2);
}

}  // namespace
}  // namespace penstock::plan
