#include "coordinator/weights/weights_folder.h"

#include <gmock/gmock.h>

#include "base/safetensors/folder.h"
#include "base/safetensors/testing/written.h"
#include "plan/interop/hugging_face.h"
#include "plan/spec/parameters.h"

namespace penstock::coordinator {
namespace {

using penstock::testing::TemporaryFolder;
using penstock::testing::write_tensors;
using penstock::testing::WrittenTensor;
using ::testing::HasSubstr;

class WeightsFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    model.vocab_size = 7;
    model.hidden_size = 4;
    model.num_hidden_layers = 1;
    model.num_attention_heads = 2;
    model.num_key_value_heads = 1;
    model.intermediate_size = 6;
    model.max_position_embeddings = 8;
  }
  // Parameters first .. last of the model, as a rank writes them.
  void write_rank(int rank, size_t first, size_t last) const {
    std::vector<WrittenTensor> tensors;
    const auto parameters = plan::model_parameters(model);
    for (size_t i = first; i <= last; ++i) {
      tensors.push_back({parameters[i].name, parameters[i].shape,
                         std::vector<float>(static_cast<size_t>(parameters[i].elements()), 0.5f)});
    }
    write_tensors(place.directory + "/" + tensor_file_name("rank", rank, 2), tensors);
  }
  bool has(const std::string& name) const { return std::filesystem::exists(place.directory + "/" + name); }

  plan::ModelSpec model;
  TemporaryFolder state{"weights_folder"};
  const WeightsPlace place{state.path("jobs/tiny/weights"), ".attempt-1"};
};

TEST_F(WeightsFolderTest, what_the_ranks_wrote_becomes_a_hugging_face_folder) {
  ASSERT_TRUE(prepare_weights_folder(place).ok());
  EXPECT_TRUE(has(".attempt-1"));
  write_rank(0, 0, 5);
  write_rank(1, 6, 11);
  EXPECT_EQ(TensorFolder::open(place.directory).status().code(),
            StatusCode::kNotFound);  // not before the commit
  const Status committed = commit_weights_folder(place, model, 2);
  ASSERT_TRUE(committed.ok()) << committed;
  EXPECT_FALSE(has(".attempt-1"));
  const auto folder = TensorFolder::open(place.directory);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ(folder->at("lm_head.weight").file->path(), place.directory + "/rank-00001-of-00002.safetensors");
  const auto read = plan::model_from_hugging_face(state.read("jobs/tiny/weights/config.json"));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->intermediate_size, 6);
  EXPECT_THAT(state.read("jobs/tiny/weights/model.safetensors.index.json"), HasSubstr("\"total_size\": 752"));
}

TEST_F(WeightsFolderTest, ranks_whose_parameters_others_write_have_a_file_without_tensors) {
  ASSERT_TRUE(prepare_weights_folder(place).ok());
  write_rank(0, 0, 11);
  write_tensors(place.directory + "/" + tensor_file_name("rank", 1, 2), {});
  const Status committed = commit_weights_folder(place, model, 2);
  ASSERT_TRUE(committed.ok()) << committed;
  EXPECT_TRUE(TensorFolder::open(place.directory).ok());
}

TEST_F(WeightsFolderTest, tensor_that_no_rank_or_two_ranks_wrote_is_named_and_nothing_committed) {
  ASSERT_TRUE(prepare_weights_folder(place).ok());
  write_rank(0, 0, 5);
  EXPECT_THAT(message(commit_weights_folder(place, model, 2)),
              HasSubstr("rank-00001-of-00002.safetensors does not"));
  write_rank(1, 7, 11);
  EXPECT_THAT(
      message(commit_weights_folder(place, model, 2)),
      HasSubstr("tensor model.layers.0.post_attention_layernorm.weight: expected of shape [4], found none"));
  write_rank(1, 5, 11);
  EXPECT_THAT(
      message(commit_weights_folder(place, model, 2)),
      HasSubstr(
          "tensor model.layers.0.self_attn.o_proj.weight: expected from one rank, found in rank-00000"));
  EXPECT_FALSE(has(kTensorIndexFile));
}

TEST_F(WeightsFolderTest, earlier_weights_of_that_name_are_kept_beside) {
  ASSERT_TRUE(prepare_weights_folder(place).ok());
  write_rank(0, 0, 5);
  write_rank(1, 6, 11);
  ASSERT_TRUE(commit_weights_folder(place, model, 2).ok());
  ASSERT_TRUE(prepare_weights_folder(place).ok());
  EXPECT_FALSE(has(kTensorIndexFile));
  EXPECT_TRUE(TensorFolder::open(place.directory + "-1").ok());
}

TEST_F(WeightsFolderTest, leftovers_of_an_attempt_that_failed_are_removed) {
  ASSERT_TRUE(prepare_weights_folder({place.directory, ".attempt-0"}).ok());
  write_rank(0, 0, 5);
  ASSERT_TRUE(prepare_weights_folder(place).ok());
  EXPECT_FALSE(has(".attempt-0"));
  EXPECT_FALSE(has("rank-00000-of-00002.safetensors"));
  EXPECT_TRUE(has(".attempt-1"));
}

TEST_F(WeightsFolderTest, commit_is_taken_back) {
  ASSERT_TRUE(prepare_weights_folder(place).ok());
  write_rank(0, 0, 5);
  write_rank(1, 6, 11);
  ASSERT_TRUE(commit_weights_folder(place, model, 2).ok());
  ASSERT_TRUE(discard_weights_folder(place).ok());
  EXPECT_EQ(TensorFolder::open(place.directory).status().code(), StatusCode::kNotFound);
}

TEST_F(WeightsFolderTest, folder_that_cannot_be_made_is_named) {
  state.write("jobs", "a file");
  EXPECT_THAT(message(prepare_weights_folder(place)), HasSubstr("jobs/tiny/weights cannot be made"));
}

}  // namespace
}  // namespace penstock::coordinator
