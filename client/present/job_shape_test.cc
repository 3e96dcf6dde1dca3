#include "client/present/job_shape.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "client/present/job_tables.h"

namespace penstock::client {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string yaml(const std::string& parallel) {
  return "name: a\n"
         "model: {vocab_size: 300, hidden_size: 8, num_hidden_layers: 2, num_attention_heads: 2, num_key_value_heads: 1,\n"
         "        intermediate_size: 16, max_position_embeddings: 8,\n"
         "        moe: {num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 8, layers: [1]}}\n"
         "data: {source: /a.txt, sequence_length: 8}\n"
         "train: {steps: 1, global_batch_size: 64, microbatch_size: 1}\n"
         "parallel: {" +
         parallel + "}\n";
}

plan::JobSpec spec_of(const std::string& parallel) {
  return plan::parse_job_spec(yaml(parallel)).value();
}

// Two stages on two ranks each.
v1::Job job() {
  v1::Job job;
  job.set_spec_yaml(yaml("pipeline: 2, expert: 2"));
  job.set_ranks(4);
  for (int rank = 0; rank < 4; ++rank) {
    v1::StageStatus& stage = *job.add_stages();
    stage.set_stage(rank / 2);
    stage.set_rank(rank);
    v1::RankMemory& memory = *job.add_memory();
    memory.set_rank(rank);
    v1::MemoryUse& parameters = *memory.add_kinds();
    parameters.set_kind("parameters");
    parameters.set_predicted_bytes(2048);
    parameters.set_peak_bytes(2048);
    v1::MemoryUse& activations = *memory.add_kinds();
    activations.set_kind("activations");
    activations.set_predicted_bytes(1000);
    if (rank < 3) activations.set_peak_bytes(rank == 1 ? 1010 : 900);
  }
  return job;
}

TEST(JobShape, ranks_are_told_with_their_degrees) {
  EXPECT_EQ(ranks_text(spec_of("pipeline: 2").parallel), "2");
  EXPECT_EQ(ranks_text(spec_of("pipeline: 2, expert: 2, data: 3").parallel),
            "12: pipeline 2 x expert 2 x data 3");
}

TEST(JobShape, ranges_are_short) {
  const std::vector<int> numbers = {0, 1, 2, 5, 7, 8};
  EXPECT_EQ(ranges_text(numbers), "0..2,5,7..8");
  EXPECT_EQ(ranges_text({}), "");
}

TEST(JobShape, pipelines_say_which_experts_and_ranks_are_theirs) {
  EXPECT_EQ(pipeline_table(spec_of("pipeline: 2, expert: 2, data: 2")).text(),
            "PIPELINE   EXPERT   DATA   EXPERTS   RANKS\n"
            "       0        0      0   0..1      0,4\n"
            "       1        1      0   2..3      1,5\n"
            "       2        0      1   0..1      2,6\n"
            "       3        1      1   2..3      3,7\n");
  const std::vector<std::string> many = pipeline_table(spec_of("pipeline: 1, data: 20")).lines();
  ASSERT_EQ(many.size(), 18u);
  EXPECT_THAT(many.back(), HasSubstr("4 more"));
}

TEST(JobShape, parameters_stand_beside_the_rough_share) {
  // 5640 dense, 768 of experts; the first stage has 2992, the second 2648 + 384.
  EXPECT_EQ(
      parameters_text(job(), spec_of("pipeline: 2, expert: 2")),
      "5.64k dense and 768 of experts; a rank about 3.01k, (dense + experts / 2) / 2, exactly 2992 to 3032");
  const Json json = parameters_json(job(), spec_of("pipeline: 2, expert: 2"));
  EXPECT_EQ(json.dump(),
            R"({"dense":5640,"experts":768,"rank_roughly":3012.0,"ranks":[2992,2992,3032,3032]})");
  // A job that has been cut anew has stages that its file does not.
  EXPECT_THAT(parameters_text(job(), spec_of("pipeline: 1")), Not(HasSubstr("exactly")));
}

TEST(JobShape, memory_of_ranks_alike_stands_once_with_its_difference) {
  EXPECT_EQ(memory_table(job()).text(),
            "RANKS   KIND          PREDICTED   MEASURED       DIFFERENCE\n"
            "0,2     parameters      2.00KiB    2.00KiB               0B\n"
            "0,2     activations     0.98KiB       900B   -100B (-10.0%)\n"
            "0,2     all             2.98KiB    2.88KiB    -100B (-3.3%)\n"
            "1       parameters      2.00KiB    2.00KiB               0B\n"
            "1       activations     0.98KiB    0.99KiB     +10B (+1.0%)\n"
            "1       all             2.98KiB    2.99KiB     +10B (+0.3%)\n"
            "3       parameters      2.00KiB    2.00KiB               0B\n"
            "3       activations     0.98KiB          -                -\n"
            "3       all             2.98KiB          -                -\n");
  EXPECT_EQ(memory_json(job())[3].dump(),
            R"({"rank":3,"kinds":[{"kind":"parameters","predicted_bytes":2048,"peak_bytes":2048},)"
            R"({"kind":"activations","predicted_bytes":1000}]})");
}

TEST(DescribeJob, shows_pipelines_payloads_and_memory) {
  v1::Job described = job();
  described.mutable_stages(2)->set_payload_slots(4);
  described.mutable_stages(2)->set_payload_slots_peak(3);
  const std::string text = describe_job(described, 0);
  EXPECT_THAT(text, HasSubstr("Ranks:          4: pipeline 2 x expert 2 x data 1\n"));
  EXPECT_THAT(text, HasSubstr("Parameters:     5.64k dense and 768 of experts"));
  EXPECT_THAT(text, HasSubstr("Pipelines (rank = 2 x place in it + pipeline)\n  PIPELINE"));
  EXPECT_THAT(text, HasSubstr("SLOTS   PAYLOADS   PEAK"));
  EXPECT_THAT(text, HasSubstr("3/4"));
  EXPECT_THAT(text,
              HasSubstr("Memory of ranks (predicted before the attempt, highest measured)\n  RANKS   KIND"));
}

}  // namespace
}  // namespace penstock::client
