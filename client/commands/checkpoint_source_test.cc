#include "client/commands/checkpoint_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/checkpoint/manifest.h"
#include "base/safetensors/testing/written.h"
#include "plan/interop/hugging_face.h"

namespace penstock::client {
namespace {

using penstock::testing::TemporaryFolder;
using penstock::testing::WrittenTensor;
using ::testing::HasSubstr;

class CheckpointSource : public ::testing::Test {
 protected:
  CheckpointSource() {
    const auto job = plan::parse_job_spec(
        "name: tiny\n"
        "model: {vocab_size: 256, hidden_size: 4, num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 6, "
        "max_position_embeddings: 8}\n"
        "data: {source: /data/text.txt, sequence_length: 8}\n"
        "train: {steps: 1, global_batch_size: 1, microbatch_size: 1}\n");
    std::vector<WrittenTensor> tensors;
    for (const plan::ParameterSpec& parameter : plan::model_parameters(job->model))
      tensors.push_back({parameter.stored_name, parameter.shape,
                         std::vector<float>(static_cast<size_t>(parameter.elements()), 0.5f)});
    folder_.write(in_newest(plan::kHuggingFaceConfigFile),
                  plan::model_to_hugging_face(job->model, "float32"));
    penstock::testing::write_tensors(folder_.path(in_newest(kSingleTensorFile)), tensors);
  }
  static std::string in_newest(const std::string& name) { return "step-000000090/" + name; }
  // Older ones first, as a coordinator would say them whose job goes on meanwhile.
  StatusOr<std::string> answer() {
    return folder_.path(checkpoint_name(std::min<int64_t>(90, 10 * ++answers_)));
  }

  TemporaryFolder folder_{"penstock_checkpoint_source"};
  int64_t answers_ = 0;
  int64_t waits_ = 0;
};

TEST_F(CheckpointSource, that_is_removed_before_it_is_opened_is_asked_for_again) {
  const auto opened = open_resolved([this] { return answer(); }, [this] { ++waits_; });
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->path, folder_.path("step-000000090"));
  EXPECT_TRUE(opened->folder.ok()) << opened->folder.status();
  EXPECT_EQ(answers_, 9);
  EXPECT_EQ(waits_, 8);
}

TEST_F(CheckpointSource, that_is_always_gone_ends_with_what_may_have_happened) {
  const auto opened = open_resolved(
      [&]() -> StatusOr<std::string> {
        ++answers_;
        return folder_.path("step-000000100");
      },
      [this] { ++waits_; });
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->folder.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(message(explained(opened->folder.status(), opened->path)),
              HasSubstr("a job that runs removes its older checkpoints"));
  EXPECT_EQ(answers_, 10);
  EXPECT_EQ(waits_, 9);
}

TEST_F(CheckpointSource, that_is_wrong_is_told_as_it_is) {
  std::filesystem::remove(folder_.path(in_newest(kSingleTensorFile)));
  const auto opened = open_resolved([&]() -> StatusOr<std::string> { return folder_.path("step-000000090"); },
                                    [this] { ++waits_; });
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_FALSE(opened->folder.ok());
  EXPECT_EQ(explained(opened->folder.status(), opened->path), opened->folder.status());
  EXPECT_EQ(waits_, 0);
}

TEST_F(CheckpointSource, that_is_removed_while_it_is_read_says_what_has_happened) {
  const auto opened = open_resolved([this] { return answer(); }, [this] { ++waits_; });
  const ModelFolder& folder = *opened->folder;
  std::filesystem::remove_all(opened->path);
  const Status read =
      read_parameter(folder, folder.parameters.front(), [](std::span<float>) { return ok_status(); });
  EXPECT_EQ(read.code(), StatusCode::kDataLoss);
  const Status told = explained(read, folder.path);
  EXPECT_THAT(message(told), HasSubstr("cannot be opened any more"));
  EXPECT_THAT(message(told), HasSubstr("a job that runs removes its older checkpoints; pause it first"));
  EXPECT_TRUE(explained(ok_status(), folder.path).ok());
}

}  // namespace
}  // namespace penstock::client
