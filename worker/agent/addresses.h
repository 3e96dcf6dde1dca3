// The addresses by which others reach this host.
#pragma once

#include <string>

#include "base/host_port.h"
#include "base/status.h"

namespace penstock::worker {

// Whether peers can connect to `address`: numeric, and of one host. InvalidArgument quotes it.
Status check_data_address(const std::string& address);

// Where a listener that was told `listen` and got `port` is found. "0.0.0.0" and "::" are where it listens, not
// where it is: that is `data_address`.
std::string reachable_address(const HostPort& listen, int port, const std::string& data_address);

}  // namespace penstock::worker
