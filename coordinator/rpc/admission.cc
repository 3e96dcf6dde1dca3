#include "coordinator/rpc/admission.h"

#include <chrono>

#include "proto/codec/wire.h"

namespace penstock::coordinator {

bool is_loopback(const std::string& peer) {
  return peer.starts_with("ipv4:127.") || peer.starts_with("ipv6:[::1]") ||
         peer.starts_with("ipv6:%5B::1%5D") || peer.starts_with("ipv6:[::ffff:127.") ||
         peer.starts_with("ipv6:%5B::ffff:127.") || peer.starts_with("unix:");
}

StatusOr<std::string> admit(const grpc::ServerContextBase& context, const v1::Caller& caller) {
  return admit(context.deadline(), context.peer(), caller);
}

StatusOr<std::string> admit(std::chrono::system_clock::time_point deadline, const std::string& peer,
                            const v1::Caller& caller) {
  // An absent deadline reads as the end of time.
  if (deadline > std::chrono::system_clock::now() + std::chrono::hours(24 * 365 * 10))
    return invalid_argument("a deadline is required");
  PENSTOCK_ASSIGN_OR_RETURN(std::string principal, codec::principal_of(caller));
  if (principal == "anonymous" && !is_loopback(peer))
    return error(
        StatusCode::kPermissionDenied,
        "anonymous callers are accepted from this machine only, found peer {}; name yourself, as with "
        "PENSTOCK_PRINCIPAL",
        peer);
  return principal;
}

}  // namespace penstock::coordinator
