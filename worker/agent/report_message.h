// The agent's reports as messages of the wire.
#pragma once

#include "penstock/v1/workers.pb.h"
#include "worker/agent/agent_state.h"

namespace penstock::worker {

v1::WorkerMessage to_message(const Report& report);

}  // namespace penstock::worker
