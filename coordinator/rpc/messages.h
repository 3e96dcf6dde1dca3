// The controller's plain values as messages of the wire, and back.
#pragma once

#include <grpcpp/support/status.h>

#include "base/status.h"
#include "coordinator/core/session.h"
#include "coordinator/core/views.h"
#include "penstock/v1/jobs.pb.h"
#include "penstock/v1/workers.pb.h"

namespace penstock::coordinator {

v1::JobState to_proto(JobState state);
v1::Job to_proto(const JobView& view);
v1::Worker to_proto(const WorkerView& view);
v1::LogLine to_proto(const LogLineView& view);
// DataLoss: what was stored is no trace any more.
StatusOr<v1::TraceResponse> to_proto(const TraceView& view);
v1::MeasurementsResponse to_proto(const MeasurementsView& view);
v1::SubmitResponse to_proto(const SubmitOutcome& outcome);
v1::CoordinatorMessage to_proto(const CoordinatorMessage& message);

// Any message of a session but the first. InvalidArgument names the field, what was expected and what was
// found.
StatusOr<WorkerMessage> from_proto(const v1::WorkerMessage& message);

// The message is cut to what fits into a call's trailing metadata.
grpc::Status to_grpc(const Status& status);

}  // namespace penstock::coordinator
