// What a running attempt reports: steps that all ranks have done are committed, saved and shown.
#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "coordinator/core/internal/turn.h"
#include "proto/codec/limits.h"

namespace penstock::coordinator {
namespace {

constexpr size_t kRecentSteps = 10;                // whose mean speed is shown
constexpr Duration kStagesSavedEvery = 1s;         // stage rows are many and only the last ones matter
constexpr Duration kMeasurementsSavedEvery = 10s;  // they are more still
constexpr int64_t kLossesPerSave = 4096;

// The sum of the ranks' parts, in their order; nothing where none told any.
using Loss = std::optional<double> StepReport::*;
std::optional<double> loss_of(const std::vector<RankIndex>& ranks, const std::vector<StepReport>& reports,
                              Loss which) {
  std::optional<double> sum;
  for (RankIndex rank : ranks) {
    const std::optional<double>& part = reports[static_cast<size_t>(rank.value)].*which;
    if (part) sum = sum.value_or(0.0) + *part;
  }
  return sum;
}

// The rank whose part of a validation loss is missing where others have told theirs. Of the training's, it is refused when
// the report comes.
RankIndex without_part(const std::vector<RankIndex>& ranks, const std::vector<StepReport>& reports) {
  RankIndex missing;
  size_t parts = 0;
  for (RankIndex rank : ranks) {
    if (reports[static_cast<size_t>(rank.value)].validation_loss)
      ++parts;
    else if (!missing.is_set())
      missing = rank;
  }
  return parts == 0 ? RankIndex() : missing;
}

std::optional<int64_t> peak_of(const StepReport& report) {
  if (report.memory.empty()) return std::nullopt;
  int64_t bytes = 0;
  for (const MemoryKind& kind : report.memory) bytes += kind.bytes_peak;
  return bytes;
}

void measure_stage(StageView& view, const StepReport& report) {
  view.payload_slots.reset();
  view.payload_slots_peak.reset();
  view.wait_ms = report.wait_seconds * 1e3;
  view.memory_peak_bytes = peak_of(report);
  if (report.wall_seconds > 0) {
    view.busy_fraction = std::clamp(1 - report.wait_seconds / report.wall_seconds, 0.0, 1.0);
  }
  for (const StageTimes& times : report.stages) {
    if (times.stage != view.stage) continue;
    const double split = times.input_gradient_seconds + times.weight_gradient_seconds;
    view.forward_ms = times.forward_seconds * 1e3;
    view.backward_ms = (split > 0 ? split : times.backward_seconds) * 1e3;
    view.activation_slots = times.activation_slots;
    view.activation_slots_peak = times.activation_slots_peak;
  }
  for (const PayloadSlots& slots : report.payloads) {
    if (slots.stage != view.stage) continue;
    view.payload_slots = view.payload_slots.value_or(0) + slots.slots;
    view.payload_slots_peak = view.payload_slots_peak.value_or(0) + slots.held_peak;
  }
}

// Keeps the kinds that the rank has told of, the first of them, and leaves others out of the report too, in which each
// would be a series of the metrics. True when a peak has grown.
bool measure_memory(RankMemoryView& rank, StepReport& report) {
  bool has_grown = false;
  std::erase_if(report.memory, [&](const MemoryKind& kind) {
    auto found = std::find_if(rank.begin(), rank.end(),
                              [&](const MemoryUseView& each) { return each.kind == kind.kind; });
    if (found == rank.end()) {
      if (rank.size() >= codec::kMostMemoryKinds) return true;
      found = rank.insert(rank.end(), {.kind = kind.kind});
    }
    has_grown |= found->peak_bytes != kind.bytes_peak;
    found->peak_bytes = kind.bytes_peak;
    return false;
  });
  return has_grown;
}

bool same_bits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b) || (std::isnan(a) && std::isnan(b));
}

// A step that an earlier attempt has committed: it must come out the same. False: it did not, and the job has failed.
bool is_replayed(Turn& turn, Job& job, std::optional<double> loss) {
  const auto step = static_cast<size_t>(job.attempt->window.committed() - 1 - job.definition.first_step);
  if (!loss || step >= job.losses.size() || same_bits(job.losses[step], *loss)) return true;
  const std::string start = job.attempt->first_step == 0
                                ? "the start"
                                : fmt::format("the checkpoint of step {}", job.attempt->first_step);
  fail_job(turn, job,
           fmt::format(
               "step {} was done again from {} and must give the same loss: expected {}, found {}; its ranks "
               "compute with {}: look whether the data or the machines have changed",
               job.attempt->window.committed() - 1, start, job.losses[step], *loss,
               job.attempt->ranks.front().fingerprint));
  return false;
}

