// A file that changes while it is read: on a network's disk, or below somebody else's hands. Reading a mapping of it would
// end the process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/checkpoint/testing/sample.h"
#include "base/safetensors/testing/written.h"

namespace penstock {
namespace {

using penstock::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kFile = "rank-00000-of-00001.safetensors";

// One tensor of 4 MiB.
class ShrinkingFile : public ::testing::Test {
 protected:
  ShrinkingFile() {
    const std::vector<ExpectedTensor> tensors = {{"lm_head.weight", {1024, 1024}}};
    CheckpointManifest manifest;
    manifest.job = "sample";
    manifest.step = 50;
    std::filesystem::create_directories(folder_.path("draft"));
    manifest.shards = {testing::write_sample_shard(folder_.path("draft"), kFile, tensors, 50)};
    path_ = commit_draft(folder_.path(), "draft", manifest, tensors).value();
  }
  void cut_to(uintmax_t bytes) const { std::filesystem::resize_file(path_ + "/" + kFile, bytes); }

  TemporaryFolder folder_{"penstock_shrinking_file"};
  std::string path_;
};

TEST_F(ShrinkingFile, that_is_cut_while_its_tensor_is_verified_is_data_loss_at_the_place) {
  const Checkpoint checkpoint = Checkpoint::open(path_).value();
  int pieces = 0;
  const Status status = checkpoint.verify([&](int64_t) {
    if (++pieces == 2) cut_to(1 << 20);
  });
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(message(status), AllOf(HasSubstr(kFile), HasSubstr("tensor lm_head.weight at offset 2097"),
                                     HasSubstr("has 1048576 bytes, it had 4194")));
  EXPECT_EQ(pieces, 2);
}

TEST_F(ShrinkingFile, that_is_cut_before_a_tensor_is_read_is_data_loss_at_the_place) {
  const Checkpoint checkpoint = Checkpoint::open(path_).value();
  cut_to(1 << 20);
  std::vector<float> values(1 << 20);
  const Status status = checkpoint.read("lm_head.weight", values);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(message(status), AllOf(HasSubstr(kFile), HasSubstr("has 1048576 bytes, it had 4194")));
}

TEST_F(ShrinkingFile, that_is_whole_again_is_read) {
  const Checkpoint checkpoint = Checkpoint::open(path_).value();
  EXPECT_TRUE(checkpoint.verify().ok());
  std::filesystem::remove(path_ + "/" + kFile);
  EXPECT_EQ(checkpoint.verify().code(), StatusCode::kDataLoss);
  EXPECT_THAT(message(checkpoint.verify()), HasSubstr("cannot be opened any more"));
}

}  // namespace
}  // namespace penstock
