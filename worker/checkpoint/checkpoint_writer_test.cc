#include "worker/checkpoint/checkpoint_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "base/checkpoint/checkpoint.h"
#include "base/safetensors/testing/written.h"

namespace penstock::worker {
namespace {

using penstock::testing::TemporaryFolder;
using ::testing::HasSubstr;

class WriterOf : public ::testing::Test {
 protected:
  WriterOf() {
    state_.weights = {{"norm", {3}, weights_}};
    state_.moments = {{"exp_avg.norm", {3}, first_}, {"exp_avg_sq.norm", {3}, second_}};
    auto writer = CheckpointWriter::create({.attempt = {"tiny", 4, 7},
                                            .rank = RankIndex(1),
                                            .ranks = 2,
                                            .directory = folder_.path(),
                                            .spec_yaml = "name: tiny\n",
                                            .samples_per_step = 8},
                                           state_);
    writer_ = *std::move(writer);
  }

  CheckpointManifest part_of(int64_t step) const {
    const auto part = parse_manifest(folder_.read(draft_name("tiny", 4, step) + "/part-00001-of-00002.json"));
    EXPECT_TRUE(part.ok()) << part.status();
    return part.value_or(CheckpointManifest{});
  }

  TemporaryFolder folder_{"penstock_checkpoint_writer"};
  std::vector<float> weights_ = {1, 2, 3};
  std::vector<float> first_ = {4, 5, 6};
  std::vector<float> second_ = {7, 8, 9};
  TrainingState state_;
  const SystemClock clock_;
  std::vector<CheckpointWritten> reports_;
  std::unique_ptr<CheckpointWriter> writer_;
};

TEST_F(WriterOf, writes_what_the_state_was_and_not_what_it_has_become) {
  writer_->start(
      "test",
      [&](const CheckpointWritten& written) {
        reports_.push_back(written);
        return ok_status();
      },
      clock_);
  ASSERT_TRUE(writer_->take(5).ok());
  weights_ = {0, 0, 0};
  first_ = {0, 0, 0};
  ASSERT_TRUE(writer_->drain().ok());
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_EQ(reports_[0].step, 5);
  EXPECT_EQ(reports_[0].problem, "");
  const CheckpointManifest part = part_of(5);
  EXPECT_EQ(part.step, 5);
  EXPECT_EQ(part.samples, 40);
  EXPECT_EQ(part.fingerprint, "test");
  ASSERT_EQ(part.shards.size(), 2u);
  const std::vector<float> weights = {1, 2, 3}, first = {4, 5, 6}, second = {7, 8, 9};
  EXPECT_EQ(part.shards[0].name, "rank-00001-of-00002.safetensors");
  EXPECT_EQ(part.shards[0].tensors[0].digest, digest_of(std::as_bytes(std::span(weights))));
  EXPECT_EQ(part.shards[1].name, "moments-00001-of-00002.safetensors");
  EXPECT_EQ(part.shards[1].tensors[0].digest, digest_of(std::as_bytes(std::span(first))));
  EXPECT_EQ(part.shards[1].tensors[1].digest, digest_of(std::as_bytes(std::span(second))));
}

TEST_F(WriterOf, take_waits_for_the_part_before_it) {
  // One copy: otherwise the second would overwrite what the first still writes.
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  std::atomic<int> told{0};
  writer_->start(
      "test",
      [&](const CheckpointWritten&) {
        released.wait();
        ++told;
        return ok_status();
      },
      clock_);
  ASSERT_TRUE(writer_->take(1).ok());
  int told_when_taken = -1;
  std::thread other([&] {
    const Status taken = writer_->take(2);
    told_when_taken = taken.ok() ? told.load() : -1;
  });
  release.set_value();
  other.join();
  EXPECT_GE(told_when_taken, 1);
  ASSERT_TRUE(writer_->drain().ok());
  EXPECT_EQ(told.load(), 2);
}

TEST_F(WriterOf, part_that_cannot_be_written_is_told_and_leaves_nothing) {
  writer_->start(
      "test",
      [&](const CheckpointWritten& written) {
        reports_.push_back(written);
        return ok_status();
      },
      clock_);
  const std::string draft = draft_name("tiny", 4, 1);
  // A folder where the second file belongs: the first one is written, then removed.
  folder_.write(draft + "/moments-00001-of-00002.safetensors.partial/x", "");
  ASSERT_TRUE(writer_->take(1).ok());
  ASSERT_TRUE(writer_->take(2).ok());
  ASSERT_TRUE(writer_->drain().ok());
  ASSERT_EQ(reports_.size(), 2u);
  EXPECT_THAT(reports_[0].problem, HasSubstr("moments-00001-of-00002.safetensors cannot be made"));
  EXPECT_FALSE(std::filesystem::exists(folder_.path(draft + "/rank-00001-of-00002.safetensors")));
  EXPECT_EQ(reports_[1].problem, "");
}

TEST_F(WriterOf, daemon_that_is_gone_ends_the_run_at_the_next_checkpoint) {
  writer_->start(
      "test", [](const CheckpointWritten&) { return unavailable("the daemon is gone"); }, clock_);
  ASSERT_TRUE(writer_->take(1).ok());
  EXPECT_EQ(writer_->take(2).code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace penstock::worker
