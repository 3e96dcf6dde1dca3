#include "worker/data/token_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

namespace penstock::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TokenSourceTest : public ::testing::Test {
 protected:
  TokenSourceTest() {
    folder_ = std::filesystem::path(::testing::TempDir()) / fmt::format("penstock_data_{}", ::getpid());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~TokenSourceTest() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    std::string path = folder_ / name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  // 4 samples of 8 tokens a step, in microbatches of 2.
  plan::JobSpec job(std::vector<std::string> sources) {
    plan::JobSpec job;
    job.model.vocab_size = 256;
    job.data.sources = std::move(sources);
    job.data.sequence_length = 8;
    job.train.global_batch_size = 4;
    job.train.microbatch_size = 2;
    job.train.seed = 1;
    return job;
  }

  static std::string counting(int64_t bytes, int64_t from = 0) {
    std::string text;
    for (int64_t i = 0; i < bytes; ++i) text.push_back(static_cast<char>((from + i) % 251));
    return text;
  }

  struct Microbatch {
    std::vector<int32_t> inputs;
    std::vector<int32_t> targets;
    bool operator==(const Microbatch&) const = default;
  };
  static StatusOr<Microbatch> read(TokenSource& source, int64_t step, int64_t microbatch) {
    Microbatch read{std::vector<int32_t>(16), std::vector<int32_t>(16)};
    PENSTOCK_RETURN_IF_ERROR(
        source.microbatch(StepIndex(step), MicrobatchIndex(microbatch), read.inputs, read.targets));
    return read;
  }

  std::filesystem::path folder_;
};

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

// Raw .bin files of uint16, written here byte by byte.
class TokenFilesTest : public TokenSourceTest {
 protected:
  std::string write_tokens(const std::string& name, const std::vector<int32_t>& tokens) {
    std::string bytes;
    for (const int32_t token : tokens) {
      bytes.push_back(static_cast<char>(token & 0xff));
      bytes.push_back(static_cast<char>(token >> 8));
    }
    return write(name, bytes);
  }
  static std::vector<int32_t> counting_tokens(int64_t count, int32_t from = 0) {
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < count; ++i) tokens.push_back(from + static_cast<int32_t>(i));
    return tokens;
  }
  // One sample of 8 tokens a step: the window of the test's choice.
  plan::JobSpec one_window(const std::vector<int32_t>& tokens) {
    plan::JobSpec one = job({write_tokens("window.bin", tokens)});
    one.model.vocab_size = 1000;
    one.train.global_batch_size = 1;
    one.train.microbatch_size = 1;
    return one;
  }
};

struct Read {
  std::vector<int32_t> inputs;
  std::vector<int32_t> targets;
  std::vector<int32_t> starts;
};
Read read_all(TokenSource& source, int64_t step, int64_t microbatch, size_t tokens) {
  Read read{std::vector<int32_t>(tokens), std::vector<int32_t>(tokens), std::vector<int32_t>(tokens)};
  const Status status =
      source.microbatch(StepIndex(step), MicrobatchIndex(microbatch), read.inputs, read.targets, read.starts);
  EXPECT_TRUE(status.ok()) << status;
  return read;
}

TEST_F(TokenFilesTest, files_of_tokens_are_read_in_their_types) {
  const std::string root = PENSTOCK_SOURCE_DIR "/base/token_files/testing/";
  for (const char* name :
       {"uint16.npy", "int32.npy", "megatron_int32.bin", "megatron_uint16.idx", "uint32_version2.npy"}) {
    plan::JobSpec wanted = job({root + name});
    wanted.model.vocab_size = 1000;
    wanted.train.global_batch_size = 1;
    wanted.train.microbatch_size = 1;
    TokenSource source = TokenSource::open(wanted).value();
    const Read read = read_all(source, 0, 0, 8);
    // make_fixtures.py: token i is (7 i + 3) mod 1000, windows begin at multiples of 8.
    EXPECT_EQ((read.inputs[0] + 1000 - 3) * 143 % 1000 % 8, 0) << name;  // 143 is the inverse of 7
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_EQ(read.targets[i], (read.inputs[i] + 7) % 1000) << name;
      EXPECT_EQ(read.starts[i], 0);
    }
  }
}

