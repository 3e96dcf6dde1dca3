// Everything that `penstock schedule` says about a program, as plain data.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "plan/schedule/program.h"
#include "plan/simulation/costs.h"
#include "plan/simulation/simulate.h"

namespace penstock::plan {

struct ReportRequest {
  ScaledCosts costs;  // of every stage of the program
  Timeline timeline = Timeline::Earliest;
};

struct ScheduleReport {
  ComputeProgram program;
  Simulation simulation;      // with the request's costs, on the timeline that applies
  TickScale scale;            // of the simulation's times
  std::string timeline_note;  // why the aligned timeline does not apply, where it was asked for; else empty

  // From the aligned timeline with F=1 and B=2, or the earliest where it does not apply.
  Ticks slots = 0;
  Ticks empty_slots = 0;

  std::vector<int> peak_activations;                             // per rank, until B or W
  std::vector<int> peak_activations_released_at_input_gradient;  // per rank, until B or I
  std::vector<int> payload_slots;                                // H_s per stage
  RankIndex loss_rank;  // of the loss stage; the first of its replicas
};

// Simulates a valid program (verify) and gathers the figures. Errors are those of simulate().
StatusOr<ScheduleReport> make_report(ComputeProgram program, const ReportRequest& request);

}  // namespace penstock::plan
