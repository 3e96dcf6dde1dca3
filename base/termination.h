// How a daemon is told to end: SIGTERM and SIGINT, taken when it looks, and never in the middle of its work.
#pragma once

#include <signal.h>

namespace penstock {

// Blocks both in this thread and in those that it starts, for sigwait or a signalfd with the returned set; so
// call it before any thread starts. A peer that goes away becomes an error code instead of SIGPIPE.
sigset_t block_termination();

}  // namespace penstock
