#include "worker/agent/addresses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock::worker {
namespace {

TEST(Addresses, data_address_is_of_one_host) {
  for (const char* good : {"127.0.0.1", "10.0.0.7", "::1", "fe80::1"})
    EXPECT_TRUE(check_data_address(good).ok()) << good;
  for (const char* bad : {"", "node-3", "10.0.0", "10.0.0.7:9", "[::1]", "0.0.0.0", "::", "255.255.255.255",
                          "224.0.0.1", "ff02::1"}) {
    const Status checked = check_data_address(bad);
    EXPECT_EQ(checked.code(), StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(message(checked), testing::HasSubstr(fmt::format("found \"{}\"", bad)));
  }
}

TEST(Addresses, listener_everywhere_is_found_at_the_data_address) {
  // Prometheus scrapes what a worker says of itself: "0.0.0.0" would be Prometheus's own host.
  for (const char* everywhere : {"0.0.0.0", "::", "0::0"})
    EXPECT_EQ(reachable_address(HostPort{everywhere, 0}, 9100, "10.0.0.7"), "10.0.0.7:9100") << everywhere;
  EXPECT_EQ(reachable_address(HostPort{"::", 0}, 9100, "fe80::1"), "[fe80::1]:9100");
  EXPECT_EQ(reachable_address(HostPort{"::1", 0}, 9100, "10.0.0.7"), "[::1]:9100");
  EXPECT_EQ(reachable_address(HostPort{"node-3", 0}, 9100, "10.0.0.7"), "node-3:9100");
}

}  // namespace
}  // namespace penstock::worker
