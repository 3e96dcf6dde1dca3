#include "coordinator/core/assignment/assignment.h"

#include <algorithm>
#include <utility>

#include "plan/schedule/families.h"
#include "plan/schedule/forward_only.h"
#include "plan/spec/rank_place.h"
#include "plan/spec/schedule_source.h"
#include "plan/verification/verify.h"

namespace penstock::coordinator {
namespace {

constexpr size_t kShownViolations = 5;

Status refuse(const std::string& what, const plan::Verdict& verdict) {
  std::string lines;
  for (size_t i = 0; i < std::min(kShownViolations, verdict.violations.size()); ++i) {
    lines += "\n" + verdict.violations[i].to_string();
  }
  return invalid_argument("{} does not verify:{}", what, lines);
}

// Of every pipeline.
std::vector<RankIndex> ranks_with_loss(const plan::JobSpec& spec, const plan::LoweredProgram& program) {
  std::vector<RankIndex> ranks;
  for (const plan::RankProgram& place : program.ranks) {
    const bool has_loss = std::any_of(
        place.buffers.begin(), place.buffers.end(),
        [&](const plan::StageBuffers& buffers) { return buffers.stage == StageIndex(place.stages - 1); });
    if (!has_loss) continue;
    for (int pipeline = 0; pipeline < spec.parallel.pipelines(); ++pipeline)
      ranks.push_back(plan::rank_at(spec.parallel, place.rank, pipeline));
  }
  return ranks;
}

}  // namespace

namespace {

Status check_lowered(const std::string& name, const plan::LoweredProgram& program) {
  if (const plan::Verdict lowered = plan::verify(program); !lowered.valid()) {
    return refuse(name + ", lowered,", lowered);
  }
  for (const plan::RankProgram& rank : program.ranks) {
    if (const plan::Verdict own = plan::verify(rank); !own.valid()) {
      return refuse(fmt::format("{}, rank {},", name, rank.rank.value), own);
    }
  }
  return ok_status();
}

StatusOr<plan::LoweredProgram> plan_validation(const plan::JobSpec& spec,
                                               const plan::ComputeProgram& training) {
  constexpr int64_t kMostForwards = 1 << 20;  // of all stages, as of a training step
  const int64_t forwards = spec.validation_microbatches() * training.stages();
  if (forwards > kMostForwards) {
    return invalid_argument("{}: expected at most {} forwards in a pass (stages x microbatches), found {}",
                            plan::place_of(spec, "validation.microbatches"), kMostForwards, forwards);
  }
  const auto microbatches = static_cast<int>(spec.validation_microbatches());
  const plan::ComputeProgram pass = plan::forward_only(training, microbatches);
  if (const plan::Verdict verdict = plan::verify(pass); !verdict.valid()) {
    return refuse("validation", verdict);
  }
  PENSTOCK_ASSIGN_OR_RETURN(plan::LoweredProgram lowered, plan::lower(pass));
  PENSTOCK_RETURN_IF_ERROR(check_lowered("validation", lowered));
  return lowered;
}

// Between the updates of one program older weights are still read: there is nothing whole to keep.
Status check_checkpoints(const plan::JobSpec& spec, const plan::LoweredProgram& program) {
  const int updates = program.ranks.front().updates;
  if (spec.checkpoint.every % updates == 0) return ok_status();
  return invalid_argument(
      "{}: expected a multiple of the {} updates between which the schedule drains, found {}",
      plan::place_of(spec, "checkpoint.every"), updates, spec.checkpoint.every);
}

}  // namespace

StatusOr<std::shared_ptr<const AttemptPlan>> plan_attempt(const plan::JobSpec& spec) {
  const std::string name = fmt::format("schedule {}", spec.parallel.schedule);
  PENSTOCK_ASSIGN_OR_RETURN(plan::ComputeProgram compute, plan::compute_program(spec));
  const plan::Verdict verdict = plan::verify(compute);
  if (!verdict.valid()) return refuse(name, verdict);
  // Whoever brings a program knows its order, and so does who asks for one that is known by its own; any other
  // schedule keeps the loss curve of all.
  const bool is_meant = !spec.parallel.program.empty() || plan::adds_in_an_order_of_its_own(compute.schedule);
  if (!verdict.bit_identical && !is_meant) {
    return invalid_argument(
        "{}: expected weight gradients that accumulate in microbatch order, found another order: its loss "
        "curve would not be that of the other schedules",
        name);
  }
  auto attempt = std::make_shared<AttemptPlan>();
  const bool post_validated = spec.parallel.optimizer_step == "post-validated";
  const bool at_consumer = spec.device.posts_at_consumer;
  PENSTOCK_ASSIGN_OR_RETURN(
      attempt->program,
      plan::lower(compute,
                  {.posting = at_consumer ? plan::Posting::AtConsumer : plan::Posting::Early,
                   .step_rule = post_validated ? plan::StepRule::PostValidated : plan::StepRule::Barrier}));
  PENSTOCK_RETURN_IF_ERROR(check_lowered(name, attempt->program));
  PENSTOCK_RETURN_IF_ERROR(check_checkpoints(spec, attempt->program));
  if (spec.validation.every > 0) {
    PENSTOCK_ASSIGN_OR_RETURN(attempt->validation, plan_validation(spec, compute));
    attempt->validation_loss_ranks = ranks_with_loss(spec, attempt->validation);
  }
  attempt->loss_ranks = ranks_with_loss(spec, attempt->program);
  PENSTOCK_ASSIGN_OR_RETURN(
      attempt->memory,
      plan::predict_job_memory(spec, spec.parallel.split, attempt->program.ranks, attempt->validation.ranks));
  PENSTOCK_RETURN_IF_ERROR(plan::check_memory_budget(spec, attempt->memory));
  return std::shared_ptr<const AttemptPlan>(std::move(attempt));
}

SubmitOutcome outcome_of(const plan::JobSpec& spec) {
  SubmitOutcome outcome{.name = spec.name,
                        .notes = spec.notes,
                        .ranks = spec.ranks(),
                        .stages = spec.stages(),
                        .microbatches = spec.microbatches()};
  outcome.stage_items = stage_items(spec);
  return outcome;
}

std::vector<std::string> stage_items(const plan::JobSpec& spec) {
  std::vector<std::string> stages;
  for (const std::vector<plan::Item>& items : spec.parallel.split) {
    std::string& line = stages.emplace_back();
    for (const plan::Item& item : items) line += (line.empty() ? "" : " ") + plan::to_string(item);
  }
  return stages;
}

StatusOr<CheckedJob> check_job(const std::string& yaml) {
  PENSTOCK_ASSIGN_OR_RETURN(plan::JobSpec parsed, plan::parse_job_spec(yaml));
  auto spec = std::make_shared<const plan::JobSpec>(std::move(parsed));
  PENSTOCK_RETURN_IF_ERROR(plan_attempt(*spec).status());
  return CheckedJob{spec, outcome_of(*spec)};
}

Assignment make_assignment(const plan::JobSpec& spec, const AttemptPlan& plan, AssignmentRequest request) {
  Assignment assignment;
  assignment.attempt = std::move(request.attempt);
  assignment.rank = request.rank;
  assignment.device = request.device;
  assignment.spec_yaml = spec.yaml;
  assignment.split = spec.parallel.split;
  const RankIndex place = plan::place_of_rank(spec.parallel, request.rank).pipeline_rank;
  assignment.program = plan.program.ranks[static_cast<size_t>(place.value)];
  if (!plan.validation.ranks.empty())
    assignment.validation = plan.validation.ranks[static_cast<size_t>(place.value)];
  assignment.rank_hosts = std::move(request.rank_hosts);
  assignment.weights = std::move(request.weights);
  assignment.first_step = request.first_step;
  assignment.checkpoints = std::move(request.checkpoints);
  assignment.load_from = std::move(request.load_from);
  return assignment;
}

std::vector<StageView> planned_stages(const plan::JobSpec& spec, const AttemptPlan& plan,
                                      const std::vector<std::string>& workers) {
  std::vector<StageView> stages;
  for (size_t r = 0; r < workers.size(); ++r) {
    const RankIndex rank(static_cast<int64_t>(r));
    const auto place = static_cast<size_t>(plan::place_of_rank(spec.parallel, rank).pipeline_rank.value);
    for (const plan::StageBuffers& buffers : plan.program.ranks[place].buffers) {
      StageView view{.stage = buffers.stage, .rank = rank, .worker = workers[r]};
      for (const plan::Item& item : spec.parallel.split[static_cast<size_t>(buffers.stage.value)]) {
        view.layers.push_back(plan::to_string(item));
      }
      view.activation_slots = buffers.activation_slots;
      view.memory_predicted_bytes = plan.memory[r].total();
      stages.push_back(std::move(view));
    }
  }
  std::sort(stages.begin(), stages.end(), [](const StageView& a, const StageView& b) {
    return std::pair(a.stage, a.rank) < std::pair(b.stage, b.rank);
  });
  return stages;
}

std::vector<RankMemoryView> planned_memory(const AttemptPlan& plan) {
  std::vector<RankMemoryView> ranks(plan.memory.size());
  for (size_t r = 0; r < ranks.size(); ++r) {
    for (const auto& [kind, bytes] : plan.memory[r].by_kind())
      ranks[r].push_back({.kind = kind, .predicted_bytes = bytes});
  }
  return ranks;
}

}  // namespace penstock::coordinator
