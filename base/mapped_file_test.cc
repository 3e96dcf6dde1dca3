#include "base/mapped_file.h"

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

class MappedFileTest : public ::testing::Test {
 protected:
  MappedFileTest()
      : folder_(std::filesystem::path(::testing::TempDir()) / fmt::format("penstock_map_{}", ::getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~MappedFileTest() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    std::string path = folder_ / name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  std::filesystem::path folder_;
};

std::string text_of(const MappedFile& file) {
  return {file.bytes().begin(), file.bytes().end()};
}

TEST_F(MappedFileTest, bytes_are_those_of_the_file_and_move_with_it) {
  MappedFile first = MappedFile::open(write("a", "hello")).value();
  MappedFile second = std::move(first);
  EXPECT_EQ(text_of(second), "hello");
  EXPECT_EQ(first.size(), 0);  // NOLINT: what is left behind is empty, not dangling
  second = MappedFile::open(write("b", "other text")).value();
  EXPECT_EQ(text_of(second), "other text");
  EXPECT_TRUE(second.check_unchanged().ok());
}

TEST_F(MappedFileTest, an_empty_file_is_open_and_holds_nothing) {
  const MappedFile file = MappedFile::open(write("empty", "")).value();
  EXPECT_TRUE(file.bytes().empty());
  EXPECT_TRUE(file.check_unchanged().ok());
}

TEST_F(MappedFileTest, what_is_no_file_is_refused_by_name) {
  EXPECT_EQ(MappedFile::open(folder_ / "absent").status().code(), StatusCode::kNotFound);
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {folder_.string(), pipe}) {
    const Status status = MappedFile::open(path).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(message(status), AllOf(HasSubstr(path), HasSubstr("not a regular file")));
  }
}

TEST_F(MappedFileTest, a_file_that_is_cut_grown_replaced_or_deleted_has_changed) {
  // Touching a page that is gone would end the process.
  const std::string path = write("a", std::string(10000, 'a'));
  const MappedFile file = MappedFile::open(path).value();
  std::filesystem::resize_file(path, 3);
  EXPECT_EQ(file.check_unchanged().code(), StatusCode::kDataLoss);
  EXPECT_THAT(message(file.check_unchanged()), AllOf(HasSubstr("3 bytes"), HasSubstr("10000")));
  std::filesystem::resize_file(path, 10001);
  EXPECT_THAT(message(file.check_unchanged()), HasSubstr("10001 bytes"));
  std::filesystem::resize_file(path, 10000);
  EXPECT_TRUE(file.check_unchanged().ok());
  std::filesystem::rename(write("b", std::string(10000, 'b')), path);
  EXPECT_THAT(message(file.check_unchanged()), HasSubstr("replaced"));
  std::filesystem::remove(path);
  EXPECT_THAT(message(file.check_unchanged()), HasSubstr("cannot be found"));
}

}  // namespace
}  // namespace penstock