TEST_F(TokenFilesTest, text_beside_files_of_tokens_is_refused) {
  const std::string tokens = write_tokens("a.bin", counting_tokens(100));
  const std::string text = write("a.txt", counting(100));
  for (const std::vector<double>& weights : {std::vector<double>{}, std::vector<double>{1, 1}}) {
    plan::JobSpec both = job({tokens, text});
    both.data.weights = weights;
    const Status status = TokenSource::open(both).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(message(status), AllOf(HasSubstr("a.bin"), HasSubstr("a.txt"), HasSubstr("expected")));
  }
}

TEST_F(TokenFilesTest, a_damaged_file_is_named_before_the_first_step) {
  const Status odd = TokenSource::open(job({write("odd.bin", "abc")})).status();
  EXPECT_EQ(odd.code(), StatusCode::kDataLoss);
  EXPECT_THAT(message(odd), AllOf(HasSubstr("data: "), HasSubstr("odd.bin"), HasSubstr("found 3 bytes")));
}

TEST_F(TokenFilesTest, a_token_of_a_file_outside_the_vocabulary_names_step_and_byte) {
  plan::JobSpec small = one_window({1, 2, 3, 4, 500, 6, 7, 8, 9});
  small.model.vocab_size = 500;
  TokenSource source = TokenSource::open(small).value();
  std::vector<int32_t> inputs(8);
  EXPECT_THAT(message(source.microbatch(StepIndex(0), MicrobatchIndex(0), inputs, {})),
              AllOf(HasSubstr("step 0: data: "), HasSubstr("window.bin"),
                    HasSubstr("token 500 at place 4 (byte 8)")));
}

TEST_F(TokenFilesTest, documents_end_at_their_token_and_predict_nothing_of_the_next) {
  plan::JobSpec job = one_window({5, 6, 0, 7, 0, 0, 8, 9, 10});
  job.data.end_of_document = 0;
  TokenSource source = TokenSource::open(job).value();
  const Read read = read_all(source, 0, 0, 8);
  EXPECT_EQ(read.inputs, (std::vector<int32_t>{5, 6, 0, 7, 0, 0, 8, 9}));
  EXPECT_EQ(read.starts, (std::vector<int32_t>{0, 0, 0, 3, 3, 5, 6, 6}));
  EXPECT_EQ(read.targets, (std::vector<int32_t>{6, 0, -1, 0, -1, -1, 9, 10}));
  EXPECT_EQ(source.target_count(StepIndex(0)).value(), 5);
}

TEST_F(TokenFilesTest, without_the_key_documents_are_one_row) {
  TokenSource source = TokenSource::open(one_window({5, 6, 0, 7, 0, 0, 8, 9, 10})).value();
  const Read read = read_all(source, 0, 0, 8);
  EXPECT_EQ(read.starts, std::vector<int32_t>(8, 0));
  EXPECT_EQ(read.targets, (std::vector<int32_t>{6, 0, 7, 0, 0, 8, 9, 10}));
  EXPECT_EQ(source.target_count(StepIndex(0)).value(), 8);
}

TEST_F(TokenFilesTest, the_last_target_is_masked_when_the_next_document_begins_with_it) {
  plan::JobSpec job = one_window({5, 6, 7, 8, 9, 10, 11, 0, 12});
  job.data.end_of_document = 0;
  TokenSource source = TokenSource::open(job).value();
  const Read read = read_all(source, 0, 0, 8);
  EXPECT_EQ(read.targets.back(), -1);
  EXPECT_EQ(read.starts, std::vector<int32_t>(8, 0));
}

