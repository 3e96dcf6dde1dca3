// What passes between a worker daemon's session and the core, as plain values.
//
// Fields mean what proto/penstock/v1/workers.proto says of the messages of the same name.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "proto/codec/messages.h"

namespace penstock::coordinator {

using SessionId = uint64_t;  // one open stream; never used twice by one coordinator process; 0 is none

struct Heartbeat {
  int64_t sequence = 0;
};
struct Draining {
  std::string reason{};
};
struct ExecutorStopped {
  AttemptKey attempt{};
  RankIndex rank{};
};

using WorkerMessage = std::variant<Heartbeat, RankReady, StepReport, StepTrace, RankFinished, RankFailed,
                                   LogBatch, Draining, ExecutorStopped, CheckpointWritten>;

struct Registered {
  int64_t lease_ms = 0;
  int leases_missed = 0;
  std::string coordinator{};
};
struct Abort {
  AttemptKey attempt{};
  RankIndex rank{};
  std::string reason{};
};
struct HeartbeatAck {
  int64_t sequence = 0;
};

using CoordinatorMessage = std::variant<Registered, Assignment, Abort, HeartbeatAck>;

}  // namespace penstock::coordinator
