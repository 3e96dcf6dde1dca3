// Against files that numpy and Megatron-LM wrote (testing/make_fixtures.py).
#include "base/token_files/token_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kAnyToken = int64_t{1} << 31;

std::string fixture(const std::string& name) {
  return PENSTOCK_SOURCE_DIR "/base/token_files/testing/" + name;
}

StatusOr<TokenFile> open(const std::string& path, const TokenFileOptions& options = {}) {
  return TokenFile::open(path, options);
}

std::vector<int32_t> tokens_of(const TokenFile& file, int64_t first = 0) {
  std::vector<int32_t> tokens(static_cast<size_t>(file.tokens() - first));
  const Status read = file.read(first, tokens, kAnyToken);
  EXPECT_TRUE(read.ok()) << read;
  return tokens;
}

// What make_fixtures.py fills its files with.
std::vector<int32_t> expected(int64_t count, int64_t first = 0) {
  std::vector<int32_t> tokens;
  for (int64_t i = first; i < count; ++i) tokens.push_back(static_cast<int32_t>((i * 7 + 3) % 1000));
  return tokens;
}

class TokenFileTest : public ::testing::Test {
 protected:
  TokenFileTest()
      : folder_(std::filesystem::path(::testing::TempDir()) / fmt::format("penstock_tokens_{}", ::getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~TokenFileTest() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& bytes) {
    std::string path = folder_ / name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  std::string copy(const std::string& name) {
    std::filesystem::copy_file(fixture(name), folder_ / name);
    return folder_ / name;
  }
  static std::string bytes_of_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // Refused by code, with the file's name and the words.
  static void expect_refused(const std::string& path, StatusCode code, const std::string& words) {
    const Status status = open(path).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(message(status), AllOf(HasSubstr(path.substr(0, path.rfind('.'))), HasSubstr(words)));
  }

  std::filesystem::path folder_;
};

TEST_F(TokenFileTest, every_type_and_version_of_npy_is_read) {
  struct Case {
    const char* name;
    TokenType type;
    int64_t tokens;
  };
  for (const Case& each :
       {Case{"uint16.npy", TokenType::UInt16, 300}, Case{"uint32_version2.npy", TokenType::UInt32, 30},
        Case{"int32.npy", TokenType::Int32, 30}, Case{"int64_version3.npy", TokenType::Int64, 30},
        Case{"empty.npy", TokenType::UInt16, 0}}) {
    const StatusOr<TokenFile> file = open(fixture(each.name));
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->format(), TokenFormat::Npy);
    EXPECT_EQ(file->type(), each.type);
    EXPECT_EQ(file->tokens(), each.tokens);
    EXPECT_EQ(tokens_of(*file), expected(each.tokens)) << each.name;
    EXPECT_EQ(file->next_document(0), each.tokens);
  }
}

TEST_F(TokenFileTest, an_array_of_another_kind_is_refused_by_what_it_is) {
  expect_refused(fixture("big_endian.npy"), StatusCode::kInvalidArgument, "found descr >u2");
  expect_refused(fixture("floats.npy"), StatusCode::kInvalidArgument, "found descr <f4");
  expect_refused(fixture("matrix.npy"), StatusCode::kInvalidArgument, "1 dimension, found 2");
  expect_refused(fixture("scalar.npy"), StatusCode::kInvalidArgument, "1 dimension, found 0");
  expect_refused(fixture("record.npy"), StatusCode::kInvalidArgument, "found {'descr': [('a', '<u2')");
  expect_refused(write("text.npy", "hello, I am a text"), StatusCode::kInvalidArgument, "x93NUMPY");
}

TEST_F(TokenFileTest, a_cut_or_longer_npy_file_is_damaged) {
  const std::string whole = bytes_of_file(fixture("uint16.npy"));
  expect_refused(write("short.npy", whole.substr(0, whole.size() - 2)), StatusCode::kDataLoss,
                 "expected 300 tokens of 2 bytes behind the .npy header, found 598 bytes");
  expect_refused(write("odd.npy", whole.substr(0, whole.size() - 1)), StatusCode::kDataLoss, "found 599");
  expect_refused(write("long.npy", whole + "xx"), StatusCode::kDataLoss, "found 602 bytes");
  expect_refused(write("header.npy", whole.substr(0, 100)), StatusCode::kDataLoss, "found only 100");
  expect_refused(write("magic.npy", whole.substr(0, 7)), StatusCode::kDataLoss, "only 7 bytes");
}

TEST_F(TokenFileTest, raw_files_are_what_the_options_say) {
  const TokenFile wide =
      open(fixture("uint32_raw.bin"), {.format = {}, .bin_type = TokenType::UInt32}).value();
  EXPECT_EQ(wide.format(), TokenFormat::Bin);
  EXPECT_EQ(tokens_of(wide), expected(30));
  const TokenFile narrow = open(fixture("uint32_raw.bin")).value();
  EXPECT_EQ(narrow.tokens(), 60);
  EXPECT_EQ(tokens_of(narrow)[2], expected(30)[1]);
  expect_refused(write("odd.bin", "abc"), StatusCode::kDataLoss,
                 "whole tokens of 2 bytes (uint16), found 3 bytes");
}

TEST_F(TokenFileTest, every_byte_of_a_text_is_a_token) {
  const TokenFile text = open(write("a.txt", "az\xff")).value();
  EXPECT_EQ(text.format(), TokenFormat::Text);
  EXPECT_THAT(tokens_of(text), ElementsAre('a', 'z', 255));
}

TEST_F(TokenFileTest, megatron_files_are_read_by_any_of_their_names) {
  for (const char* name : {"megatron_uint16", "megatron_int32"}) {
    for (const char* ending : {".bin", ".idx"}) {
      const TokenFile file = open(fixture(std::string(name) + ending)).value();
      EXPECT_EQ(file.format(), TokenFormat::Megatron);
      EXPECT_EQ(file.path(), fixture(name) + ".bin");
      EXPECT_EQ(tokens_of(file), expected(30));
    }
    const TokenFile stem = open(fixture(name), {.format = TokenFormat::Megatron}).value();
    EXPECT_EQ(tokens_of(stem, 29), expected(30, 29));
  }
}

TEST_F(TokenFileTest, documents_of_megatron_files_begin_where_the_index_says) {
  // make_fixtures.py: documents of 12, 5 + 3, 0 and 10 tokens.
  const TokenFile file = open(fixture("megatron_uint16.bin")).value();
  EXPECT_EQ(file.documents(), 4);
  EXPECT_EQ(file.next_document(0), 0);
  EXPECT_EQ(file.next_document(1), 12);
  EXPECT_EQ(file.next_document(12), 12);
  EXPECT_EQ(file.next_document(13), 20);
  EXPECT_EQ(file.next_document(21), 30);
  EXPECT_EQ(file.next_document(30), 30);
}

TEST_F(TokenFileTest, a_damaged_megatron_index_is_refused_with_its_place) {
  const std::string bin = copy("megatron_uint16.bin");
  const std::string whole = bytes_of_file(fixture("megatron_uint16.idx"));
  const auto damaged = [&](size_t at, char byte) {
    std::string bytes = whole;
    bytes[at] = byte;
    write("megatron_uint16.idx", bytes);
  };
  const auto cut = [&](size_t size) { write("megatron_uint16.idx", whole.substr(0, size)); };
  damaged(0, 'X');
  expect_refused(bin, StatusCode::kInvalidArgument, "does not begin with MMIDIDX");
  damaged(9, 2);
  expect_refused(bin, StatusCode::kInvalidArgument, "version 1, found 2");
  damaged(17, 7);  // float32
  expect_refused(bin, StatusCode::kInvalidArgument, "found code 7");
  damaged(25, 0x7f);  // so many sequences that a product would overflow
  expect_refused(bin, StatusCode::kDataLoss, "found only 100 bytes");
  damaged(37, -1);  // length of the first sequence
  expect_refused(bin, StatusCode::kDataLoss, "sequence 0: expected a length");
  damaged(34, 13);
  expect_refused(bin, StatusCode::kDataLoss, "sequence 1: expected to begin at byte 26");
  damaged(94 + 8, 9);  // second document index
  expect_refused(bin, StatusCode::kDataLoss, "document index 1: expected a sequence from 0 to 5, found 9");
  cut(133);
  expect_refused(bin, StatusCode::kDataLoss, "expected 5 sequences and 5 document indices");
  cut(20);
  expect_refused(bin, StatusCode::kDataLoss, "at least 34 bytes, found 20");
  write("megatron_uint16.idx", whole + "x");
  expect_refused(bin, StatusCode::kDataLoss, "an index of 134 bytes, found 135");
  write("megatron_uint16.idx", whole);
  EXPECT_TRUE(open(bin).ok());
  std::filesystem::resize_file(bin, 58);
  expect_refused(bin, StatusCode::kDataLoss, "expected the 30 tokens (uint16)");
  std::filesystem::remove(bin);
  expect_refused(bin, StatusCode::kNotFound, "does not exist");
}

TEST_F(TokenFileTest, a_token_outside_the_vocabulary_is_named_with_its_place) {
  struct Case {
    std::string path;
    int64_t vocabulary;
    const char* words;
  };
  for (const Case& each :
       {Case{fixture("uint16.npy"), 997,
             "holds token 997 at place 142 (byte 412), the vocabulary ends at 996"},
        Case{fixture("negative.npy"), kAnyToken, "token -1 at place 2 (byte 136)"},
        Case{fixture("beyond_int32.npy"), kAnyToken, "token 1099511627776 at place 1 (byte 136)"}}) {
    const TokenFile file = open(each.path).value();
    std::vector<int32_t> tokens(static_cast<size_t>(file.tokens()));
    const Status status = file.read(0, tokens, each.vocabulary);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(message(status), AllOf(HasSubstr(each.path), HasSubstr(each.words)));
  }
}

TEST_F(TokenFileTest, a_file_that_changes_while_it_is_open_is_an_error) {
  const TokenFile file = open(copy("uint16.npy")).value();
  std::filesystem::resize_file(folder_ / "uint16.npy", 200);
  std::vector<int32_t> tokens(300);
  EXPECT_EQ(file.read(0, tokens, 1000).code(), StatusCode::kDataLoss);

  const std::string bin = copy("megatron_int32.bin");
  copy("megatron_int32.idx");
  const TokenFile indexed = open(bin).value();
  std::filesystem::resize_file(folder_ / "megatron_int32.idx", 100);
  EXPECT_EQ(indexed.read(0, std::span(tokens).first(30), 1000).code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace penstock
