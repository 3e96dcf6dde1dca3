#include "kernels/device/host_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace penstock::kernels {
namespace {

using ::testing::HasSubstr;

TEST(HostMemory, available_is_what_the_kernel_estimates_and_not_what_is_free) {
  // Free memory leaves out the page cache, and a host that has read much would look full.
  const std::string meminfo =
      "MemTotal:       24630876 kB\nMemFree:         2113504 kB\nMemAvailable:   23001236 kB\nBuffers: 1 kB\n";
  EXPECT_EQ(available_of_host(meminfo), int64_t{23001236} * 1024);
  EXPECT_EQ(available_of_host("MemTotal: 1 kB\n"), std::nullopt);
  EXPECT_EQ(available_of_host(""), std::nullopt);
}

// A tree of control groups on disk, as /sys/fs/cgroup shows it.
class GroupsTest : public ::testing::Test {
 protected:
  ~GroupsTest() override { std::filesystem::remove_all(mount_); }

  void group(const std::string& name, const std::string& limit, int64_t used, int64_t inactive_file) {
    const std::filesystem::path folder = mount_ / name;
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "memory.max") << limit << "\n";
    std::ofstream(folder / "memory.current") << used << "\n";
    std::ofstream(folder / "memory.stat") << "anon 7\nfile 900\ninactive_file " << inactive_file << "\n";
  }

  std::filesystem::path mount_ =
      std::filesystem::path(::testing::TempDir()) / ("penstock_groups_" + std::to_string(::getpid()));
};

TEST_F(GroupsTest, file_pages_that_can_be_taken_back_are_not_used) {
  group("job", "1000", 700, 200);
  EXPECT_EQ(available_of_groups(mount_, "/job"), 500);
}

TEST_F(GroupsTest, the_narrowest_group_above_decides) {
  group("pod", "2000", 1900, 0);
  group("pod/worker", "5000", 100, 0);
  EXPECT_EQ(available_of_groups(mount_, "/pod/worker"), 100);
}

TEST_F(GroupsTest, no_limit_and_no_groups_are_no_bound) {
  group("free", "max", 700, 0);
  EXPECT_EQ(available_of_groups(mount_, "/free"), std::nullopt);
  EXPECT_EQ(available_of_groups(mount_ / "nowhere", "/x"), std::nullopt);
}

TEST_F(GroupsTest, version_1_is_read_too) {
  std::filesystem::create_directories(mount_ / "old");
  std::ofstream(mount_ / "old" / "memory.limit_in_bytes") << "1000\n";
  std::ofstream(mount_ / "old" / "memory.usage_in_bytes") << "600\n";
  std::ofstream(mount_ / "old" / "memory.stat") << "inactive_file 1\ntotal_inactive_file 100\n";
  EXPECT_EQ(available_of_groups(mount_, "/old"), 500);
}

TEST_F(GroupsTest, a_group_over_its_limit_has_nothing_left) {
  group("full", "1000", 1200, 0);
  EXPECT_EQ(available_of_groups(mount_, "/full"), 0);
}

TEST(HostMemory, more_than_there_is_is_refused_with_both_numbers) {
  EXPECT_TRUE(expect_memory(1, "a byte").ok());
  const Status refused = expect_memory(int64_t{1} << 60, "everything");
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(message(refused), HasSubstr("no memory for everything: 1152921504606846976 bytes asked for, "));
}

}  // namespace
}  // namespace penstock::kernels
