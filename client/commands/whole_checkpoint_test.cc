#include "client/commands/whole_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "base/checkpoint/testing/damage.h"
#include "base/safetensors/testing/written.h"
#include "plan/interop/hugging_face.h"

namespace penstock::client {
namespace {

using penstock::testing::Damage;
using penstock::testing::TemporaryFolder;
using penstock::testing::WrittenTensor;
using ::testing::HasSubstr;

bool at_full_scale() {
  const char* scale = std::getenv("PENSTOCK_TEST_SCALE");
  return scale != nullptr && std::string(scale) == "full";
}

// A folder of Hugging Face with experts, and what it is imported to.
class WholeCheckpoint : public ::testing::Test {
 protected:
  WholeCheckpoint() { write_model("source", 0.5f); }

  void write_model(const std::string& name, float value) const {
    const auto job = plan::parse_job_spec(
        "name: tiny\n"
        "model: {vocab_size: 256, hidden_size: 8, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 6, "
        "max_position_embeddings: 8, moe: {num_experts: 2, num_experts_per_tok: 1, moe_intermediate_size: 4}}\n"
        "data: {source: /data/text.txt, sequence_length: 8}\n"
        "train: {steps: 1, global_batch_size: 1, microbatch_size: 1}\n");
    std::vector<WrittenTensor> tensors;
    for (const plan::ParameterSpec& parameter : plan::model_parameters(job->model))
      tensors.push_back({parameter.stored_name, parameter.shape,
                         std::vector<float>(static_cast<size_t>(parameter.elements()),
                                            value + static_cast<float>(parameter.index))});
    folder_.write(name + "/" + plan::kHuggingFaceConfigFile,
                  plan::model_to_hugging_face(job->model, "float32"));
    penstock::testing::write_tensors(folder_.path(name + "/" + kSingleTensorFile), tensors);
  }
  StatusOr<Checkpoint> import(const std::string& source, const std::string& target) const {
    PENSTOCK_ASSIGN_OR_RETURN(const ModelFolder folder, open_model_folder(folder_.path(source)));
    return write_whole_checkpoint(folder, folder_.path(target), /*shard_bytes=*/20'000, "import");
  }
  // Every byte of it, as the job does that begins with it.
  Status load(const std::string& target) const {
    PENSTOCK_ASSIGN_OR_RETURN(const ModelFolder source, open_model_folder(folder_.path("source")));
    std::vector<ExpectedTensor> weights;
    for (const plan::ParameterSpec& parameter : source.parameters)
      weights.push_back({parameter.stored_name, parameter.shape});
    PENSTOCK_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(folder_.path(target)));
    PENSTOCK_RETURN_IF_ERROR(checkpoint.check(checkpoint_tensors(weights)));
    return checkpoint.verify();
  }

  TemporaryFolder folder_{"penstock_whole_checkpoint"};
};

TEST_F(WholeCheckpoint, of_a_folder_has_its_weights_and_moments_of_zero) {
  const auto written = import("source", "step-000000000");
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_GT(written->manifest().shards.size(), 2u);
  EXPECT_TRUE(load("step-000000000").ok());
  const CheckpointTensor* embedding = written->find("model.embed_tokens.weight");
  ASSERT_NE(embedding, nullptr);
  std::vector<float> values(static_cast<size_t>(embedding->elements()), 1.0f);
  ASSERT_TRUE(written->read("model.embed_tokens.weight", values).ok());
  EXPECT_EQ(values, std::vector<float>(values.size(), 0.5f));
  for (const std::string& name :
       {first_moment_name("model.embed_tokens.weight"), second_moment_name("model.embed_tokens.weight")}) {
    ASSERT_TRUE(written->read(name, values).ok());
    EXPECT_EQ(values, std::vector<float>(values.size(), 0.0f));
  }
}

TEST_F(WholeCheckpoint, that_was_killed_while_it_was_written_is_whole_or_none) {
  const int kills = at_full_scale() ? 200 : 10;
  std::mt19937_64 random(13);
  int whole = 0;
  for (int kill_number = 0; kill_number < kills; ++kill_number) {
    const std::string target = "step-000000000";
    const pid_t child = fork();
    if (child == 0) _exit(import("source", target).ok() ? 0 : 1);
    usleep(static_cast<useconds_t>(random() % 12'000));
    ::kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    const Status loaded = load(target);
    whole += loaded.ok();
    if (!loaded.ok()) {
      EXPECT_EQ(loaded.code(), StatusCode::kNotFound) << loaded;
      EXPECT_THAT(message(loaded), HasSubstr("not written to its end"));
    }
    std::filesystem::remove_all(folder_.path(target));
  }
  std::cout << whole << " of " << kills << " were killed too late\n";
}

TEST_F(WholeCheckpoint, that_is_damaged_is_not_taken) {
  write_model("other-source", 0.25f);
  ASSERT_TRUE(import("source", "whole").ok());
  ASSERT_TRUE(import("other-source", "other").ok());
  ASSERT_TRUE(load("whole").ok());
  const int count = at_full_scale() ? 1000 : 40;
  for (int seed = 1; seed <= count; ++seed) {
    std::filesystem::copy(folder_.path("whole"), folder_.path("step-000000000"),
                          std::filesystem::copy_options::recursive);
    const std::string what = Damage(folder_, "step-000000000", "other", static_cast<uint64_t>(seed)).one();
    const Status loaded = load("step-000000000");
    EXPECT_FALSE(loaded.ok()) << "seed " << seed << ": " << what;
    EXPECT_THAT(message(loaded), HasSubstr("step-000000000"));
    std::filesystem::remove_all(folder_.path("step-000000000"));
  }
}

}  // namespace
}  // namespace penstock::client
