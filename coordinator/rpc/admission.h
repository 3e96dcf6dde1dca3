// What every call must bring before it is looked at: a deadline, and a caller that may come from where it
// comes.
//
// Thread: any.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <string>

#include "base/status.h"
#include "penstock/v1/common.pb.h"

namespace penstock::coordinator {

// The caller's principal. InvalidArgument: no deadline, or a name that is none. PermissionDenied: anonymous,
// and not from this machine.
StatusOr<std::string> admit(const grpc::ServerContextBase& context, const v1::Caller& caller);

// The same, of what the context says: when the call ends, and gRPC's name of who calls.
StatusOr<std::string> admit(std::chrono::system_clock::time_point deadline, const std::string& peer,
                            const v1::Caller& caller);

// Whether gRPC's name of a peer ("ipv4:127.0.0.1:5000", "ipv6:[::1]:5000", "unix:/run/x") is of this machine.
bool is_loopback(const std::string& peer);

}  // namespace penstock::coordinator
