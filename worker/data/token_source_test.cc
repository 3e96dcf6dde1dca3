#include "worker/data/token_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "worker/data/testing/text_sources.h"

namespace penstock::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(TokenSourceTest, targets_are_the_inputs_one_place_further) {
  const std::string path = write("a.txt", counting(400));
  TokenSource source = TokenSource::open(job({path})).value();
  const Microbatch batch = read(source, 0, 0).value();
  for (size_t sample = 0; sample < 2; ++sample) {
    const int32_t first = batch.inputs[sample * 8];
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_EQ(batch.inputs[sample * 8 + i], (first + static_cast<int32_t>(i)) % 251);
      EXPECT_EQ(batch.targets[sample * 8 + i], (first + static_cast<int32_t>(i) + 1) % 251);
    }
  }
}

TEST_F(TokenSourceTest, every_window_is_used_once) {
  // 240 bytes: windows of 9 at stride 8 begin at 0, 8, .., 224: 29 of them, 7 steps of 4.
  const std::string path = write("a.txt", counting(240));
  TokenSource source = TokenSource::open(job({path})).value();
  EXPECT_EQ(source.samples().order().samples(), 29);
  EXPECT_EQ(source.steps_available(), 7);
  std::set<int32_t> begins;
  for (int64_t step = 0; step < 7; ++step) {
    for (int64_t microbatch = 0; microbatch < 2; ++microbatch) {
      const Microbatch batch = read(source, step, microbatch).value();
      for (const int32_t first : {batch.inputs[0], batch.inputs[8]}) {
        EXPECT_EQ(first % 8, 0);
        EXPECT_TRUE(begins.insert(first).second) << first;
      }
    }
  }
  EXPECT_EQ(begins.size(), 28u);
}

TEST_F(TokenSourceTest, the_tokens_of_a_step_do_not_depend_on_what_was_read_before) {
  // A rank that joins at step 5 must train on what the others would have trained on.
  const std::string path = write("a.txt", counting(400));
  TokenSource steady = TokenSource::open(job({path})).value();
  for (int64_t step = 0; step < 5; ++step) ASSERT_TRUE(read(steady, step, 1).ok());
  TokenSource fresh = TokenSource::open(job({path})).value();
  EXPECT_EQ(read(steady, 5, 0).value(), read(fresh, 5, 0).value());
}

TEST_F(TokenSourceTest, the_microbatch_size_does_not_change_the_samples_of_a_step) {
  const std::string path = write("a.txt", counting(400));
  plan::JobSpec whole_job = job({path});
  whole_job.train.microbatch_size = 4;
  TokenSource halves = TokenSource::open(job({path})).value();
  TokenSource whole = TokenSource::open(whole_job).value();
  std::vector<int32_t> together(32);
  ASSERT_TRUE(whole.microbatch(StepIndex(3), MicrobatchIndex(0), together, {}).ok());
  std::vector<int32_t> joined = read(halves, 3, 0)->inputs;
  const std::vector<int32_t> second = read(halves, 3, 1)->inputs;
  joined.insert(joined.end(), second.begin(), second.end());
  EXPECT_EQ(joined, together);
}

TEST_F(TokenSourceTest, another_seed_gives_other_samples) {
  const std::string path = write("a.txt", counting(2000));
  plan::JobSpec other = job({path});
  other.train.seed = 2;
  TokenSource one = TokenSource::open(job({path})).value();
  TokenSource two = TokenSource::open(other).value();
  EXPECT_NE(read(one, 0, 0).value(), read(two, 0, 0).value());
}

TEST_F(TokenSourceTest, inputs_alone_or_targets_alone_can_be_asked_for) {
  const std::string path = write("a.txt", counting(400));
  TokenSource source = TokenSource::open(job({path})).value();
  const Microbatch both = read(source, 1, 1).value();
  std::vector<int32_t> inputs(16);
  std::vector<int32_t> targets(16);
  ASSERT_TRUE(source.microbatch(StepIndex(1), MicrobatchIndex(1), inputs, {}).ok());
  ASSERT_TRUE(source.microbatch(StepIndex(1), MicrobatchIndex(1), {}, targets).ok());
  EXPECT_EQ(inputs, both.inputs);
  EXPECT_EQ(targets, both.targets);
}

TEST_F(TokenSourceTest, a_pattern_reads_its_files_in_order_of_their_names) {
  // Windows pass from one file into the next, so cutting a text into files changes nothing.
  const std::string whole = write("whole.txt", counting(400));
  write("part-2.txt", counting(150, 250));
  write("part-10.txt", counting(213, 37));
  write("part-1.txt", counting(37));
  write("part-1a.txt", "");
  TokenSource one = TokenSource::open(job({whole})).value();
  TokenSource many = TokenSource::open(job({folder_ / "part-*"})).value();
  ASSERT_EQ(one.samples().order().samples(), many.samples().order().samples());
  for (int64_t step = 0; step < one.steps_available(); ++step) {
    EXPECT_EQ(read(one, step, 1).value(), read(many, step, 1).value());
  }
}