TEST_F(TokenFilesTest, documents_of_a_megatron_index_count_as_those_of_the_token) {
  // make_fixtures.py: documents of 12, 8, 0 and 10 tokens, and no token between them.
  plan::JobSpec job = this->job({PENSTOCK_SOURCE_DIR "/base/token_files/testing/megatron_uint16.bin"});
  job.model.vocab_size = 1000;
  job.data.sequence_length = 29;
  job.data.end_of_document = 999;  // in none of them
  job.train.global_batch_size = 1;
  job.train.microbatch_size = 1;
  TokenSource source = TokenSource::open(job).value();
  const Read read = read_all(source, 0, 0, 29);
  for (size_t i = 0; i < 29; ++i) {
    EXPECT_EQ(read.starts[i], i < 12 ? 0 : i < 20 ? 12 : 20) << i;
    EXPECT_EQ(read.targets[i] == -1, i == 11 || i == 19) << i;
  }
  EXPECT_EQ(source.target_count(StepIndex(0)).value(), 27);
}

TEST_F(TokenFilesTest, targets_of_a_step_are_counted_as_its_microbatches_hold_them) {
  std::vector<int32_t> tokens = counting_tokens(400, 1);
  for (size_t i = 0; i < tokens.size(); i += 7) tokens[i] = 0;
  plan::JobSpec job = this->job({write_tokens("a.bin", tokens)});
  job.model.vocab_size = 1000;
  job.data.end_of_document = 0;
  TokenSource source = TokenSource::open(job).value();
  for (int64_t step = 0; step < source.steps_available(); ++step) {
    int64_t counted = 0;
    for (int64_t i = 0; i < 2; ++i) {
      const Read read = read_all(source, step, i, 16);
      counted += std::count_if(read.targets.begin(), read.targets.end(), [](int32_t t) { return t >= 0; });
    }
    EXPECT_EQ(source.target_count(StepIndex(step)).value(), counted);
    EXPECT_EQ(source.target_count(StepIndex(step)).value(), counted);  // and asked again
  }
}

TEST_F(TokenFilesTest, a_step_without_a_target_is_an_error) {
  // Its loss would be a division by zero.
  plan::JobSpec job = one_window(std::vector<int32_t>(9, 0));
  job.data.end_of_document = 0;
  TokenSource source = TokenSource::open(job).value();
  const Status status = source.target_count(StepIndex(0)).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(message(status), AllOf(HasSubstr("step 0"), HasSubstr("only ends of documents (0)")));
}

TEST_F(TokenFilesTest, the_missing_sequences_of_the_last_microbatch_are_padding) {
  plan::JobSpec whole = job({write_tokens("a.bin", counting_tokens(400))});
  whole.model.vocab_size = 1000;
  plan::JobSpec uneven = whole;
  uneven.train.microbatch_size = 3;  // 3 and 1 of the 4
  TokenSource even_source = TokenSource::open(whole).value();
  TokenSource source = TokenSource::open(uneven).value();
  const Read last = read_all(source, 2, 1, 24);
  const Read even = read_all(even_source, 2, 1, 16);
  EXPECT_TRUE(std::equal(last.inputs.begin(), last.inputs.begin() + 8, even.inputs.begin() + 8));
  EXPECT_TRUE(std::equal(last.targets.begin(), last.targets.begin() + 8, even.targets.begin() + 8));
  for (size_t i = 8; i < 24; ++i) {
    EXPECT_EQ(last.inputs[i], 0);
    EXPECT_EQ(last.targets[i], kNoTarget);
    EXPECT_EQ(last.starts[i], 0);
  }
  EXPECT_EQ(source.target_count(StepIndex(2)).value(), 32);
  // Of pipelines side by side, some have a microbatch more than there are sequences for.
  const Read beyond = read_all(source, 2, 2, 24);
  EXPECT_THAT(beyond.inputs, ::testing::Each(0));
  EXPECT_THAT(beyond.targets, ::testing::Each(kNoTarget));
  EXPECT_THAT(beyond.starts, ::testing::Each(0));
}

