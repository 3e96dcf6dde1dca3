#include "base/metrics/server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/counter.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace penstock {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// The whole answer of one HTTP/1.0 request, headers included; "" when nobody listens.
std::string request(int port, const std::string& method, const std::string& path) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
    const std::string text = method + " " + path + " HTTP/1.0\r\n\r\n";
    send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    char buffer[4096];
    for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) > 0;)
      answer.append(buffer, static_cast<size_t>(n));
  }
  close(fd);
  return answer;
}

class MetricsServerTest : public testing::Test {
 protected:
  void SetUp() override {
    prometheus::BuildCounter()
        .Name("penstock_things_total")
        .Help("Things.")
        .Register(*registry)
        .Add({})
        .Increment(3);
    auto started = MetricsServer::start("127.0.0.1:0", registry);
    ASSERT_TRUE(started.ok()) << started.status();
    server = std::move(started).value();
  }
  std::shared_ptr<prometheus::Registry> registry = std::make_shared<prometheus::Registry>();
  std::unique_ptr<MetricsServer> server;
};

TEST_F(MetricsServerTest, registry_is_served_as_prometheus_text) {
  const std::string answer = request(server->port(), "GET", "/metrics");
  EXPECT_THAT(answer, StartsWith("HTTP/1.0 200"));
  EXPECT_THAT(answer, HasSubstr("text/plain; version=0.0.4"));
  EXPECT_THAT(answer, HasSubstr("penstock_things_total 3"));
}

TEST_F(MetricsServerTest, other_paths_are_not_found) {
  // A stray file of the working directory must never be served.
  for (const char* path : {"/", "/metrics/more", "/metricsx", "/../../etc/passwd", "/CMakeLists.txt"}) {
    EXPECT_THAT(request(server->port(), "GET", path), Not(StartsWith("HTTP/1.0 200"))) << path;
  }
}

TEST_F(MetricsServerTest, only_get_and_head_are_answered) {
  EXPECT_THAT(request(server->port(), "POST", "/metrics"), StartsWith("HTTP/1.0 405"));
  EXPECT_THAT(request(server->port(), "DELETE", "/metrics"), StartsWith("HTTP/1.0 405"));
  const std::string head = request(server->port(), "HEAD", "/metrics");
  EXPECT_THAT(head, StartsWith("HTTP/1.0 200"));
  EXPECT_THAT(head, Not(HasSubstr("penstock_things_total")));
}

TEST_F(MetricsServerTest, added_page_is_json_made_anew_each_time) {
  int made = 0;
  server->add_page("/sd", [&made] { return "[" + std::to_string(++made) + "]"; });
  EXPECT_THAT(request(server->port(), "GET", "/sd"), HasSubstr("application/json"));
  EXPECT_THAT(request(server->port(), "GET", "/sd"), HasSubstr("[2]"));
}

TEST_F(MetricsServerTest, page_that_throws_is_a_500_and_the_server_lives) {
  // An exception through civetweb's C frames would end the daemon.
  server->add_page("/broken", []() -> std::string { throw std::runtime_error("no such table"); });
  server->add_page("/odd", []() -> std::string { throw 7; });
  EXPECT_THAT(request(server->port(), "GET", "/broken"), StartsWith("HTTP/1.0 500"));
  EXPECT_THAT(request(server->port(), "GET", "/broken"), HasSubstr("no such table"));
  EXPECT_THAT(request(server->port(), "GET", "/odd"), StartsWith("HTTP/1.0 500"));
  EXPECT_THAT(request(server->port(), "GET", "/metrics"), StartsWith("HTTP/1.0 200"));
}

TEST_F(MetricsServerTest, readers_at_once_all_get_an_answer) {
  // More readers than threads wait their turn; none is turned away.
  std::vector<std::thread> readers;
  std::atomic<int> served{0};
  for (int i = 0; i < 12; ++i) {
    readers.emplace_back(
        [&] { served += request(server->port(), "GET", "/metrics").starts_with("HTTP/1.0 200"); });
  }
  for (auto& reader : readers) reader.join();
  EXPECT_EQ(served, 12);
}

TEST_F(MetricsServerTest, stopped_server_closes_its_port) {
  const int port = server->port();
  server.reset();
  EXPECT_EQ(request(port, "GET", "/metrics"), "");
}

TEST_F(MetricsServerTest, taken_port_is_unavailable) {
  const auto second = MetricsServer::start("127.0.0.1:" + std::to_string(server->port()), registry);
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable) << second.status();
}

TEST(MetricsServerAddress, other_than_host_and_port_is_refused) {
  // civetweb would read "8080,8081" or "8080s" as more than was meant.
  auto registry = std::make_shared<prometheus::Registry>();
  for (const char* address : {"", ":", "127.0.0.1", "127.0.0.1:", ":80", "127.0.0.1:70000", "127.0.0.1:80s",
                              "127.0.0.1:8080,127.0.0.1:8081", "127.0.0.1:-1"}) {
    EXPECT_EQ(MetricsServer::start(address, registry).status().code(), StatusCode::kInvalidArgument)
        << address;
  }
}

}  // namespace
}  // namespace penstock
