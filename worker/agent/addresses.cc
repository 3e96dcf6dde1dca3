#include "worker/agent/addresses.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "base/utf8.h"

namespace penstock::worker {
namespace {

constexpr size_t kShown = 64;

bool is_of_one_host(const in_addr& address) {
  const uint32_t bits = ntohl(address.s_addr);
  return bits != INADDR_ANY && bits != INADDR_BROADCAST && !IN_MULTICAST(bits);
}

bool is_of_one_host(const in6_addr& address) {
  return !IN6_IS_ADDR_UNSPECIFIED(&address) && !IN6_IS_ADDR_MULTICAST(&address);
}

bool is_everywhere(const std::string& host) {
  in_addr v4{};
  in6_addr v6{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return v4.s_addr == INADDR_ANY;
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_UNSPECIFIED(&v6);
}

}  // namespace

Status check_data_address(const std::string& address) {
  in_addr v4{};
  in6_addr v6{};
  if (inet_pton(AF_INET, address.c_str(), &v4) == 1
          ? is_of_one_host(v4)
          : inet_pton(AF_INET6, address.c_str(), &v6) == 1 && is_of_one_host(v6))
    return ok_status();
  return invalid_argument(
      "expected the numeric address of one host, such as 10.0.0.7 or fd00::7, without a port, found \"{}\"",
      utf8_cleaned(address, kShown));
}

std::string reachable_address(const HostPort& listen, int port, const std::string& data_address) {
  return to_string(
      HostPort{is_everywhere(listen.host) ? data_address : listen.host, static_cast<uint16_t>(port)});
}

}  // namespace penstock::worker
