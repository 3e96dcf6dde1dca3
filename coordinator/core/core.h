// All decisions of the coordinator: one pure state machine, events in, commands out.
//
// The same code runs under the controller's clock, network and store and under simulated ones.
// What it promises:
//   - a submission is acknowledged, and its job seen, only when it is durable; an assignment leaves only when its
//     attempt's number is durable; an end is seen only when it is durable; an abort waits for nothing;
//   - a report, publication or look-up that does not carry the live (job, attempt, incarnation) is refused and
//     counted;
//   - a device slot holds at most one rank, and none is placed there before the last one's executor is known to be
//     gone;
//   - an ended job stays ended; nothing grows without a bound of Options.
// Thread: none; State belongs to one caller.
#pragma once

#include <vector>

#include "coordinator/core/command.h"
#include "coordinator/core/event.h"
#include "coordinator/core/state.h"

namespace penstock::coordinator {

// Events of sessions, jobs or replies that are not known (any more) are ignored or answered with an error.
std::vector<Command> apply(State& state, Event event, Now now);

// Questions; they change nothing. NotFound names the nearest job. Losses of a job that ended long ago are told by their
// number (JobView::losses_in_store): the store has them.
StatusOr<JobView> view_job(const State& state, const std::string& name, bool include_losses, int64_t unix_ms);
// By submission; without job file, stages, events and losses, so that a long list stays small.
std::vector<JobView> view_jobs(const State& state, int64_t unix_ms);
StatusOr<LogPage> read_log(const State& state, const std::string& name, RankIndex rank, uint64_t cursor,
                           size_t limit);
// The newest traced step without `step`. NotFound: no such job, or the step is not traced, with those that are.
StatusOr<TraceView> view_trace(const State& state, const std::string& name, std::optional<int64_t> step);
// NotFound: no such job, or it has done no step that is measured.
StatusOr<MeasurementsView> view_measurements(const State& state, const std::string& name);
Census take_census(const State& state);

}  // namespace penstock::coordinator
