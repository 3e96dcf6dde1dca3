#include "worker/data/data_digest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace penstock::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Two hosts, each with a folder of its own.
class DataDigestTest : public ::testing::Test {
 protected:
  DataDigestTest()
      : folder_(std::filesystem::path(::testing::TempDir()) / fmt::format("penstock_digest_{}", ::getpid())) {
    std::filesystem::create_directories(folder_ / "here");
    std::filesystem::create_directories(folder_ / "there");
  }
  ~DataDigestTest() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& host, const std::string& name, const std::string& text) {
    std::ofstream(folder_ / host / name, std::ios::binary) << text;
  }

  DataFingerprint take(const std::string& host) {
    plan::JobSpec job;
    job.model.vocab_size = 256;
    job.data.sources = {folder_ / host / "*.txt"};
    job.data.sequence_length = 8;
    job.train.global_batch_size = 4;
    job.train.steps = 20;
    job.train.seed = 1;
    return DataFingerprint::take(job).value();
  }

  Status compare() { return take("here").compare(take("there").digest(), "rank 0", "rank 3"); }

  std::filesystem::path folder_;
};

std::string counting(size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text.push_back(static_cast<char>('a' + i * i % 23));
  return text;
}

TEST_F(DataDigestTest, same_files_in_another_folder_are_the_same_data) {
  for (const char* host : {"here", "there"}) {
    write(host, "a.txt", counting(500));
    write(host, "b.txt", counting(300));
  }
  EXPECT_TRUE(compare().ok()) << compare();
}

TEST_F(DataDigestTest, file_of_another_size_is_named_with_both_sizes) {
  write("here", "a.txt", counting(500));
  write("there", "a.txt", counting(501));
  EXPECT_EQ(compare().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(message(compare()), HasSubstr("a.txt of 500 bytes on rank 0 and a.txt of 501 bytes on rank 3"));
}

TEST_F(DataDigestTest, file_of_another_name_is_named) {
  write("here", "a.txt", counting(500));
  write("there", "b.txt", counting(500));
  EXPECT_THAT(message(compare()), HasSubstr("a.txt of 500 bytes on rank 0 and b.txt of 500 bytes on rank 3"));
}

TEST_F(DataDigestTest, file_more_or_less_is_told) {
  write("here", "a.txt", counting(500));
  write("there", "a.txt", counting(500));
  write("there", "b.txt", "");
  EXPECT_THAT(message(compare()), HasSubstr("1 files of 500 bytes on rank 0, 2 of 500 on rank 3"));
}

TEST_F(DataDigestTest, file_beyond_those_told_one_by_one_is_found) {
  for (int i = 0; i < 20; ++i) {
    write("here", fmt::format("{:02}.txt", i), counting(50));
    write("there", fmt::format("{:02}.txt", i < 18 ? i : i + 1), counting(50));
  }
  EXPECT_THAT(message(compare()), HasSubstr("differ after the first 16"));
}

TEST_F(DataDigestTest, same_size_with_other_bytes_is_found_with_file_and_offset) {
  // An older version of a file often has the same size: only its bytes tell.
  write("here", "a.txt", counting(1000));
  write("there", "a.txt", std::string(1000, 'x'));
  EXPECT_EQ(compare().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(message(compare()),
              AllOf(HasSubstr("rank 0 and rank 3"), HasSubstr("9 tokens of a.txt"), HasSubstr("1000 bytes")));
}

TEST_F(DataDigestTest, name_of_a_peer_that_is_no_text_is_printed_all_the_same) {
  write("here", "a.txt", counting(500));
  DataDigest other = take("here").digest();
  other.first_files[0].name.fill('\xff');
  other.first_files[0].bytes = 1;
  const Status status = take("here").compare(other, "rank 0", "rank 3");
  EXPECT_THAT(message(status), HasSubstr(std::string(48, '?') + " of 1 bytes"));
}

TEST_F(DataDigestTest, validation_files_are_compared_too) {
  // They decide nothing but the loss that a person reads, which would differ without a sign of it.
  write("here", "a.txt", counting(500));
  write("there", "a.txt", counting(500));
  write("here", "held", counting(200));
  write("there", "held", std::string(200, 'x'));
  const auto take_both = [&](const std::string& host) {
    plan::JobSpec job;
    job.model.vocab_size = 256;
    job.data.sources = {folder_ / host / "*.txt"};
    job.data.sequence_length = 8;
    job.train.steps = 20;
    job.train.global_batch_size = 2;
    job.train.microbatch_size = 2;
    job.validation.data = job.data;
    job.validation.data.sources = {folder_ / host / "held"};
    job.validation.every = 1;
    job.validation.microbatches = 2;
    return DataFingerprint::take(job).value();
  };
  EXPECT_TRUE(take_both("here").compare(take_both("here").digest(), "rank 0", "rank 3").ok());
  EXPECT_THAT(message(take_both("here").compare(take_both("there").digest(), "rank 0", "rank 3")),
              AllOf(HasSubstr("9 tokens of held"), HasSubstr("700 bytes in all")));
}

TEST_F(DataDigestTest, run_over_several_epochs_is_told_by_samples_of_all_of_it) {
  // Positions behind the first epoch are in other orders.
  write("here", "a.txt", counting(1000));
  plan::JobSpec job;
  job.model.vocab_size = 256;
  job.data.sources = {folder_ / "here" / "a.txt"};
  job.data.sequence_length = 8;
  job.data.epochs = 0;
  job.train.steps = 10'000'000;
  job.train.global_batch_size = 1 << 20;
  job.train.microbatch_size = 1;
  EXPECT_TRUE(DataFingerprint::take(job).ok());
}

TEST_F(DataDigestTest, text_shorter_than_a_sample_is_refused) {
  write("here", "a.txt", "12345678");
  plan::JobSpec job;
  job.model.vocab_size = 256;
  job.data.sources = {folder_ / "here" / "a.txt"};
  job.data.sequence_length = 8;
  EXPECT_EQ(DataFingerprint::take(job).status().code(), StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace penstock::worker
