#include "base/file_lock.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>

namespace penstock {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class FileLockTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  const fs::path folder_ = fs::path(::testing::TempDir()) / ("file_lock_" + std::to_string(getpid()));
  const std::string path_ = folder_ / ".lock";
};

TEST_F(FileLockTest, second_holder_is_refused_and_told_the_first) {
  auto first = FileLock::take(path_, "job a of host-1, process 7");
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = FileLock::take(path_, "job b");
  EXPECT_EQ(second.status().code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(message(second.status()), AllOf(HasSubstr(path_), HasSubstr("job a of host-1, process 7")));
}

TEST_F(FileLockTest, ends_with_its_holder_and_the_next_one_is_told_by_name) {
  std::optional<FileLock> held = FileLock::take(path_, "a long line of the first one, who has left").value();
  held.reset();
  const auto next = FileLock::take(path_, "second");
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_THAT(message(FileLock::take(path_, "third").status()), ::testing::EndsWith("held by second"));
}

TEST_F(FileLockTest, moves_with_its_owner) {
  FileLock first = FileLock::take(path_, "first").value();
  const FileLock moved = std::move(first);
  EXPECT_FALSE(FileLock::take(path_, "second").ok());
}

TEST_F(FileLockTest, ends_with_the_process_that_was_killed) {
  int told[2];
  ASSERT_EQ(pipe(told), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto held = FileLock::take(path_, "child");
    const char answer = held.ok() ? 'y' : 'n';
    (void)!write(told[1], &answer, 1);
    pause();
  }
  char answer = 'n';
  ASSERT_EQ(read(told[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  EXPECT_THAT(message(FileLock::take(path_, "parent").status()), HasSubstr("held by child"));
  ::kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(FileLock::take(path_, "parent").ok());
}

TEST_F(FileLockTest, file_that_cannot_be_made_is_told_by_its_path) {
  const auto lock = FileLock::take((folder_ / "nowhere/.lock").string(), "a");
  EXPECT_EQ(lock.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(message(lock.status()), HasSubstr("nowhere/.lock cannot be opened"));
}

TEST_F(FileLockTest, what_stands_in_the_file_is_shown_as_text) {
  std::ofstream(path_, std::ios::binary) << "\x1b[2J" << std::string(5000, 'x');
  const FileDescriptor fd(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(flock(fd.get(), LOCK_EX | LOCK_NB), 0);
  const std::string told = message(FileLock::take(path_, "a").status());
  EXPECT_EQ(told.find('\x1b'), std::string::npos);
  EXPECT_LT(told.size(), 400u);
}

}  // namespace
}  // namespace penstock