TEST_F(TokenSourceTest, many_files_are_read) {
  // The order jumps between files: each read may need another one.
  for (int64_t i = 0; i < 100; ++i) write(fmt::format("shard-{:03}.txt", i), counting(20, i * 20));
  const std::string whole = write("whole", counting(2000));
  TokenSource one = TokenSource::open(job({whole})).value();
  TokenSource many = TokenSource::open(job({folder_ / "shard-*.txt"})).value();
  for (int64_t step = 0; step < one.steps_available(); ++step) {
    EXPECT_EQ(read(one, step, 0).value(), read(many, step, 0).value());
  }
}

TEST_F(TokenSourceTest, a_file_named_twice_counts_once) {
  const std::string path = write("a.txt", counting(400));
  TokenSource once = TokenSource::open(job({path})).value();
  TokenSource twice = TokenSource::open(job({path, folder_ / "*.txt"})).value();
  EXPECT_EQ(once.samples().order().samples(), twice.samples().order().samples());
}

TEST_F(TokenSourceTest, a_missing_file_is_named) {
  const Status status = TokenSource::open(job({folder_ / "absent.txt"})).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(message(status), HasSubstr("absent.txt"));
}

TEST_F(TokenSourceTest, a_pattern_without_a_match_is_named) {
  const Status status = TokenSource::open(job({folder_ / "*.text"})).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(message(status), HasSubstr("*.text"));
}

TEST_F(TokenSourceTest, a_folder_or_a_pipe_is_no_text) {
  // Opening a pipe for reading would otherwise wait for ever.
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& source : {folder_.string(), pipe}) {
    const Status status = TokenSource::open(job({source})).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(message(status), AllOf(HasSubstr(source), HasSubstr("not a regular file")));
  }
}

TEST_F(TokenSourceTest, less_text_than_one_sample_is_refused) {
  const std::string path = write("short.txt", "12345678");
  const Status status = TokenSource::open(job({path})).status();
  EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
  EXPECT_THAT(message(status), AllOf(HasSubstr("short.txt"), HasSubstr("8 tokens"), HasSubstr("needs 9")));
  write("short.txt", "123456789");
  EXPECT_EQ(TokenSource::open(job({path}))->steps_available(), 0);
}

TEST_F(TokenSourceTest, data_that_runs_out_names_file_and_step) {
  const std::string path = write("a.txt", counting(240));
  TokenSource source = TokenSource::open(job({path})).value();
  ASSERT_TRUE(read(source, 6, 1).ok());
  const Status status = read(source, 7, 0).status();
  EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
  EXPECT_THAT(message(status), AllOf(HasSubstr("a.txt"), HasSubstr("step 7"), HasSubstr("29 samples")));
}

TEST_F(TokenSourceTest, a_short_supply_is_known_before_the_first_step) {
  const std::string path = write("a.txt", counting(240));
  const TokenSource source = TokenSource::open(job({path})).value();
  EXPECT_TRUE(source.check_supply(7).ok());
  const Status status = source.check_supply(8);
  EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
  EXPECT_THAT(message(status), AllOf(HasSubstr("a.txt"), HasSubstr("step 7")));
}

TEST_F(TokenSourceTest, a_token_outside_the_vocabulary_names_file_offset_and_step) {
  // The embedding would read past its table.
  std::string text(240, 'a');
  text[200] = static_cast<char>(200);
  const std::string first = write("a.txt", text.substr(0, 150));
  const std::string second = write("b.txt", text.substr(150));
  plan::JobSpec small = job({first, second});
  small.model.vocab_size = 128;
  TokenSource source = TokenSource::open(small).value();
  Status found;
  for (int64_t step = 0; step < 7 && found.ok(); ++step) {
    for (int64_t i = 0; i < 2 && found.ok(); ++i) {
      found = read(source, step, i).status();
      if (!found.ok()) {
        EXPECT_THAT(message(found), HasSubstr(fmt::format("step {}", step)));
      }
    }
  }
  EXPECT_EQ(found.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(message(found), AllOf(HasSubstr("b.txt"), HasSubstr("token 200 at place 50 (byte 50)"),
                                    HasSubstr("ends at 127")));
}

TEST_F(TokenSourceTest, a_file_that_is_cut_while_training_is_an_error_with_its_name) {
  // With a mapping this would end the process by a signal.
  const std::string path = write("a.txt", counting(400));
  TokenSource source = TokenSource::open(job({path})).value();
  ASSERT_TRUE(read(source, 0, 0).ok());
  std::filesystem::resize_file(path, 3);
  const Status status = read(source, 1, 0).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(message(status), AllOf(HasSubstr("a.txt"), HasSubstr("step 1")));
}

TEST_F(TokenSourceTest, a_file_that_grows_before_its_first_read_is_an_error) {
  // The permutation was drawn for the old size.
  const std::string path = write("a.txt", counting(400));
  TokenSource source = TokenSource::open(job({path})).value();
  write("a.txt", counting(500));
  const Status status = read(source, 0, 0).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(message(status), AllOf(HasSubstr("500"), HasSubstr("400")));
}

}  // namespace
}  // namespace penstock::worker
