// Everything that `penstock schedule` says about a program, as plain data.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/cost/memory_table.h"
#include "plan/generation/generate.h"
#include "plan/schedule/program.h"
#include "plan/simulation/costs.h"
#include "plan/simulation/simulate.h"

namespace penstock::plan {

// What a search found, and the scale of its memory figures.
struct SearchResult {
  SearchReport report;
  TickScale memory_scale;
};

struct ReportRequest {
  ScaledCosts costs;  // of every stage of the program
  Timeline timeline = Timeline::Earliest;
  // Play what the ranks' interpreters would run: receives posted into slots, and waits that slow the compute
  // beside them. Without it every receive is ready.
  bool as_lowered = false;
  std::optional<MemoryAssumptions> memory =
      std::nullopt;  // bytes of every activation, to tell which ranks fit
  std::optional<SearchResult> search = std::nullopt;
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

  std::optional<MemoryAssumptions> memory_assumptions;
  std::optional<MemoryTable> memory;  // by peak_activations, where bytes were assumed
  std::optional<SearchResult> search;
};

// Simulates a valid program (verify) and gathers the figures. Errors are those of simulate() and
// memory_table().
StatusOr<ScheduleReport> make_report(ComputeProgram program, const ReportRequest& request);

}  // namespace penstock::plan