// False: the job has failed.
bool commit(Turn& turn, Job& job, std::vector<StepReport> reports) {
  for (StageView& view : job.stages) measure_stage(view, reports[static_cast<size_t>(view.rank.value)]);
  bool has_grown = false;
  for (size_t rank = 0; rank < reports.size(); ++rank)
    has_grown |= measure_memory(job.memory[rank], reports[rank]);
  if (has_grown) {
    job.memory_saved = false;
    job.measurements.set_memory(job.memory);
  }
  job.measurements.add(reports);
  if (job.attempt->window.committed() <= job.status.step)
    return is_replayed(turn, job, loss_of(job.attempt->loss_ranks, reports, &StepReport::loss));
  const std::vector<RankIndex>& validators = job.attempt->validation_loss_ranks;
  if (const RankIndex rank = without_part(validators, reports); rank.is_set()) {
    fail_job(
        turn, job,
        fmt::format(
            "rank {} on {} reported step {} without its part of the validation loss, of which others told "
            "theirs",
            rank.value, job.attempt->ranks[static_cast<size_t>(rank.value)].worker,
            job.attempt->window.committed() - 1));
    return false;
  }
  StepCommitted committed{.job = job.name(),
                          .step = job.attempt->window.committed(),
                          .loss = loss_of(job.attempt->loss_ranks, reports, &StepReport::loss),
                          .validation_loss = loss_of(validators, reports, &StepReport::validation_loss),
                          .tokens = job.definition.tokens_per_step};
  for (const StepReport& report : reports)
    committed.seconds = std::max(committed.seconds, report.wall_seconds);

  job.recent_step_seconds.push_back(committed.seconds);
  if (job.recent_step_seconds.size() > kRecentSteps) job.recent_step_seconds.pop_front();
  double seconds = 0;
  for (double step : job.recent_step_seconds) seconds += step;
  const auto steps = static_cast<double>(job.recent_step_seconds.size());

  JobStatus& status = job.status;
  status.step = committed.step;
  status.loss = committed.loss;
  status.step_seconds = committed.seconds;
  if (seconds > 0) status.tokens_per_second = static_cast<double>(committed.tokens) * steps / seconds;
  if (committed.loss) job.losses.push_back(*committed.loss);
  if (committed.validation_loss) job.validation.push_back({committed.step, *committed.validation_loss});
  if (job.validation.size() > kValidationsKept) job.validation.pop_front();
  committed.reports = std::move(reports);
  turn.observe(std::move(committed));
  return true;
}

}  // namespace

void commit_steps(Turn& turn, Job& job) {
  bool any = false;
  while (std::optional<std::vector<StepReport>> reports = job.attempt->window.take_committed()) {
    if (!commit(turn, job, *std::move(reports))) return;
    any = true;
  }
  if (!any) return;
  job.split_watch.has_done_steps = true;
  progress_made(turn, job);
  changed(turn, job);
  save_progress(turn, job);
  commit_checkpoints(turn, job);
}

// One save at a time and job: a slow disk gets longer saves, not a longer queue.
void save_progress(Turn& turn, Job& job) {
  const auto losses = static_cast<int64_t>(job.losses.size());
  if (job.saving_progress || (job.steps_saved == losses && job.step_saved == job.status.step)) return;
  const int64_t end = std::min(losses, job.steps_saved + kLossesPerSave);
  std::vector<Write> writes = {
      AddLosses{
          job.name(), job.steps_saved, {job.losses.begin() + job.steps_saved, job.losses.begin() + end}},
      PutStatus{job.name(), job.status}};
  if (std::vector<ValidationView> unsaved = job.take_unsaved_validation(); !unsaved.empty()) {
    writes.push_back(AddValidation{job.name(), std::move(unsaved)});
  }
  if (turn.now.time - job.stages_saved_at >= kStagesSavedEvery) {
    writes.push_back(PutStages{job.name(), job.stages});
    save_memory(job, writes);
    job.stages_saved_at = turn.now.time;
  }
  if (turn.now.time - job.measurements_saved_at >= kMeasurementsSavedEvery) {
    append(writes, measured(job));
    job.measurements_saved_at = turn.now.time;
  }
  job.steps_saved = end;
  job.step_saved = job.status.step;
  job.saving_progress = true;
  turn.after(turn.save(std::move(writes)), ProgressSaved{job.name()});
}

void keep_trace(Turn& turn, Job& job, int64_t step) {
  std::vector<Write> writes;
  if (const TracedStep* whole = job.traces.find(step))
    writes.push_back(PutTrace{job.name(), step, whole->ranks});
  for (const int64_t dropped : job.traces.trim(turn.state.options.trace_bytes_per_job)) {
    writes.push_back(DropTrace{job.name(), dropped});
  }
  if (!writes.empty()) turn.save(std::move(writes));
}

}  // namespace penstock::coordinator
