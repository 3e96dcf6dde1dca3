#include "base/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <vector>

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string bytes_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Lines of a small language: words of one to three syllables, drawn by a linear congruence.
SentencePieceTraining training(int64_t vocabulary, int lines = 400) {
  SentencePieceTraining training{.vocabulary = vocabulary, .next_line = nullptr};
  training.next_line = [left = lines, state = 1u](std::string& line) mutable -> StatusOr<bool> {
    if (left-- == 0) return false;
    constexpr const char* kSyllables[] = {"pen", "stock", "tur", "bine", "wa", "ter", "flow", "head"};
    const auto draw = [&](unsigned limit) {
      state = state * 1664525u + 1013904223u;
      return (state >> 16) % limit;
    };
    line = "the";
    for (int word = 0; word < 6; ++word) {
      line += ' ';
      for (unsigned i = draw(3) + 1; i > 0; --i) line += kSyllables[draw(8)];
    }
    return true;
  };
  return training;
}

std::unique_ptr<Tokenizer> trained(int64_t vocabulary) {
  return load_sentencepiece(train_sentencepiece(training(vocabulary)).value()).value();
}

TEST(Tokenizer, encodes_as_the_python_wheel_does) {
  // testing/make_fixtures.py printed these, with another version of the library.
  const auto tokenizer =
      load_sentencepiece(bytes_of_file(PENSTOCK_SOURCE_DIR "/base/tokenizer/testing/llama_like.model"))
          .value();
  EXPECT_EQ(tokenizer->vocabulary(), 400);
  EXPECT_EQ(tokenizer->end_of_document(), 2);
  EXPECT_THAT(tokenizer->encode("In the beginning God created the heaven and the earth.").value(),
              ElementsAre(302, 343, 261, 296, 358, 270, 343, 310, 338, 375, 330, 282, 273, 284, 286, 261, 295,
                          341, 361, 281, 267, 261, 318, 287, 259, 362));
  EXPECT_THAT(tokenizer->encode("").value(), IsEmpty());
  EXPECT_THAT(tokenizer->encode(" two  spaces ").value(), ElementsAre(317, 354, 344, 264, 359, 331, 289));
  EXPECT_THAT(tokenizer->encode("naïve café – 日本 🙂").value(),
              ElementsAre(308, 341, 198, 178, 333, 282, 341, 350, 198, 172, 338, 229, 131, 150, 338, 233, 154,
                          168, 233, 159, 175, 338, 243, 162, 156, 133));
  EXPECT_THAT(tokenizer->encode("line one\nline two\n\n").value(),
              ElementsAre(298, 270, 339, 266, 343, 339, 13, 349, 270, 339, 317, 354, 344, 13, 13));
  EXPECT_THAT(tokenizer->encode(std::string("\0\x7f", 2)).value(), ElementsAre(338, 3, 130));
}

TEST(Tokenizer, what_it_was_trained_to_encode_it_decodes_to_the_last_space) {
  // A model that trains on its own output must be able to say what it read.
  const auto tokenizer = trained(320);
  EXPECT_EQ(tokenizer->vocabulary(), 320);
  EXPECT_EQ(tokenizer->end_of_document(), 2);
  for (const std::string& text :
       {std::string("the penstock water"), std::string("  two\tspaces \n\n and lines\r\n"),
        std::string("naïve 日本 🙂"), std::string("\0 zero", 6), std::string()}) {
    const std::vector<int32_t> tokens = tokenizer->encode(text).value();
    EXPECT_EQ(tokenizer->decode(tokens).value(), text);
  }
  EXPECT_LT(tokenizer->encode("penstock turbine")->size(), 10u);  // words were learnt, not letters
}

TEST(Tokenizer, a_text_cut_behind_its_newlines_has_the_same_tokens) {
  // Long documents are encoded piece by piece.
  const auto tokenizer = trained(320);
  std::vector<int32_t> joined = tokenizer->encode("the penstock\n").value();
  const std::vector<int32_t> second = tokenizer->encode("water turbine").value();
  joined.insert(joined.end(), second.begin(), second.end());
  EXPECT_EQ(joined, tokenizer->encode("the penstock\nwater turbine").value());
}

TEST(Tokenizer, the_same_lines_train_the_same_model) {
  EXPECT_EQ(train_sentencepiece(training(320)).value(), train_sentencepiece(training(320)).value());
  SentencePieceTraining bpe = training(320);
  bpe.kind = "bpe";
  EXPECT_NE(train_sentencepiece(training(320)).value(), train_sentencepiece(bpe).value());
}

TEST(Tokenizer, a_vocabulary_that_cannot_be_is_refused_with_the_reason) {
  const Status large = train_sentencepiece(training(100'000)).status();
  EXPECT_EQ(large.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(message(large), HasSubstr("Vocabulary size too high"));
  const Status small = train_sentencepiece(training(100)).status();
  EXPECT_EQ(small.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(message(small), HasSubstr("Vocabulary size is smaller than required_chars"));
}

TEST(Tokenizer, lines_that_cannot_be_read_end_the_training_with_their_error) {
  SentencePieceTraining broken = training(320);
  broken.next_line = [](std::string&) -> StatusOr<bool> { return data_loss("the file is gone"); };
  EXPECT_EQ(message(train_sentencepiece(broken).status()), "the file is gone");
}

TEST(Tokenizer, a_text_without_lines_trains_nothing) {
  const Status status = train_sentencepiece(training(320, 0)).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
}

TEST(Tokenizer, what_is_no_model_is_refused) {
  for (const std::string& text :
       {std::string(), std::string("hello, I am a text"), std::string(1000, '\xff')}) {
    const Status status = load_sentencepiece(text).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(message(status), HasSubstr("expected a SentencePiece model"));
  }
}

TEST(Tokenizer, tokens_outside_the_vocabulary_are_not_decoded) {
  const std::vector<int32_t> tokens = {5, 320};
  EXPECT_EQ(message(trained(320)->decode(tokens).status()), "token 320: expected one from 0 to 319");
}

}  // namespace
}  // namespace penstock
