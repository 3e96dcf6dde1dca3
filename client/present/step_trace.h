// A traced step for people, for programs and for ui.perfetto.dev. Pure.
#pragma once

#include <string>

#include "base/status.h"
#include "client/present/job_json.h"
#include "penstock/v1/jobs.pb.h"
#include "plan/measurement/compare.h"
#include "plan/measurement/measured_step.h"
#include "plan/schedule/program.h"

namespace penstock::client {

// What the ranks told, on one time line: that of rank 0. Ranks that share its clock are lined up by it, exactly; others by
// their hosts' wall clocks. InvalidArgument: a message that no coordinator of this version sends.
StatusOr<plan::MeasuredStep> measured_step(const v1::TraceResponse& trace);

// Makespans, each rank's bubble, and the overlap achieved by class of hand-off.
std::string trace_text(const v1::TraceResponse& trace, const plan::Comparison& comparison);

// job, step, steps, measured_seconds, simulated_seconds, ratio, ranks[] and handoffs{local, hidden, exposed}.
Json trace_json(const std::string& job, const v1::TraceResponse& trace, const plan::Comparison& comparison);

// Two rows a rank, measured and simulated. InvalidArgument: too many actions for the viewer.
StatusOr<std::string> trace_perfetto(const plan::ComputeProgram& program, const plan::MeasuredStep& step,
                                     const plan::Comparison& comparison);

}  // namespace penstock::client
