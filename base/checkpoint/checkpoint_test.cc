#include "base/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/checkpoint/testing/sample.h"
#include "base/safetensors/file.h"
#include "base/safetensors/testing/written.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::load_sample;
using testing::sample_tensors;
using testing::TemporaryFolder;
using testing::write_sample;

class CheckpointFolder : public ::testing::Test {
 protected:
  std::string in(const std::string& name) const { return "step-000000050/" + name; }
  std::string error_of_load() const { return message(load_sample(path_)); }

  TemporaryFolder folder_{"penstock_checkpoint_test"};
  std::string path_ = write_sample(folder_.path(), 50);
};

TEST_F(CheckpointFolder, every_tensor_reads_back_under_its_own_name) {
  const auto checkpoint = Checkpoint::open(path_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(checkpoint->manifest().step, 50);
  const auto expected = sample_tensors();
  EXPECT_TRUE(checkpoint->check(expected).ok());
  int64_t read = 0;
  EXPECT_TRUE(checkpoint->verify([&](int64_t bytes) { read += bytes; }).ok());
  EXPECT_EQ(read, checkpoint->data_bytes());
  for (const ExpectedTensor& tensor : expected) {
    std::vector<float> values(static_cast<size_t>(checkpoint->find(tensor.name)->elements()));
    ASSERT_TRUE(checkpoint->read(tensor.name, values).ok());
    EXPECT_EQ(values, testing::sample_values(tensor, 50)) << tensor.name;
  }
}

TEST_F(CheckpointFolder, shards_are_safetensors_for_everybody) {
  // The reader of other people's files knows nothing of manifests.
  const auto file = SafetensorsFile::open(path_ + "/moments-00000-of-00002.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  const TensorEntry* entry = file->find("exp_avg_sq.model.layers.0.mlp.up_proj.weight");
  ASSERT_NE(entry, nullptr);
  std::vector<float> values(12);
  ASSERT_TRUE(file->read(*entry, 0, values).ok());
  EXPECT_EQ(values, testing::sample_values({entry->name, entry->shape}, 50));
}

TEST_F(CheckpointFolder, damage_is_told_by_file_tensor_and_offset) {
  const std::string name = in("rank-00001-of-00002.safetensors");
  std::string bytes = folder_.read(name);
  const size_t last = bytes.size() - 1;
  bytes[last] = static_cast<char>(bytes[last] ^ 1);
  folder_.write(name, bytes);
  const size_t offset = bytes.size() - 6 * 4 * 4;  // where lm_head.weight, the last one, begins
  EXPECT_THAT(error_of_load(),
              AllOf(HasSubstr(name), HasSubstr("tensor lm_head.weight at offset " + std::to_string(offset)),
                    HasSubstr("damaged")));
}

TEST_F(CheckpointFolder, header_that_was_touched_is_told_by_its_offset) {
  const std::string name = in("rank-00000-of-00002.safetensors");
  std::string bytes = folder_.read(name);
  const size_t at = bytes.find("\"pt\"") + 1;
  bytes[at] = 'q';
  folder_.write(name, bytes);
  EXPECT_THAT(error_of_load(), AllOf(HasSubstr(name), HasSubstr("from offset " + std::to_string(at))));
}

TEST_F(CheckpointFolder, file_that_was_cut_is_told_by_its_size) {
  const std::string name = in("moments-00001-of-00002.safetensors");
  const std::string bytes = folder_.read(name);
  folder_.write(name, bytes.substr(0, bytes.size() / 2));
  EXPECT_THAT(error_of_load(),
              AllOf(HasSubstr(name), HasSubstr("cut"), HasSubstr(std::to_string(bytes.size()))));
  std::filesystem::remove(folder_.path(name));
  EXPECT_THAT(error_of_load(), HasSubstr(name));
}

TEST_F(CheckpointFolder, without_its_manifest_it_is_no_checkpoint) {
  std::filesystem::remove(folder_.path(in(kManifestFile)));
  EXPECT_EQ(Checkpoint::open(path_).status().code(), StatusCode::kNotFound);
  EXPECT_THAT(error_of_load(), HasSubstr("not written to its end"));
}

TEST_F(CheckpointFolder, manifest_of_a_gigabyte_is_refused_by_its_size) {
  std::filesystem::resize_file(folder_.path(in(kManifestFile)), int64_t{1} << 30);  // no blocks behind it
  const Status refused = Checkpoint::open(path_).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(message(refused),
              AllOf(HasSubstr(in(kManifestFile)), HasSubstr("268435456"), HasSubstr("1073741824")));
}

TEST_F(CheckpointFolder, under_the_name_of_another_step_is_refused) {
  std::filesystem::rename(path_, folder_.path("step-000000060"));
  EXPECT_THAT(message(load_sample(folder_.path("step-000000060"))),
              HasSubstr("expected 60 as the folder's name says, found 50"));
  std::filesystem::rename(folder_.path("step-000000060"), folder_.path("kept"));
  EXPECT_TRUE(load_sample(folder_.path("kept")).ok());
}

TEST_F(CheckpointFolder, of_another_model_is_refused_by_tensor) {
  // A stage-local name or a missing layer must never leave a parameter as it was initialised.
  const auto checkpoint = Checkpoint::open(path_);
  ASSERT_TRUE(checkpoint.ok());
  auto expected = sample_tensors();
  expected.push_back({"model.layers.101.input_layernorm.weight", {4}});
  EXPECT_THAT(message(checkpoint->check(expected)),
              HasSubstr("tensor model.layers.101.input_layernorm.weight: expected of shape [4], found none"));
  expected.pop_back();
  expected.back().shape = {4, 6};
  EXPECT_THAT(message(checkpoint->check(expected)), AllOf(HasSubstr("shape: expected [4, 6], found [6, 4]"),
                                                          HasSubstr("moments-00001"), HasSubstr("offset")));
  expected.pop_back();
  EXPECT_THAT(message(checkpoint->check(expected)), HasSubstr("1 beyond them: exp_avg_sq.lm_head.weight"));
}

}  // namespace
}  // namespace penstock
