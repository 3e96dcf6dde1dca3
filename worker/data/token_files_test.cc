// Files of tokens: their types, documents, targets that are counted, epochs, mixtures and validation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "worker/data/testing/text_sources.h"
#include "worker/data/token_source.h"

namespace penstock::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

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

TEST_F(TokenFilesTest, files_of_tokens_are_read_in_their_types) {
  const std::string root = PENSTOCK_SOURCE_DIR "/base/token_files/testing/";
  for (const char* name :
       {"uint16.npy", "int32.npy", "megatron_int32.bin", "megatron_uint16.idx", "uint32_version2.npy"}) {
    plan::JobSpec wanted = job({root + name});
    wanted.model.vocab_size = 1000;
    wanted.train.global_batch_size = 1;
    wanted.train.microbatch_size = 1;
    TokenSource source = TokenSource::open(wanted).value();
    const Microbatch batch = read(source, 0, 0, 8).value();
    // make_fixtures.py: token i is (7 i + 3) mod 1000, windows begin at multiples of 8.
    EXPECT_EQ((batch.inputs[0] + 1000 - 3) * 143 % 1000 % 8, 0) << name;  // 143 is the inverse of 7
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_EQ(batch.targets[i], (batch.inputs[i] + 7) % 1000) << name;
      EXPECT_EQ(batch.starts[i], 0);
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
  const Microbatch batch = read(source, 0, 0, 8).value();
  EXPECT_EQ(batch.inputs, (std::vector<int32_t>{5, 6, 0, 7, 0, 0, 8, 9}));
  EXPECT_EQ(batch.starts, (std::vector<int32_t>{0, 0, 0, 3, 3, 5, 6, 6}));
  EXPECT_EQ(batch.targets, (std::vector<int32_t>{6, 0, -1, 0, -1, -1, 9, 10}));
  EXPECT_EQ(source.target_count(StepIndex(0)).value(), 5);
}

TEST_F(TokenFilesTest, without_the_key_documents_are_one_row) {
  TokenSource source = TokenSource::open(one_window({5, 6, 0, 7, 0, 0, 8, 9, 10})).value();
  const Microbatch batch = read(source, 0, 0, 8).value();
  EXPECT_EQ(batch.starts, std::vector<int32_t>(8, 0));
  EXPECT_EQ(batch.targets, (std::vector<int32_t>{6, 0, 7, 0, 0, 8, 9, 10}));
  EXPECT_EQ(source.target_count(StepIndex(0)).value(), 8);
}

TEST_F(TokenFilesTest, the_last_target_is_masked_when_the_next_document_begins_with_it) {
  plan::JobSpec job = one_window({5, 6, 7, 8, 9, 10, 11, 0, 12});
  job.data.end_of_document = 0;
  TokenSource source = TokenSource::open(job).value();
  const Microbatch batch = read(source, 0, 0, 8).value();
  EXPECT_EQ(batch.targets.back(), -1);
  EXPECT_EQ(batch.starts, std::vector<int32_t>(8, 0));
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
  const Microbatch batch = read(source, 0, 0, 29).value();
  for (size_t i = 0; i < 29; ++i) {
    EXPECT_EQ(batch.starts[i], i < 12 ? 0 : i < 20 ? 12 : 20) << i;
    EXPECT_EQ(batch.targets[i] == -1, i == 11 || i == 19) << i;
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
      const Microbatch batch = read(source, step, i, 16).value();
      counted += std::count_if(batch.targets.begin(), batch.targets.end(), [](int32_t t) { return t >= 0; });
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
  const Microbatch last = read(source, 2, 1, 24).value();
  const Microbatch even = read(even_source, 2, 1, 16).value();
  EXPECT_TRUE(std::equal(last.inputs.begin(), last.inputs.begin() + 8, even.inputs.begin() + 8));
  EXPECT_TRUE(std::equal(last.targets.begin(), last.targets.begin() + 8, even.targets.begin() + 8));
  for (size_t i = 8; i < 24; ++i) {
    EXPECT_EQ(last.inputs[i], 0);
    EXPECT_EQ(last.targets[i], kNoTarget);
    EXPECT_EQ(last.starts[i], 0);
  }
  EXPECT_EQ(source.target_count(StepIndex(2)).value(), 32);
  // Of pipelines side by side, some have a microbatch more than there are sequences for.
  const Microbatch beyond = read(source, 2, 2, 24).value();
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
      const Microbatch batch = read(source, step, i, 16).value();
      begins.insert({batch.inputs[0], batch.inputs[8]});
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
      const Microbatch batch = read(source, step, i, 16).value();
      from_large += (batch.inputs[0] >= 500) + (batch.inputs[8] >= 500);
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
      const Microbatch batch = read(held, step, i, 16).value();
      EXPECT_EQ(batch.inputs[0], 3 + 16 * i);
      EXPECT_EQ(batch.inputs[8], 3 + 16 * i + 8);
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
