#include "plan/interop/planned_job.h"

#include <algorithm>

#include "base/text.h"
#include "plan/interop/layout.h"
#include "plan/interop/planning_json.h"
#include "plan/schedule/forward_only.h"
#include "plan/spec/schedule_source.h"

namespace penstock::plan {
namespace {

std::string on_one_line(std::string lists) {
  std::erase(lists, '\n');
  return lists;
}

}  // namespace

JobSpec planned_job(const JobSpec& job, const PlannedStep& step) {
  JobSpec planned = job;
  planned.parallel.schedule = step.choice.schedule;
  planned.parallel.stages_per_rank = step.choice.stages_per_rank;
  planned.parallel.split = split_of(job.model, step.partition.boundaries);
  if (planned.parallel.schedule != job.parallel.schedule) planned.parallel.program.clear();
  planned.recompute.clear();
  const std::vector<Item> items = model_items(job.model);
  for (const int layer : step.partition.recomputed) {
    const Item& item = items[static_cast<size_t>(layer)];
    if (item.kind == ItemKind::Block) planned.recompute.push_back(item.layer.value);
  }
  return planned;
}

std::string job_fragment(const JobSpec& planned) {
  const ParallelSpec& parallel = planned.parallel;
  std::string degrees;
  if (parallel.pipelines() > 1)
    degrees = fmt::format(" expert: {}, data: {},", parallel.expert, parallel.data);
  if (parallel.shard_optimizer) degrees += " shard_optimizer: true,";
  std::string text =
      fmt::format("parallel: {{pipeline: {},{} stages_per_rank: {}, schedule: {},\n           split: {}}}\n",
                  parallel.pipeline, degrees, parallel.stages_per_rank, parallel.schedule,
                  on_one_line(split_to_json(parallel.split)));
  if (planned.recompute.empty()) return text;
  std::vector<std::string> layers;
  for (const int64_t layer : planned.recompute) layers.push_back(fmt::format("{}", layer));
  return text + fmt::format("recompute: [{}]\n", join(layers));
}

StatusOr<std::vector<MemoryPrediction>> memory_of_job(const JobSpec& job) {
  PENSTOCK_ASSIGN_OR_RETURN(const ComputeProgram program, compute_program(job));
  const bool post_validated = job.parallel.optimizer_step == "post-validated";
  PENSTOCK_ASSIGN_OR_RETURN(
      const LoweredProgram training,
      lower(program, {.posting = job.device.posts_at_consumer ? Posting::AtConsumer : Posting::Early,
                      .step_rule = post_validated ? StepRule::PostValidated : StepRule::Barrier}));
  LoweredProgram validation;
  if (job.validation.every > 0) {
    const auto microbatches = static_cast<int>(job.validation_microbatches());
    PENSTOCK_ASSIGN_OR_RETURN(validation, lower(forward_only(program, microbatches)));
  }
  return predict_job_memory(job, job.parallel.split, training.ranks, validation.ranks);
}

std::string largest_memory_text(const std::vector<MemoryPrediction>& ranks) {
  const auto largest = std::max_element(ranks.begin(), ranks.end(),
                                        [](const auto& a, const auto& b) { return a.total() < b.total(); });
  if (largest == ranks.end()) return "";
  std::vector<std::string> kinds;
  for (const auto& [kind, bytes] : largest->by_kind()) kinds.push_back(fmt::format("{} {}", kind, bytes));
  return fmt::format("rank {}: {} bytes ({})", largest - ranks.begin(), largest->total(), join(kinds, ", "));
}

}  // namespace penstock::plan
