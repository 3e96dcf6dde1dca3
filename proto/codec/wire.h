// Generated messages to plain values and back, for the rooms that speak gRPC (codec.h is for those that must
// not see generated code).
//
// from_proto trusts nothing: every enum, index, count and text is checked against limits.h and against the
// message's own sizes. InvalidArgument names the field, what was expected and what was found. What is well
// formed here may still be a wrong program or a wrong job: plan::verify and parse_job_spec say that. to_proto
// cuts texts that people or programs wrote (log lines, reasons) to their limits and replaces bytes that are
// no UTF-8, which a protobuf string must be.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "penstock/v1/broker.pb.h"
#include "penstock/v1/common.pb.h"
#include "penstock/v1/executor.pb.h"
#include "penstock/v1/program.pb.h"
#include "penstock/v1/workers.pb.h"
#include "proto/codec/limits.h"
#include "proto/codec/messages.h"

namespace penstock::codec {

v1::AttemptKey to_proto(const AttemptKey& key);
v1::CommunicatorKey to_proto(const CommunicatorKey& key);
v1::Register to_proto(const Registration& registration);
v1::Assign to_proto(const Assignment& assignment);
v1::StepReport to_proto(const StepReport& report);
v1::StepTrace to_proto(const StepTrace& trace);
v1::LayerType to_proto(plan::LayerType type);
std::optional<plan::LayerType> from_proto(v1::LayerType type);  // nothing: unspecified, or of another version
v1::RankReady to_proto(const RankReady& ready);
v1::RankFinished to_proto(const RankFinished& finished);
v1::CheckpointWritten to_proto(const CheckpointWritten& written);
v1::RankFailed to_proto(const RankFailed& failed);
v1::LogBatch to_proto(const LogBatch& batch);
v1::RankProgram to_proto(const plan::RankProgram& program);

StatusOr<AttemptKey> from_proto(const v1::AttemptKey& key);
StatusOr<CommunicatorKey> from_proto(const v1::CommunicatorKey& key);
// Without a caller the principal is "anonymous".
StatusOr<Registration> from_proto(const v1::Register& registration);
StatusOr<Assignment> from_proto(const v1::Assign& assignment);
// The loss and the gradient norm may be infinite or no number: a run that diverges must be able to say so.
StatusOr<StepReport> from_proto(const v1::StepReport& report);
StatusOr<StepTrace> from_proto(const v1::StepTrace& trace);
StatusOr<RankReady> from_proto(const v1::RankReady& ready);
StatusOr<RankFinished> from_proto(const v1::RankFinished& finished);
StatusOr<CheckpointWritten> from_proto(const v1::CheckpointWritten& written);
StatusOr<RankFailed> from_proto(const v1::RankFailed& failed);
StatusOr<LogBatch> from_proto(const v1::LogBatch& batch);
StatusOr<plan::RankProgram> from_proto(const v1::RankProgram& program);

// The caller's name: "anonymous" when it gives none. InvalidArgument when it is too long or no plain text.
StatusOr<std::string> principal_of(const v1::Caller& caller);

}  // namespace penstock::codec
