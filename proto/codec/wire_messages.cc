#include <arpa/inet.h>

#include <algorithm>

#include "base/utf8.h"
#include "proto/codec/internal/checks.h"
#include "proto/codec/internal/sender.h"
#include "proto/codec/wire.h"

namespace penstock::codec {
namespace {

bool is_numeric_address(const std::string& address) {
  unsigned char bytes[16];
  return inet_pton(AF_INET, address.c_str(), bytes) == 1 || inet_pton(AF_INET6, address.c_str(), bytes) == 1;
}

// Absolute, or "".
void decode_path(const std::string& field, const std::string& path, Checks& checks, std::string& target) {
  checks.size(field, target = path, kLongestPath);
  checks.require(path.empty() || path.front() == '/', field, "an absolute path",
                 "\"" + utf8_cleaned(path, 64) + "\"");
}

void decode_place(const std::string& what, const std::string& directory, const std::string& marker,
                  Checks& checks, WeightsPlace& place) {
  decode_path(what + "_directory", directory, checks, place.directory);
  checks.name(what + "_marker", place.marker = marker, /*may_be_empty=*/directory.empty());
  checks.require(marker.find('/') == std::string::npos, what + "_marker", "the name of a file",
                 "\"" + utf8_cleaned(marker, 64) + "\"");
}

void decode_split(const v1::Assign& message, Checks& checks, plan::Split& split) {
  checks.count("split", static_cast<size_t>(message.split_size()), kMostStages);
  for (int stage = 0; checks.ok() && stage < message.split_size(); ++stage) {
    split.emplace_back();
    for (const std::string& text : message.split(stage).items()) {
      const StatusOr<plan::Item> item = plan::parse_item(text);
      checks.nested(fmt::format("split[{}]", stage), item.status());
      if (!checks.ok()) return;
      split.back().push_back(*item);
    }
  }
}

}  // namespace

v1::AttemptKey to_proto(const AttemptKey& key) {
  v1::AttemptKey message;
  message.set_job(key.job);
  message.set_attempt(key.attempt);
  message.set_incarnation(key.incarnation);
  return message;
}

StatusOr<AttemptKey> from_proto(const v1::AttemptKey& message) {
  Checks checks("AttemptKey");
  AttemptKey key;
  checks.name("job", key.job = message.job());
  key.attempt = checks.range("attempt", message.attempt(), 1, kAny);
  key.incarnation = checks.range("incarnation", message.incarnation(), 0, kAny);
  if (!checks.ok()) return checks.status();
  return key;
}

v1::CommunicatorKey to_proto(const CommunicatorKey& key) {
  v1::CommunicatorKey message;
  *message.mutable_attempt() = to_proto(key.attempt);
  message.set_communicator(key.communicator);
  message.set_rank(key.rank.value);
  message.set_item(key.item);
  return message;
}

StatusOr<CommunicatorKey> from_proto(const v1::CommunicatorKey& message) {
  Checks checks("CommunicatorKey");
  CommunicatorKey key;
  key.attempt = decode_attempt(message, checks);
  key.communicator = message.communicator();
  std::string without_blanks = key.communicator;  // "pipeline 3"
  std::replace(without_blanks.begin(), without_blanks.end(), ' ', '-');
  checks.name("communicator", without_blanks);
  key.rank = decode_rank(message, checks);
  checks.name("item", key.item = message.item());
  if (!checks.ok()) return checks.status();
  return key;
}

StatusOr<std::string> principal_of(const v1::Caller& caller) {
  Checks checks("Caller");
  checks.name("principal", caller.principal(), /*may_be_empty=*/true);
  if (!checks.ok()) return checks.status();
  return caller.principal().empty() ? std::string("anonymous") : caller.principal();
}

v1::Register to_proto(const Registration& registration) {
  v1::Register message;
  message.mutable_caller()->set_principal(registration.principal);
  message.set_worker(registration.worker);
  message.set_host_id(registration.host_id);
  for (const DeviceSlot& device : registration.devices) {
    v1::DeviceSlot& added = *message.add_devices();
    added.set_kind(device.kind);
    added.set_index(device.index);
    added.set_fingerprint(utf8_cleaned(device.fingerprint, kLongestReason));
  }
  message.set_incarnation(registration.incarnation);
  message.set_pid(registration.pid);
  message.set_metrics_address(registration.metrics_address);
  message.set_data_address(registration.data_address);
  return message;
}

StatusOr<Registration> from_proto(const v1::Register& message) {
  Checks checks("Register");
  Registration registration;
  StatusOr<std::string> principal = principal_of(message.caller());
  checks.nested("caller", principal.status());
  if (principal.ok()) registration.principal = *std::move(principal);
  checks.name("worker", registration.worker = message.worker());
  checks.name("host_id", registration.host_id = message.host_id());
  checks.range("devices", message.devices_size(), 1, static_cast<int64_t>(kMostDevices));
  for (int i = 0; checks.ok() && i < message.devices_size(); ++i) {
    const v1::DeviceSlot& device = message.devices(i);
    checks.name("devices.kind", device.kind());
    checks.range("devices.index", device.index(), 0, static_cast<int64_t>(kMostDevices) - 1);
    checks.size("devices.fingerprint", device.fingerprint(), kLongestReason);
    registration.devices.push_back(DeviceSlot{device.kind(), device.index(), device.fingerprint()});
  }
  registration.incarnation = checks.range("incarnation", message.incarnation(), 1, kAny);
  registration.pid = checks.range("pid", message.pid(), 1, kAny);
  checks.name("metrics_address", registration.metrics_address = message.metrics_address(),
              /*may_be_empty=*/true);
  registration.data_address = message.data_address();
  // A name that does not resolve would take the transport's process down: only numbers pass.
  checks.require(is_numeric_address(message.data_address()), "data_address", "a numeric IPv4 or IPv6 address",
                 "\"" + utf8_cleaned(message.data_address(), 64) + "\"");
  if (!checks.ok()) return checks.status();
  return registration;
}

// The program is of one of several pipelines side by side (plan/spec/rank_place.h): each of its places has as many of the
// job's ranks.
void check_place(int64_t ranks, Checks& checks, const Assignment& assignment) {
  if (!checks.ok()) return;
  const int64_t of_pipeline = assignment.program.ranks;
  checks.range("rank_hosts", ranks, 1, kMostRanks);
  checks.require(ranks % of_pipeline == 0, "rank_hosts",
                 fmt::format("a multiple of the program's {} ranks", of_pipeline), fmt::format("{}", ranks));
  checks.range("rank", assignment.rank.value, 0, ranks - 1);
  if (!checks.ok()) return;
  checks.equal("program.rank", assignment.program.rank.value, assignment.rank.value / (ranks / of_pipeline),
               "the place of the rank assigned");
}

v1::Assign to_proto(const Assignment& assignment) {
  v1::Assign message;
  *message.mutable_attempt() = to_proto(assignment.attempt);
  message.set_rank(assignment.rank.value);
  message.set_device(assignment.device);
  message.set_spec_yaml(assignment.spec_yaml);
  for (const std::vector<plan::Item>& items : assignment.split) {
    v1::StageItems& stage = *message.add_split();
    for (const plan::Item& item : items) stage.add_items(plan::to_string(item));
  }
  *message.mutable_program() = to_proto(assignment.program);
  if (assignment.validation) *message.mutable_validation() = to_proto(*assignment.validation);
  message.set_first_step(assignment.first_step);
  for (const std::string& host : assignment.rank_hosts) message.add_rank_hosts(host);
  message.set_weights_directory(assignment.weights.directory);
  message.set_weights_marker(assignment.weights.marker);
  message.set_checkpoints_directory(assignment.checkpoints.directory);
  message.set_checkpoints_marker(assignment.checkpoints.marker);
  message.set_load_from(assignment.load_from);
  return message;
}

StatusOr<Assignment> from_proto(const v1::Assign& message) {
  Checks checks("Assign");
  Assignment assignment;
  assignment.attempt = decode_attempt(message, checks);
  assignment.rank = decode_rank(message, checks);
  assignment.device =
      static_cast<int>(checks.range("device", message.device(), 0, static_cast<int64_t>(kMostDevices) - 1));
  checks.size("spec_yaml", assignment.spec_yaml = message.spec_yaml(), kLargestSpecBytes);
  decode_split(message, checks, assignment.split);
  if (checks.ok()) {
    StatusOr<plan::RankProgram> program = from_proto(message.program());
    checks.nested("program", program.status());
    if (program.ok()) assignment.program = *std::move(program);
  }
  if (checks.ok() && message.has_validation()) {
    StatusOr<plan::RankProgram> validation = from_proto(message.validation());
    checks.nested("validation", validation.status());
    if (validation.ok()) assignment.validation = *std::move(validation);
  }
  checks.equal("split", message.split_size(), assignment.program.stages, "the program's stages");
  assignment.first_step = checks.range("first_step", message.first_step(), 0, kAny);
  check_place(message.rank_hosts_size(), checks, assignment);
  for (int i = 0; checks.ok() && i < message.rank_hosts_size(); ++i) {
    checks.name("rank_hosts", message.rank_hosts(i));
    assignment.rank_hosts.push_back(message.rank_hosts(i));
  }
  decode_place("weights", message.weights_directory(), message.weights_marker(), checks, assignment.weights);
  decode_place("checkpoints", message.checkpoints_directory(), message.checkpoints_marker(), checks,
               assignment.checkpoints);
  decode_path("load_from", message.load_from(), checks, assignment.load_from);
  checks.require(!assignment.load_from.empty() || assignment.first_step == 0, "load_from",
                 "a checkpoint where first_step is not 0",
                 fmt::format("first_step {}", assignment.first_step));
  if (!checks.ok()) return checks.status();
  return assignment;
}

v1::RankReady to_proto(const RankReady& ready) {
  v1::RankReady message;
  *message.mutable_attempt() = to_proto(ready.attempt);
  message.set_rank(ready.rank.value);
  message.set_executor_pid(ready.executor_pid);
  message.set_fingerprint(utf8_cleaned(ready.fingerprint, kLongestReason));
  return message;
}

StatusOr<RankReady> from_proto(const v1::RankReady& message) {
  Checks checks("RankReady");
  RankReady ready;
  ready.attempt = decode_attempt(message, checks);
  ready.rank = decode_rank(message, checks);
  ready.executor_pid = checks.range("executor_pid", message.executor_pid(), 0, kAny);
  checks.size("fingerprint", ready.fingerprint = message.fingerprint(), kLongestReason);
  if (!checks.ok()) return checks.status();
  return ready;
}

v1::RankFinished to_proto(const RankFinished& finished) {
  v1::RankFinished message;
  *message.mutable_attempt() = to_proto(finished.attempt);
  message.set_rank(finished.rank.value);
  for (const ParameterDigest& digest : finished.digests) {
    v1::ParameterDigest& added = *message.add_digests();
    added.set_parameter(digest.parameter);
    added.set_digest(std::string(digest.digest.begin(), digest.digest.end()));
  }
  return message;
}

StatusOr<RankFinished> from_proto(const v1::RankFinished& message) {
  Checks checks("RankFinished");
  RankFinished finished;
  finished.attempt = decode_attempt(message, checks);
  finished.rank = decode_rank(message, checks);
  checks.count("digests", static_cast<size_t>(message.digests_size()), kMostParameters);
  for (int i = 0; checks.ok() && i < message.digests_size(); ++i) {
    const std::string& bytes = message.digests(i).digest();
    ParameterDigest digest;
    digest.parameter = static_cast<int32_t>(checks.range("digests.parameter", message.digests(i).parameter(),
                                                         0, static_cast<int64_t>(kMostParameters) - 1));
    checks.equal("digests.digest", static_cast<int64_t>(bytes.size()),
                 static_cast<int64_t>(digest.digest.size()), "bytes of XXH3-128");
    if (checks.ok()) std::copy(bytes.begin(), bytes.end(), digest.digest.begin());
    finished.digests.push_back(digest);
  }
  if (!checks.ok()) return checks.status();
  return finished;
}

v1::CheckpointWritten to_proto(const CheckpointWritten& written) {
  v1::CheckpointWritten message;
  *message.mutable_attempt() = to_proto(written.attempt);
  message.set_rank(written.rank.value);
  message.set_step(written.step);
  message.set_problem(utf8_cleaned(written.problem, kLongestReason));
  return message;
}

StatusOr<CheckpointWritten> from_proto(const v1::CheckpointWritten& message) {
  Checks checks("CheckpointWritten");
  CheckpointWritten written;
  written.attempt = decode_attempt(message, checks);
  written.rank = decode_rank(message, checks);
  written.step = checks.range("step", message.step(), 1, kAny);
  checks.size("problem", written.problem = message.problem(), kLongestReason);
  if (!checks.ok()) return checks.status();
  return written;
}

v1::RankFailed to_proto(const RankFailed& failed) {
  v1::RankFailed message;
  *message.mutable_attempt() = to_proto(failed.attempt);
  message.set_rank(failed.rank.value);
  message.set_step(failed.step);
  message.set_reason(utf8_cleaned(failed.reason, kLongestReason));
  message.set_exit_code(failed.exit_code);
  message.set_signal(failed.signal);
  return message;
}

StatusOr<RankFailed> from_proto(const v1::RankFailed& message) {
  Checks checks("RankFailed");
  RankFailed failed;
  failed.attempt = decode_attempt(message, checks);
  failed.rank = decode_rank(message, checks);
  failed.step = checks.range("step", message.step(), -1, kAny);
  checks.size("reason", failed.reason = message.reason(), kLongestReason);
  failed.exit_code = static_cast<int>(checks.range("exit_code", message.exit_code(), -1, 255));
  failed.signal = static_cast<int>(checks.range("signal", message.signal(), 0, 64));
  if (!checks.ok()) return checks.status();
  return failed;
}

v1::LogBatch to_proto(const LogBatch& batch) {
  v1::LogBatch message;
  *message.mutable_attempt() = to_proto(batch.attempt);
  message.set_rank(batch.rank.value);
  const size_t kept = std::min(batch.lines.size(), kMostLogLines);
  for (size_t i = 0; i < kept; ++i) message.add_lines(utf8_cleaned(batch.lines[i], kLongestLogLine));
  message.set_dropped(batch.dropped + static_cast<int64_t>(batch.lines.size() - kept));
  return message;
}

StatusOr<LogBatch> from_proto(const v1::LogBatch& message) {
  Checks checks("LogBatch");
  LogBatch batch;
  batch.attempt = decode_attempt(message, checks);
  batch.rank = decode_rank(message, checks);
  batch.dropped = checks.range("dropped", message.dropped(), 0, kAny);
  checks.count("lines", static_cast<size_t>(message.lines_size()), kMostLogLines);
  for (int i = 0; checks.ok() && i < message.lines_size(); ++i) {
    checks.size("lines", message.lines(i), kLongestLogLine);
    batch.lines.push_back(message.lines(i));
  }
  if (!checks.ok()) return checks.status();
  return batch;
}

}  // namespace penstock::codec
