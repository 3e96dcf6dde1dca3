#include "base/host_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock {
namespace {

TEST(HostPort, what_is_written_parses_and_prints_back) {
  for (const char* text : {"127.0.0.1:7070", "node-3.lab:0", "h:65535", "[::1]:7070", "[fe80::1%eth0]:1"}) {
    const StatusOr<HostPort> address = parse_host_port(text);
    ASSERT_TRUE(address.ok()) << text << ": " << address.status();
    EXPECT_EQ(to_string(*address), text);
  }
}

TEST(HostPort, brackets_are_the_notation_and_not_the_host) {
  EXPECT_EQ(*parse_host_port("[::1]:80"), (HostPort{"::1", 80}));
}

TEST(HostPort, what_is_no_address_is_refused_and_quoted) {
  for (const char* text :
       {"", "nonsense", ":7070", "host:", "host:port", "host:70x", "host:65536", "host:-1", "host:+1",
        "host: 1", "a b:1", "a,b:1", "::1:7070", "[]:1", "[host]:1", "[::1]", "[::1:7", "::1]:7", "h\n:1"}) {
    const Status status = parse_host_port(text).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(message(status), testing::HasSubstr("found \"" + std::string(text) + "\"")) << text;
  }
}

}  // namespace
}  // namespace penstock
