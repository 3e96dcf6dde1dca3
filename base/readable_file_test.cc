#include "base/readable_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ReadableFileTest : public ::testing::Test {
 protected:
  ReadableFileTest()
      : folder_(std::filesystem::path(::testing::TempDir()) /
                fmt::format("penstock_readable_{}", ::getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~ReadableFileTest() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = folder_ / name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  static Status read(const ReadableFile& file, int64_t offset, std::string& text) {
    return file.read(offset, std::as_writable_bytes(std::span(text)));
  }

  std::filesystem::path folder_;
};

TEST_F(ReadableFileTest, pieces_are_those_of_the_file) {
  const ReadableFile file = ReadableFile::open(write("a", "hello there")).value();
  EXPECT_EQ(file.size(), 11);
  std::string piece(5, '?');
  ASSERT_TRUE(read(file, 6, piece).ok());
  EXPECT_EQ(piece, "there");
  std::string none;
  EXPECT_TRUE(read(file, 11, none).ok());
  EXPECT_EQ(file.read_all(11).value(), "hello there");
  EXPECT_THAT(message(file.read_all(10).status()), HasSubstr("expected at most 10 bytes, found 11"));
  EXPECT_EQ(ReadableFile::open(write("empty", "")).value().read_all(0).value(), "");
}

TEST_F(ReadableFileTest, what_is_no_file_is_refused_by_name) {
  EXPECT_EQ(ReadableFile::open(folder_ / "absent").status().code(), StatusCode::kNotFound);
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {folder_.string(), pipe}) {
    const Status status = ReadableFile::open(path).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(message(status), HasSubstr(path));
  }
}

TEST_F(ReadableFileTest, file_that_is_cut_replaced_or_gone_is_data_loss_that_says_how) {
  const std::string path = write("a", "hello there");
  const ReadableFile file = ReadableFile::open(path).value();
  std::string piece(5, '?');
  std::filesystem::resize_file(path, 8);
  EXPECT_EQ(read(file, 0, piece).code(), StatusCode::kDataLoss);
  EXPECT_THAT(message(read(file, 0, piece)), AllOf(HasSubstr(path), HasSubstr("has 8 bytes, it had 11")));
  std::filesystem::rename(write("b", "HELLO THERE"), path);
  EXPECT_THAT(message(read(file, 0, piece)), HasSubstr("has been replaced by another file"));
  std::filesystem::remove(path);
  EXPECT_THAT(message(read(file, 0, piece)), HasSubstr("cannot be opened any more: No such file"));
  EXPECT_EQ(piece, "?????");
}

}  // namespace
}  // namespace penstock
