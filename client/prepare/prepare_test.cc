// From text to a tokenizer, to files of tokens in every format, and back to the text.
#include "client/prepare/prepare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/tokenizer/tokenizer.h"

namespace penstock::client {
namespace {

using ::testing::HasSubstr;

void ignore(int64_t, int64_t) {}

class PrepareTest : public ::testing::Test {
 protected:
  PrepareTest()
      : folder_(std::filesystem::path(::testing::TempDir()) /
                fmt::format("penstock_prepare_{}", ::getpid())) {
    std::filesystem::create_directories(folder_);
    std::string text;
    for (int i = 0; i < 400; ++i) {
      text +=
          fmt::format("turbine {} turns water {} times, the penstock {} feeds it\n", i, i * i % 97, i % 13);
    }
    texts_ = {write("a.txt", text), write("b.txt", "a short document\nof two lines\n")};
  }
  ~PrepareTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ / name; }
  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }
  static std::string bytes_of_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string trained() {
    const StatusOr<TrainedTokenizer> result =
        train_tokenizer({.texts = texts_, .model = path("tokenizer.model"), .vocabulary = 320}, ignore);
    EXPECT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->vocabulary, 320);
    EXPECT_EQ(result->end_of_document, 2);
    return path("tokenizer.model");
  }
  TokenizeOptions options(const std::string& target) {
    return {.texts = texts_,
            .model = trained(),
            .target = path(target),
            .format = std::nullopt,
            .end_of_document = std::nullopt};
  }

  std::filesystem::path folder_;
  std::vector<std::string> texts_;
};

TEST_F(PrepareTest, every_format_holds_the_text) {
  const auto tokenizer = load_sentencepiece(bytes_of_file(trained())).value();
  for (const char* target : {"tokens.npy", "tokens.bin", "megatron.bin"}) {
    TokenizeOptions wanted = options(target);
    if (std::string(target) == "megatron.bin") wanted.format = TokenFormat::Megatron;
    const StatusOr<Tokenized> result = tokenize(wanted, ignore);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->documents, 2);
    EXPECT_EQ(result->type, TokenType::UInt16);

    const TokenFile file = TokenFile::open(path(target), {}).value();
    EXPECT_EQ(file.format(), result->format);
    std::vector<int32_t> tokens(static_cast<size_t>(file.tokens()));
    ASSERT_TRUE(file.read(0, tokens, 320).ok());
    const auto end = std::find(tokens.begin(), tokens.end(), 2);
    ASSERT_NE(end, tokens.end());
    EXPECT_EQ(tokens.back(), 2);
    EXPECT_EQ(tokenizer->decode(std::span(tokens.begin(), end)).value(), bytes_of_file(texts_[0]));
    EXPECT_EQ(tokenizer->decode(std::span(end + 1, tokens.end() - 1)).value(), bytes_of_file(texts_[1]));
    if (file.documents()) {
      EXPECT_EQ(file.next_document(1), end + 1 - tokens.begin());
    }
  }
}

TEST_F(PrepareTest, the_same_text_gives_the_same_files) {
  const TokenizeOptions first = options("first.npy");
  const std::string model = bytes_of_file(first.model);
  const TokenizeOptions second = options("second.npy");
  EXPECT_EQ(bytes_of_file(second.model), model);
  ASSERT_TRUE(tokenize(first, ignore).ok() && tokenize(second, ignore).ok());
  EXPECT_EQ(bytes_of_file(path("first.npy")), bytes_of_file(path("second.npy")));
}

TEST_F(PrepareTest, a_document_a_line_has_its_end_behind_every_line) {
  TokenizeOptions lines = options("lines.bin");
  lines.document = Document::Line;
  lines.format = TokenFormat::Megatron;
  lines.end_of_document = -1;
  const Tokenized without = tokenize(lines, ignore).value();
  lines.end_of_document = 319;
  const Tokenized with = tokenize(lines, ignore).value();
  EXPECT_EQ(with.documents, 402);
  EXPECT_EQ(with.tokens, without.tokens + 402);
}

TEST_F(PrepareTest, progress_ends_at_the_last_byte) {
  int64_t done = 0;
  int64_t total = 0;
  ASSERT_TRUE(tokenize(options("a.npy"), [&](int64_t bytes, int64_t all) {
                done = bytes;
                total = all;
              }).ok());
  EXPECT_EQ(done, total);
  EXPECT_EQ(total, static_cast<int64_t>(bytes_of_file(texts_[0]).size() + bytes_of_file(texts_[1]).size()));
}

TEST_F(PrepareTest, what_cannot_be_leaves_no_file) {
  TokenizeOptions wanted = options("a.npy");
  wanted.end_of_document = 320;
  EXPECT_THAT(message(tokenize(wanted, ignore).status()),
              HasSubstr("--end-of-document 320: expected one of the 320"));
  wanted = options("a.npy");
  wanted.texts.push_back(write("latin.txt", "d\xe9j\xe0"));
  EXPECT_THAT(message(tokenize(wanted, ignore).status()), HasSubstr("latin.txt: byte 1 is not UTF-8"));
  wanted = options("a.npy");
  wanted.model = texts_[0];
  EXPECT_THAT(message(tokenize(wanted, ignore).status()), HasSubstr("a.txt: expected a SentencePiece model"));
  for (const char* name : {"a.npy", "a.npy.partial"})
    EXPECT_FALSE(std::filesystem::exists(path(name))) << name;

  const Status training =
      train_tokenizer({.texts = texts_, .model = path("big.model"), .vocabulary = 100'000}, ignore).status();
  EXPECT_THAT(message(training), HasSubstr("Vocabulary size too high"));
  EXPECT_FALSE(std::filesystem::exists(path("big.model")));
}

}  // namespace
}  // namespace penstock::client
