#include "base/checkpoint/directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <random>

#include "base/checkpoint/testing/sample.h"
#include "base/safetensors/testing/written.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;
using testing::sample_tensors;
using testing::TemporaryFolder;
using testing::write_sample;

std::vector<int64_t> steps_in(const std::string& directory) {
  std::vector<int64_t> steps;
  const std::vector<ListedCheckpoint> listed = *list_checkpoints(directory);
  for (const ListedCheckpoint& one : listed) steps.push_back(one.step);
  return steps;
}

TEST(CheckpointDirectory, lists_the_newest_first_and_nothing_else) {
  const TemporaryFolder folder("penstock_directory_list");
  for (const int64_t step : {20, 100, 30}) write_sample(folder.path(), step);
  folder.write("notes.txt", "mine");
  folder.write(".partial-3-step-000000040/rank-00000-of-00002.safetensors", "half");
  EXPECT_EQ(steps_in(folder.path()), (std::vector<int64_t>{100, 30, 20}));
  EXPECT_EQ(steps_in(folder.path("nowhere")), std::vector<int64_t>{});
}

TEST(CheckpointDirectory, that_cannot_be_looked_at_is_an_error_and_not_empty) {
  // A job that took it for empty would begin at step 0.
  const TemporaryFolder folder("penstock_directory_loop");
  std::filesystem::create_symlink("loop", folder.path("loop"));
  const auto listed = list_checkpoints(folder.path("loop"));
  EXPECT_EQ(listed.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(message(listed.status()), HasSubstr("loop cannot be read"));
}

TEST(CheckpointDirectory, keeps_the_newest_and_what_is_not_ours) {
  const TemporaryFolder folder("penstock_directory_keep");
  for (const int64_t step : {10, 20, 30, 40}) write_sample(folder.path(), step);
  folder.write("notes.txt", "mine");
  folder.write(".removed-step-000000005/rank-00000-of-00002.safetensors", "left by a crash");
  ASSERT_TRUE(remove_older(folder.path(), 40, 2).ok());
  EXPECT_EQ(steps_in(folder.path()), (std::vector<int64_t>{40, 30}));
  EXPECT_EQ(folder.read("notes.txt"), "mine");
  EXPECT_FALSE(std::filesystem::exists(folder.path(".removed-step-000000005")));
}

TEST(CheckpointDirectory, later_ones_that_were_refused_do_not_take_the_place_of_good_ones) {
  const TemporaryFolder folder("penstock_directory_refused");
  for (const int64_t step : {10, 20, 150}) write_sample(folder.path(), step);
  ASSERT_TRUE(remove_older(folder.path(), 20, 1).ok());
  EXPECT_EQ(steps_in(folder.path()), (std::vector<int64_t>{150, 20}));
}

TEST(CheckpointDirectory, steps_that_are_not_on_record_are_not_taken) {
  const TemporaryFolder folder("penstock_directory_record");
  for (const int64_t step : {10, 20}) write_sample(folder.path(), step);
  const auto newest = newest_checkpoint(folder.path(), "sample", 15, sample_tensors());
  ASSERT_TRUE(newest.ok() && newest->checkpoint.has_value());
  EXPECT_EQ(newest->checkpoint->manifest().step, 10);
  ASSERT_EQ(newest->refused.size(), 1u);
  EXPECT_THAT(newest->refused[0], HasSubstr("expected at most 15 steps"));
  EXPECT_FALSE(newest_checkpoint(folder.path(), "sample", 5, sample_tensors())->checkpoint.has_value());
}

TEST(CheckpointDirectory, one_of_another_job_is_not_taken) {
  const TemporaryFolder folder("penstock_directory_other");
  write_sample(folder.path(), 10);
  const auto newest = newest_checkpoint(folder.path(), "mine", 1000, sample_tensors());
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_FALSE(newest->checkpoint.has_value());
  ASSERT_EQ(newest->refused.size(), 1u);
  EXPECT_THAT(newest->refused[0], HasSubstr("expected a checkpoint of job mine, found one of job sample"));
}

TEST(CheckpointDirectory, one_of_the_same_step_is_replaced) {
  const TemporaryFolder folder("penstock_directory_again");
  const std::string path = write_sample(folder.path(), 10);
  std::filesystem::remove(path + "/rank-00000-of-00002.safetensors");
  EXPECT_EQ(write_sample(folder.path(), 10), path);
  EXPECT_TRUE(testing::load_sample(path).ok());
}

TEST(CheckpointDirectory, links_in_it_are_removed_and_not_what_they_lead_to) {
  const TemporaryFolder folder("penstock_directory_links");
  const TemporaryFolder elsewhere("penstock_directory_elsewhere");
  const std::string kept = write_sample(elsewhere.path(), 10);
  for (const int64_t step : {20, 30}) write_sample(folder.path(), step);
  std::filesystem::create_directory_symlink(kept, folder.path("step-000000010"));
  std::filesystem::create_directory_symlink(kept, folder.path(draft_name("run", 1, 40)));
  ASSERT_TRUE(remove_older(folder.path(), 30, 2).ok());
  ASSERT_TRUE(remove_drafts(folder.path(), draft_prefix("run")).ok());
  EXPECT_EQ(steps_in(folder.path()), (std::vector<int64_t>{30, 20}));
  EXPECT_TRUE(testing::load_sample(kept).ok());
}

TEST(CheckpointDirectory, drafts_of_a_job_are_removed_and_no_others) {
  const TemporaryFolder folder("penstock_directory_drafts");
  write_sample(folder.path(), 10);
  folder.write(draft_name("run", 1, 20) + "/x", "");
  folder.write(draft_name("run", 2, 20) + "/x", "");
  folder.write(draft_name("run-2", 1, 20) + "/x", "");
  ASSERT_TRUE(remove_drafts(folder.path(), draft_prefix("run")).ok());
  EXPECT_FALSE(std::filesystem::exists(folder.path(draft_name("run", 1, 20))));
  EXPECT_FALSE(std::filesystem::exists(folder.path(draft_name("run", 2, 20))));
  EXPECT_TRUE(std::filesystem::exists(folder.path(draft_name("run-2", 1, 20))));
  EXPECT_EQ(steps_in(folder.path()), std::vector<int64_t>{10});
}

// Writes checkpoints without end, and tells each one's step when it is committed.
[[noreturn]] void write_until_killed(const std::string& directory, testing::Layout layout, int told) {
  for (int64_t step = 1;; ++step) {
    write_sample(directory, step, layout);
    (void)!write(told, &step, sizeof step);
    (void)remove_older(directory, step, 2);
  }
}

class KilledWriter : public ::testing::TestWithParam<testing::Layout> {};

TEST_P(KilledWriter, leaves_a_whole_one_and_none_that_is_half) {
  const char* scale = std::getenv("PENSTOCK_TEST_SCALE");
  const int kills = scale != nullptr && std::string(scale) == "full" ? 200 : 10;
  std::mt19937_64 random(7);
  for (int kill_number = 0; kill_number < kills; ++kill_number) {
    const TemporaryFolder folder("penstock_directory_kill");
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) write_until_killed(folder.path(), GetParam(), ends[1]);
    close(ends[1]);
    // At a random moment of the writing of one of the first checkpoints.
    int64_t committed = 0;
    for (uint64_t wanted = 1 + random() % 3; wanted > 0; --wanted)
      ASSERT_EQ(read(ends[0], &committed, sizeof committed), static_cast<ssize_t>(sizeof committed));
    usleep(static_cast<useconds_t>(random() % 8000));
    ::kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    while (read(ends[0], &committed, sizeof committed) == static_cast<ssize_t>(sizeof committed)) {
    }
    close(ends[0]);
    const auto newest = newest_checkpoint(folder.path(), "sample", 1 << 20, sample_tensors(GetParam()));
    ASSERT_TRUE(newest.ok()) << newest.status();
    ASSERT_TRUE(newest->checkpoint.has_value()) << "kill " << kill_number;
    EXPECT_GE(newest->checkpoint->manifest().step, committed);
    EXPECT_TRUE(newest->refused.empty()) << newest->refused.front();
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, KilledWriter,
                         ::testing::Values(testing::Layout::TwoRanks, testing::Layout::ShardedStates,
                                           testing::Layout::Imported));

}  // namespace
}  // namespace penstock