TEST_F(TokenFilesTest, an_epoch_ends_inside_a_step_and_the_step_goes_on) {
  // 29 windows, steps of 4: step 7 takes the last one and the first three of the second epoch.
  plan::JobSpec job = this->job({write("a.txt", counting(240))});
  job.data.epochs = 2;
  TokenSource source = TokenSource::open(job).value();
  EXPECT_EQ(source.steps_available(), 14);
  std::multiset<int32_t> begins;
  for (int64_t step = 0; step < 14; ++step) {
    for (int64_t i = 0; i < 2; ++i) {
      const Read read = read_all(source, step, i, 16);
      begins.insert({read.inputs[0], read.inputs[8]});
    }
  }
  EXPECT_EQ(begins.size(), 56u);
  for (int32_t begin = 0; begin < 232; begin += 8) EXPECT_LE(begins.count(begin), 2u);
  EXPECT_EQ(source.check_supply(15).code(), StatusCode::kOutOfRange);
  EXPECT_THAT(message(source.check_supply(15)), AllOf(HasSubstr("step 14"), HasSubstr("data.epochs 2")));
}

TEST_F(TokenFilesTest, data_without_end_supplies_any_step) {
  plan::JobSpec job = this->job({write("a.txt", counting(240))});
  job.data.epochs = 0;
  TokenSource source = TokenSource::open(job).value();
  EXPECT_TRUE(source.check_supply(10'000'000).ok());
  EXPECT_TRUE(read(source, 9'999'999, 1).ok());
}

TEST_F(TokenFilesTest, sources_with_weights_are_mixed_sample_by_sample) {
  plan::JobSpec job = this->job({write_tokens("small.bin", counting_tokens(500)),
                                 write_tokens("large.bin", counting_tokens(500, 500))});
  job.model.vocab_size = 1000;
  job.data.weights = {1, 3};
  TokenSource source = TokenSource::open(job).value();
  int from_large = 0;
  const int64_t steps = source.steps_available();
  for (int64_t step = 0; step < steps; ++step) {
    for (int64_t i = 0; i < 2; ++i) {
      const Read read = read_all(source, step, i, 16);
      from_large += (read.inputs[0] >= 500) + (read.inputs[8] >= 500);
    }
  }
  EXPECT_EQ(from_large, steps * 3);  // of 4 a step
  EXPECT_THAT(message(source.check_supply(steps + 1)), HasSubstr("large.bin runs out"));
}

TEST_F(TokenFilesTest, validation_takes_the_first_samples_in_order_at_every_step) {
  plan::JobSpec job = this->job({write("a.txt", counting(400))});
  job.validation.data = job.data;
  job.validation.data.sources = {write("held.txt", counting(120, 3))};
  job.validation.every = 10;
  job.validation.microbatches = 3;
  TokenSource held = TokenSource::open_validation(job).value();
  for (const int64_t step : {0, 10, 9'999'990}) {
    for (int64_t i = 0; i < 3; ++i) {
      const Read read = read_all(held, step, i, 16);
      EXPECT_EQ(read.inputs[0], 3 + 16 * i);
      EXPECT_EQ(read.inputs[8], 3 + 16 * i + 8);
    }
    EXPECT_EQ(held.target_count(StepIndex(step)).value(), 48);
  }
  EXPECT_TRUE(held.check_supply(10'000'000).ok());
}

TEST_F(TokenFilesTest, validation_data_that_is_too_short_is_refused_with_the_numbers) {
  plan::JobSpec job = this->job({write("a.txt", counting(400))});
  job.validation.data = job.data;
  job.validation.data.sources = {write("held.txt", counting(120))};  // 14 samples
  job.validation.every = 10;
  job.validation.microbatches = 8;
  const Status status = TokenSource::open_validation(job).status();
  EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
  EXPECT_THAT(message(status), AllOf(HasSubstr("held.txt"), HasSubstr("14 samples"), HasSubstr("takes 16")));
  job.validation.data.sources = {folder_ / "absent.txt"};
  EXPECT_THAT(message(TokenSource::open_validation(job).status()), HasSubstr("validation: data: "));
}

}  // namespace
}  // namespace penstock::worker
