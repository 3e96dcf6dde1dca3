// What this process wants of the gRPC library itself.
#pragma once

namespace penstock::worker {

// Before the first use of gRPC; harmless when called again. Thread: any.
//
// Its own log, which explains one failure by a page of JSON, goes where only a debugger looks: what matters is
// said by the status that follows. The library stays up until the process ends: its last shutdown joins a poller
// that a blocked write may hold for ten seconds.
void prepare_grpc();

}  // namespace penstock::worker
