// The Endpoint over Gloo's TCP pairs.
//
// Gloo ends the process when a message is larger than its receive, never tells the waiter of a message whose
// sender died in the middle of it, and closes every pair when one wait times out. So each pair carries a
// second, small channel of control messages, read by a thread of its own, which is also the sentinel: its
// wait throws as soon as the peer is gone, and all waits of the endpoint are then woken.
//
//     receiver                                   sender
//     post_receive: receive posted
//                   Ready(number, bytes)   --->  the send of that number goes to Gloo when the sizes are equal;
//                                                otherwise both ends abort, with both sizes in the reason
//     drain:        Goodbye(sends, receives) ->  all of the peer's transfers have ended
//                                            <-  GoodbyeSeen: it may close
//     abort:        Abort(reason)          --->  aborts too
//
// Limits: kTransfersInFlight posted and not yet waited for; one control thread per peer. Waiting sleeps.
// Process: ignores SIGPIPE from the first open() on. Its descriptors are not close-on-exec: do not exec while
// open.
#pragma once

#include <memory>

#include "worker/transport/endpoint.h"

namespace penstock::worker {

inline constexpr int kTransfersInFlight = 16384;

std::unique_ptr<Endpoint> make_gloo_endpoint();

}  // namespace penstock::worker
