#include "base/file_descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>

namespace penstock {
namespace {

bool is_open(int fd) {
  return ::fcntl(fd, F_GETFD) >= 0;
}

FileDescriptor open_null() {
  return FileDescriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

TEST(FileDescriptor, closes_what_it_owns_at_its_end) {
  int fd = -1;
  {
    const FileDescriptor owner = open_null();
    fd = owner.get();
    EXPECT_TRUE(owner.is_open());
    EXPECT_TRUE(is_open(fd));
  }
  EXPECT_FALSE(is_open(fd));
}

TEST(FileDescriptor, a_move_hands_over_and_closes_what_the_target_had) {
  FileDescriptor first = open_null();
  FileDescriptor second = open_null();
  const int kept = first.get();
  const int replaced = second.get();
  second = std::move(first);
  EXPECT_EQ(second.get(), kept);
  EXPECT_TRUE(is_open(kept));
  EXPECT_FALSE(is_open(replaced));
  const FileDescriptor third(std::move(second));
  EXPECT_EQ(third.get(), kept);
  EXPECT_FALSE(second.is_open());  // NOLINT: what a moved-from one owns is promised
}

TEST(FileDescriptor, reset_keeps_the_error_number_of_what_failed_before) {
  FileDescriptor owner = open_null();
  errno = EACCES;
  owner.reset();
  EXPECT_EQ(errno, EACCES);
  EXPECT_EQ(owner.get(), -1);
}

}  // namespace
}  // namespace penstock
