// The one-sided Endpoint, for ranks on one host: a message is put by its sender into memory of its receiver.
//
// Every endpoint has a window, memory that its peers map (window.h). A posted receive is a credit in the window; a send
// that finds its credit puts the message at once, on the thread that posts it, and else asks to be told of it: the
// endpoint's one progress thread puts the message when the credit comes. Messages into receive_memory() are copied once, and wake nobody but who waits for
// them; others pass through a ring of bounded size. Waiting sleeps on a word of the window (doorbell.h).
//
//     sender                                                  receiver
//                      <--- credit (bytes, place)             post_receive
//     post_send        ---> the bytes, then the count         wait
//     drain            ---> goodbye (messages sent, received)
//     abort            ---> the reason
//
// A peer that dies is seen by its pidfd; one that says goodbye first has ended. Its window stays mapped until close, so
// that a put into it is harmless.
//
// Ranks on different hosts, or in containers that do not see each other's processes, are refused by open() with both
// names. After an abort the bytes of receive_memory() are undefined until every endpoint of the group has ended.
// Limits: kTransfersPosted posted and not yet waited for, kReceivesInFlight receives of them from one peer; two threads,
// whatever the number of peers.
#pragma once

#include <memory>

#include "worker/transport/endpoint.h"

namespace penstock::worker {

inline constexpr int kTransfersPosted = 16384;

std::unique_ptr<Endpoint> make_shared_memory_endpoint();

}  // namespace penstock::worker
