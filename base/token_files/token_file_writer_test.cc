#include "base/token_files/token_file_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

namespace penstock {
namespace {

using ::testing::HasSubstr;

class TokenFileWriterTest : public ::testing::Test {
 protected:
  TokenFileWriterTest()
      : folder_(std::filesystem::path(::testing::TempDir()) / fmt::format("penstock_writer_{}", ::getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~TokenFileWriterTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ / name; }
  static std::string bytes_of_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static std::string fixture(const std::string& name) {
    return bytes_of_file(PENSTOCK_SOURCE_DIR "/base/token_files/testing/" + name);
  }

  // The tokens of testing/make_fixtures.py, in documents of these lengths.
  void write(const std::string& name, TokenFormat format, int64_t vocabulary,
             const std::vector<int64_t>& documents) {
    TokenFileWriter writer =
        TokenFileWriter::create(path(name), {.format = format, .vocabulary = vocabulary}).value();
    int64_t next = 0;
    for (const int64_t length : documents) {
      std::vector<int32_t> tokens;
      for (int64_t i = 0; i < length; ++i, ++next)
        tokens.push_back(static_cast<int32_t>((next * 7 + 3) % 1000));
      ASSERT_TRUE(writer.write(tokens).ok());
      ASSERT_TRUE(writer.end_document().ok());
    }
    EXPECT_FALSE(std::filesystem::exists(path(name)));
    ASSERT_TRUE(writer.commit().ok());
    EXPECT_EQ(writer.tokens(), next);
    EXPECT_EQ(writer.documents(), static_cast<int64_t>(documents.size()));
  }

  std::filesystem::path folder_;
};

TEST_F(TokenFileWriterTest, npy_files_are_those_that_numpy_writes) {
  write("narrow.npy", TokenFormat::Npy, 65536, {300});
  EXPECT_EQ(bytes_of_file(path("narrow.npy")), fixture("uint16.npy"));
  write("none.npy", TokenFormat::Npy, 1000, {});
  EXPECT_EQ(bytes_of_file(path("none.npy")), fixture("empty.npy"));
}

TEST_F(TokenFileWriterTest, raw_files_hold_nothing_but_tokens) {
  write("wide.bin", TokenFormat::Bin, 65537, {20, 10});
  EXPECT_EQ(bytes_of_file(path("wide.bin")), fixture("uint32_raw.bin"));
}

TEST_F(TokenFileWriterTest, megatron_files_are_those_that_megatron_writes) {
  // But for its document of two sequences: ours have one each, so only the index of the tokens is the same.
  write("narrow.bin", TokenFormat::Megatron, 1000, {12, 5, 3, 0, 10});
  EXPECT_EQ(bytes_of_file(path("narrow.bin")), fixture("megatron_uint16.bin"));
  std::string index = fixture("megatron_uint16.idx");
  index[26] = 6;  // document indices: 0 to 5
  index.resize(94);
  for (char i = 0; i < 6; ++i) index += std::string{i, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(bytes_of_file(path("narrow.idx")), index);

  write("wide.bin", TokenFormat::Megatron, 100'000, {30});
  EXPECT_EQ(bytes_of_file(path("wide.bin")), fixture("megatron_int32.bin"));
}

TEST_F(TokenFileWriterTest, what_is_written_is_read_back) {
  // More than a buffer of it.
  write("long.bin", TokenFormat::Megatron, 1000, {700'000, 1, 400'000});
  const TokenFile file = TokenFile::open(path("long.bin"), {}).value();
  EXPECT_EQ(file.format(), TokenFormat::Megatron);
  ASSERT_EQ(file.tokens(), 1'100'001);
  std::vector<int32_t> tokens(1'100'001);
  ASSERT_TRUE(file.read(0, tokens, 1000).ok());
  for (int64_t i = 0; i < file.tokens(); ++i) ASSERT_EQ(tokens[i], (i * 7 + 3) % 1000);
  EXPECT_EQ(file.next_document(700'001), 700'001);
}

TEST_F(TokenFileWriterTest, a_writer_that_gives_up_leaves_nothing) {
  {
    TokenFileWriter writer =
        TokenFileWriter::create(path("a.bin"), {.format = TokenFormat::Megatron, .vocabulary = 10}).value();
    const std::vector<int32_t> tokens = {1, 10};
    const Status status = writer.write(tokens);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(message(status), HasSubstr("token 10 at place 1: expected one from 0 to 9"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(TokenFileWriterTest, a_name_that_says_another_format_is_refused) {
  const auto refusal = [&](const std::string& name, TokenFormat format) {
    return message(TokenFileWriter::create(path(name), {.format = format, .vocabulary = 10}).status());
  };
  EXPECT_THAT(refusal("a.bin", TokenFormat::Npy), HasSubstr("ends with .npy"));
  EXPECT_THAT(refusal("a", TokenFormat::Megatron), HasSubstr("ends with .bin"));
  std::ofstream(path("a.idx")) << "index";
  EXPECT_THAT(refusal("a.bin", TokenFormat::Bin), HasSubstr("would make it a Megatron file"));
}

}  // namespace
}  // namespace penstock
