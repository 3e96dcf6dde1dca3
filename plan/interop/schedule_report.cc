#include "plan/interop/schedule_report.h"

#include <utility>

#include "plan/schedule/lowered.h"

namespace penstock::plan {
namespace {

struct Played {
  Simulation simulation;
  std::string note;
};

StatusOr<Played> play_lowered(const ComputeProgram& program, const SimulationCosts& costs) {
  PENSTOCK_ASSIGN_OR_RETURN(const LoweredProgram lowered, lower(program));
  PENSTOCK_ASSIGN_OR_RETURN(Simulation simulation, simulate(lowered, costs));
  return Played{std::move(simulation), ""};
}

// The timeline that was asked for, or the earliest one with the reason why not.
StatusOr<Played> play(const ComputeProgram& program, const SimulationCosts& costs, Timeline timeline) {
  StatusOr<Simulation> simulation = simulate(program, costs, timeline);
  if (simulation.ok()) return Played{*std::move(simulation), ""};
  if (timeline == Timeline::Earliest || simulation.status().code() != StatusCode::kFailedPrecondition) {
    return simulation.status();
  }
  PENSTOCK_ASSIGN_OR_RETURN(Simulation earliest, simulate(program, costs, Timeline::Earliest));
  return Played{std::move(earliest), message(simulation.status())};
}

}  // namespace

StatusOr<ScheduleReport> make_report(ComputeProgram program, const ReportRequest& request) {
  ScheduleReport report;
  PENSTOCK_ASSIGN_OR_RETURN(Played played, request.as_lowered
                                               ? play_lowered(program, request.costs.costs)
                                               : play(program, request.costs.costs, request.timeline));
  report.simulation = std::move(played.simulation);
  report.timeline_note = std::move(played.note);
  report.scale = request.costs.scale;

  const StageCosts slot{.forward = 1, .input_gradient = 1, .weight_gradient = 1};
  PENSTOCK_ASSIGN_OR_RETURN(const Played table,
                            play(program, uniform_costs(program.stages(), slot), Timeline::Aligned));
  report.slots = table.simulation.makespan;
  report.empty_slots = table.simulation.idle_total;

  report.peak_activations = peak_activations_per_rank(program, true);
  report.peak_activations_released_at_input_gradient = peak_activations_per_rank(program, false);
  report.payload_slots = high_water_per_stage(program);
  report.loss_rank = program.placement.back().front();
  if (request.memory) {
    PENSTOCK_ASSIGN_OR_RETURN(report.memory, memory_table(report.peak_activations, *request.memory));
  }
  report.memory_assumptions = request.memory;
  report.search = request.search;
  report.program = std::move(program);
  return report;
}

}  // namespace penstock::plan
