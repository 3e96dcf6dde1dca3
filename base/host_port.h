// "HOST:PORT" as users write it: 127.0.0.1:7070, node-3.lab:7070, [::1]:7070.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace penstock {

struct HostPort {
  std::string host;  // an IPv6 address without its brackets
  uint16_t port = 0;

  bool operator==(const HostPort&) const = default;
};

// InvalidArgument quotes the text: no port, a port above 65535, an empty host, a host with a blank, comma,
// bracket or control character, or an IPv6 address without brackets. Port 0 passes: a listener's free port.
StatusOr<HostPort> parse_host_port(std::string_view text);

// The text that parses back; brackets around a host that holds a colon.
std::string to_string(const HostPort& address);

}  // namespace penstock
