#include "base/atomic_file.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace penstock {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class AtomicFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder = fs::path(::testing::TempDir()) / ("atomic_file_" + std::to_string(getpid()));
    fs::create_directories(folder);
  }
  void TearDown() override { fs::remove_all(folder); }
  std::string path(const std::string& name) const { return (folder / name).string(); }
  std::string text_of(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  fs::path folder;
};

TEST_F(AtomicFileTest, file_is_there_only_once_it_is_committed) {
  auto file = AtomicFile::create(path("a"));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(file->write("half ").ok());
  EXPECT_FALSE(fs::exists(path("a")));
  ASSERT_TRUE(file->write("whole").ok());
  ASSERT_TRUE(file->commit().ok());
  EXPECT_EQ(text_of("a"), "half whole");
  EXPECT_FALSE(fs::exists(path("a.partial")));
}

TEST_F(AtomicFileTest, file_that_is_not_committed_leaves_the_old_one_and_no_draft) {
  ASSERT_TRUE(write_atomically(path("a"), "old").ok());
  {
    auto file = AtomicFile::create(path("a"));
    ASSERT_TRUE(file->write("new").ok());
    const AtomicFile moved = *std::move(file);  // the draft goes with the last owner
    EXPECT_TRUE(fs::exists(path("a.partial")));
  }
  EXPECT_EQ(text_of("a"), "old");
  EXPECT_FALSE(fs::exists(path("a.partial")));
}

TEST_F(AtomicFileTest, a_header_is_overwritten_once_it_is_known) {
  auto file = AtomicFile::create(path("a"));
  ASSERT_TRUE(file->write("?? tokens").ok());
  ASSERT_TRUE(file->overwrite(0, "12").ok());
  ASSERT_TRUE(file->write(", the end").ok());
  ASSERT_TRUE(file->commit().ok());
  EXPECT_EQ(text_of("a"), "12 tokens, the end");
}

TEST_F(AtomicFileTest, folder_that_is_missing_is_named) {
  const auto file = AtomicFile::create(path("none/a"));
  EXPECT_EQ(file.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(message(file.status()), HasSubstr("none/a cannot be made: No such file"));
}

TEST_F(AtomicFileTest, folders_are_made_with_those_above_them_once_and_again) {
  for (int time = 0; time < 2; ++time) ASSERT_TRUE(make_folder(path("x/y/z/")).ok());
  EXPECT_TRUE(fs::is_directory(path("x/y/z")));
  EXPECT_TRUE(make_folder(path("x/y/../w")).ok());
  EXPECT_TRUE(fs::is_directory(path("x/w")));
}

TEST_F(AtomicFileTest, folder_whose_place_is_taken_by_a_file_is_refused_by_name) {
  ASSERT_TRUE(write_atomically(path("a"), "mine").ok());
  for (const char* name : {"a", "a/b"}) {
    const Status status = make_folder(path(name));
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(message(status), HasSubstr(path("a")));
  }
  EXPECT_EQ(text_of("a"), "mine");
}

}  // namespace
}  // namespace penstock
