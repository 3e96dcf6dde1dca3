// A traced step for people, for programs and for ui.perfetto.dev. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "client/present/job_json.h"
#include "penstock/v1/jobs.pb.h"
#include "plan/measurement/compare.h"
#include "plan/measurement/measured_step.h"
#include "plan/schedule/program.h"
#include "plan/spec/job_spec.h"
#include "plan/spec/rank_groups.h"

namespace penstock::client {

// What the ranks told, on one time line: that of rank 0. Ranks that share its clock are lined up by it, exactly; others by
// their hosts' wall clocks. InvalidArgument: a message that no coordinator of this version sends.
StatusOr<plan::MeasuredStep> measured_step(const v1::TraceResponse& trace);

// One of the pipelines side by side, each of which runs the program with microbatches of its own.
struct TracedPipeline {
  plan::RankGroup group;    // its ranks of the job
  plan::MeasuredStep step;  // of these
  plan::Comparison comparison;
};
// All of them; InvalidArgument as measured_step() and plan::compare(), and for a trace of another number of ranks.
StatusOr<std::vector<TracedPipeline>> traced_pipelines(const plan::JobSpec& spec,
                                                       const plan::ComputeProgram& program,
                                                       const v1::TraceResponse& trace);

// "": every rank's works fit into a trace; else the rank that has too many, for whoever looks for a traced step.
std::string why_not_traced(const plan::ComputeProgram& program);

// Makespans, of the slowest pipeline where there are several; each rank's bubble; the overlap achieved by class of hand-off,
// in all of them.
std::string trace_text(const v1::TraceResponse& trace, const std::vector<TracedPipeline>& pipelines);

// job, step, steps, measured_seconds, simulated_seconds, ratio, ranks[] and handoffs{local, hidden, exposed}; where there
// are several pipelines, a rank says which is its own, and pipelines[] has the times of each.
Json trace_json(const std::string& job, const v1::TraceResponse& trace,
                const std::vector<TracedPipeline>& pipelines);

// Two rows a rank, measured and simulated; where there are several pipelines, two rows of each at every place. InvalidArgument:
// too many actions for the viewer.
StatusOr<std::string> trace_perfetto(const plan::ComputeProgram& program,
                                     const std::vector<TracedPipeline>& pipelines);

}  // namespace penstock::client
