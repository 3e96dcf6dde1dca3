#include "client/commands/in_flight.h"

#include <algorithm>

#include "plan/schedule/families.h"
#include "plan/schedule/program.h"

namespace penstock::client {
namespace {

using plan::StagePlacement;

// With so many microbatches a rank, what a steady schedule holds does not grow any more.
constexpr int kSteady = 4;

std::string schedule_of(const InFlightQuestion& question) {
  if (!question.schedule.empty()) return question.schedule;
  if (question.stages_per_rank == 1) return "1f1b";
  return question.placement == StagePlacement::V ? "1f1b-v" : "interleaved-1f1b";
}

// Loop placement: at most `microbatches`, from P in the first stage down to 1 in the last.
InFlight of_1f1b(const InFlightQuestion& question) {
  InFlight in_flight;
  for (int stage = 0; stage < question.ranks; ++stage) {
    const int steady = question.ranks - stage;
    in_flight.counts.push_back(std::min(question.microbatches.value_or(steady), steady));
  }
  return in_flight;
}

StatusOr<plan::ComputeProgram> program_of(const InFlightQuestion& question, const std::string& name,
                                          int microbatches) {
  StatusOr<plan::ComputeProgram> program = plan::generate(
      {.name = name, .ranks = question.ranks, .microbatches = microbatches, .stages_per_rank = 0});
  if (program.ok() && program->stages_per_rank == question.stages_per_rank) return program;
  // Families that take any number of stages have one of their own too.
  StatusOr<plan::ComputeProgram> asked = plan::generate({.name = name,
                                                         .ranks = question.ranks,
                                                         .microbatches = microbatches,
                                                         .stages_per_rank = question.stages_per_rank});
  if (asked.ok() || !program.ok()) return asked;
  return invalid_argument("{} puts {} stages on a rank; -s {} was asked for", name, program->stages_per_rank,
                          question.stages_per_rank);
}

StatusOr<StagePlacement> placement_of(const plan::ComputeProgram& program) {
  if (program.placement == plan::loop_placement(program.ranks, program.stages_per_rank))
    return StagePlacement::Loop;
  if (program.stages_per_rank == 2 && program.placement == plan::v_placement(program.ranks))
    return StagePlacement::V;
  return invalid_argument("{} holds stages on two ranks each, which no contiguous split describes",
                          program.schedule);
}

StatusOr<InFlight> of_program(const InFlightQuestion& question, const std::string& name) {
  const int microbatches = question.microbatches.value_or(kSteady * question.ranks);
  PENSTOCK_ASSIGN_OR_RETURN(const plan::ComputeProgram program, program_of(question, name, microbatches));
  InFlight in_flight;
  PENSTOCK_ASSIGN_OR_RETURN(in_flight.placement, placement_of(program));
  in_flight.counts = plan::high_water_per_stage(program);
  if (question.microbatches) return in_flight;
  PENSTOCK_ASSIGN_OR_RETURN(const plan::ComputeProgram longer, program_of(question, name, 2 * microbatches));
  if (plan::high_water_per_stage(longer) == in_flight.counts) return in_flight;
  return invalid_argument("-m: missing; what {} holds depends on it", name);
}

}  // namespace

StatusOr<InFlight> in_flight_of(const InFlightQuestion& question) {
  if (question.placement == StagePlacement::V && question.stages_per_rank != 2) {
    return invalid_argument("--placement: v puts two stages on a rank; add -s 2");
  }
  const std::string name = schedule_of(question);
  if (name == "1f1b" && question.stages_per_rank == 1) return of_1f1b(question);
  StatusOr<InFlight> in_flight = of_program(question, name);
  if (!in_flight.ok()) {
    const bool names_option = message(in_flight.status()).starts_with("-");
    return names_option ? in_flight.status() : with_context(in_flight.status(), "--schedule");
  }
  if (question.placement && *question.placement != in_flight->placement) {
    return invalid_argument("--placement: {} has the {} placement", name,
                            in_flight->placement == StagePlacement::V ? "v" : "loop");
  }
  return in_flight;
}

}  // namespace penstock::client
