// Jobs and workers as JSON and YAML. Pure. The fields are a promise: programs read them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "penstock/v1/jobs.pb.h"
#include "penstock/v1/workers.pb.h"

namespace penstock::client {

using Json = nlohmann::ordered_json;

// name, state, reason, weights_digest, step, loss, tokens_per_second, attempt, stages[], and of one job by name memory[] by
// rank and kind, parallel and parameters. What is not known yet is null; what a stage does not measure is absent, never
// zero.
Json job_json(const v1::Job& job);

// The same, plus losses and seconds. A loss is a string: the shortest decimal that reads back to the same bits.
Json outcome_json(const v1::Job& job);

// name (null where it is not known), state and reason: of a job that has no outcome.
Json no_outcome_json(const std::string& name, const std::string& state, const std::string& reason);

// name, state, pid, executor_pid, device, job, rank; null where there is none.
Json worker_json(const v1::Worker& worker);

// One line without line end; text that is no UTF-8 is replaced, not refused.
std::string compact(const Json& json);
// Indented, ended by a line end.
std::string indented(const Json& json);
// A YAML document with the same values.
std::string yaml(const Json& json);

}  // namespace penstock::client
