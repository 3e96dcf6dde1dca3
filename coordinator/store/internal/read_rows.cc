#include "coordinator/store/internal/rows.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "coordinator/store/internal/columns.h"
#include "coordinator/store/internal/measurement_rows.h"
#include "coordinator/store/internal/parts.h"
#include "coordinator/store/internal/words.h"

namespace penstock::coordinator {
namespace {

using JobsByName = std::map<std::string, StoredJob>;

StatusOr<JobState> read_state(Statement& row) {
  const std::string text = row.text();
  const std::optional<JobState> state = parse_job_state(text);
  if (!state) return data_loss("state: expected one of a job's, found \"{}\"", text);
  return *state;
}

StatusOr<StoredJob> read_job(Statement& row) {
  StoredJob stored;
  JobDefinition& job = stored.definition;
  job.name = row.text();
  job.request_id = row.text();
  job.principal = row.text();
  job.spec_yaml = row.text();
  job.schedule = row.text();
  job.sequence = row.integer();
  job.submitted_unix_ms = row.integer();
  job.steps = row.integer();
  job.tokens_per_step = row.integer();
  job.ranks = static_cast<int>(row.integer());
  job.stages = static_cast<int>(row.integer());
  job.microbatches = row.integer();
  JobStatus& status = stored.status;
  PENSTOCK_ASSIGN_OR_RETURN(status.state, read_state(row));
  status.reason = row.text();
  status.by = row.text();
  status.since_unix_ms = row.integer();
  status.attempt = row.integer();
  status.started_unix_ms = row.integer();
  status.step = row.integer();
  const bool has_loss = row.integer() != 0;
  const double loss = row.real();
  if (has_loss) status.loss = loss;
  status.tokens_per_second = row.optional_real();
  status.step_seconds = row.optional_real();
  status.weights_digest = row.text();
  status.exit_code = static_cast<int>(row.integer());
  status.durable_step = row.integer();
  status.restarts = row.integer();
  status.barren_attempts = row.integer();
  job.checkpoints = row.text();
  job.sums_since = row.integer();
  job.started_from = row.text();
  job.first_step = row.integer();
  job.moves.file_before = row.text();
  const std::string undone = row.text();
  if (!undone.empty()) job.moves.undone = split_on(undone, '\n');
  job.submitted_yaml = row.text();
  return stored;
}

StageView read_stage(Statement& row) {
  StageView stage;
  stage.stage = StageIndex(row.integer());
  stage.rank = RankIndex(row.integer());
  stage.worker = row.text();
  const std::string layers = row.text();
  if (!layers.empty()) stage.layers = split_on(layers, ' ');
  stage.forward_ms = row.optional_real();
  stage.backward_ms = row.optional_real();
  stage.wait_ms = row.optional_real();
  stage.memory_peak_bytes = row.optional_integer();
  stage.memory_predicted_bytes = row.optional_integer();
  stage.activation_slots = row.optional_integer();
  stage.activation_slots_peak = row.optional_integer();
  stage.busy_fraction = row.optional_real();
  stage.payload_slots = row.optional_integer();
  stage.payload_slots_peak = row.optional_integer();
  return stage;
}

Status read_event(StoredJob& job, Statement& row) {
  job.next_event = row.integer() + 1;
  JobEventView event;
  event.unix_ms = row.integer();
  PENSTOCK_ASSIGN_OR_RETURN(event.state, read_state(row));
  event.reason = row.text();
  event.by = row.text();
  job.events.push_back(std::move(event));
  return ok_status();
}

Status add_loss(const std::string& job, Statement& row, std::vector<double>& losses) {
  const int64_t step = row.integer();
  if (step != static_cast<int64_t>(losses.size()))
    return data_loss("losses of job {}: expected step {}, found {}", job, losses.size(), step);
  losses.push_back(row.real());
  return ok_status();
}

Status read_loss(StoredJob& job, Statement& row) {
  return add_loss(job.definition.name, row, job.losses);
}

// "('succeeded', 'failed', 'cancelled')"
std::string ended_states() {
  std::string text;
  for (int i = 0; i < kJobStates; ++i) {
    const auto state = static_cast<JobState>(i);
    if (has_ended(state)) text += fmt::format("{}'{}'", text.empty() ? "" : ", ", to_string(state));
  }
  return "(" + text + ")";
}

// All losses of jobs that go on; of those that have ended their number.
Status read_all_losses(Database& database, JobsByName& jobs) {
  const std::string joined = "FROM losses JOIN jobs ON jobs.name = losses.job WHERE jobs.state ";
  PENSTOCK_RETURN_IF_ERROR(
      read_parts(database,
                 fmt::format("SELECT losses.job, losses.step, losses.loss {}NOT IN {} ORDER BY "
                             "losses.job, losses.step",
                             joined, ended_states()),
                 jobs, read_loss));
  return read_parts(
      database,
      fmt::format("SELECT losses.job, count(*) {}IN {} GROUP BY losses.job", joined, ended_states()), jobs,
      [](StoredJob& job, Statement& row) {
        job.losses_in_store = static_cast<size_t>(row.integer());
        return ok_status();
      });
}

Status read_validation(StoredJob& job, Statement& row) {
  const int64_t step = row.integer();
  job.validation.push_back({step, row.real()});
  return ok_status();
}

Status read_trace(StoredJob& job, Statement& row) {
  const int64_t step = row.integer();
  std::vector<TraceBytes>& ranks = job.traces[step];
  const int64_t rank = row.integer();
  if (rank != static_cast<int64_t>(ranks.size())) {
    return data_loss("traces of job {}, step {}: expected rank {}, found {}", job.definition.name, step,
                     ranks.size(), rank);
  }
  ranks.push_back(std::make_shared<const std::string>(row.bytes()));
  return ok_status();
}

Status read_memory(StoredJob& job, Statement& row) {
  const int64_t rank = row.integer();
  if (rank != static_cast<int64_t>(job.memory.size())) {
    return data_loss("memory of job {}: expected rank {}, found {}", job.definition.name, job.memory.size(),
                     rank);
  }
  PENSTOCK_ASSIGN_OR_RETURN(RankMemoryView kinds, read_kinds(row.text()));
  job.memory.push_back(std::move(kinds));
  return ok_status();
}

Status read_placement(StoredJob& job, Statement& row) {
  RankPlacement rank;
  rank.rank = RankIndex(row.integer());
  job.placed_attempt = row.integer();
  job.placed_order = row.integer();
  rank.worker = row.text();
  rank.incarnation = row.integer();
  rank.device = static_cast<int>(row.integer());
  job.placed.push_back(std::move(rank));
  return ok_status();
}

// Without their parts; `order`: their names, by submission.
StatusOr<JobsByName> read_definitions(Database& database, std::vector<std::string>& order) {
  JobsByName jobs;
  Statement rows = database.prepare(fmt::format("SELECT {} FROM jobs ORDER BY sequence", kJobColumns));
  while (true) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool more, rows.step());
    if (!more) return jobs;
    PENSTOCK_ASSIGN_OR_RETURN(StoredJob job, read_job(rows));
    order.push_back(job.definition.name);
    jobs.emplace(order.back(), std::move(job));
  }
}

Status read_all_parts(Database& database, JobsByName& jobs) {
  PENSTOCK_RETURN_IF_ERROR(read_parts(
      database, "SELECT job, sequence, unix_ms, state, reason, by FROM events ORDER BY job, sequence", jobs,
      read_event));
  PENSTOCK_RETURN_IF_ERROR(read_all_losses(database, jobs));
  PENSTOCK_RETURN_IF_ERROR(read_parts(database, "SELECT job, step, loss FROM validation ORDER BY job, step",
                                      jobs, read_validation));
  PENSTOCK_RETURN_IF_ERROR(
      read_parts(database, fmt::format("SELECT {} FROM stages ORDER BY job, stage, rank", kStageColumns),
                 jobs, [](StoredJob& job, Statement& row) {
                   job.stages.push_back(read_stage(row));
                   return ok_status();
                 }));
  PENSTOCK_RETURN_IF_ERROR(
      read_parts(database, "SELECT job, rank, kinds FROM memory ORDER BY job, rank", jobs, read_memory));
  PENSTOCK_RETURN_IF_ERROR(read_parts(database,
                                      "SELECT job, rank, attempt, placed_order, worker, incarnation, device "
                                      "FROM placements ORDER BY job, rank",
                                      jobs, read_placement));
  PENSTOCK_RETURN_IF_ERROR(read_parts(
      database, "SELECT job, step, rank, trace FROM traces ORDER BY job, step, rank", jobs, read_trace));
  return ok_status();
}

}  // namespace

StatusOr<std::vector<double>> losses_of(Database& database, const std::string& job) {
  Statement known = database.prepare("SELECT 1 FROM jobs WHERE name=?");
  PENSTOCK_ASSIGN_OR_RETURN(const bool is_known, known.bind(job).step());
  if (!is_known) return not_found("job {}: not known", job);
  std::vector<double> losses;
  Statement rows = database.prepare("SELECT step, loss FROM losses WHERE job=? ORDER BY step");
  rows.bind(job);
  while (true) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool more, rows.step());
    if (!more) return losses;
    PENSTOCK_RETURN_IF_ERROR(add_loss(job, rows, losses));
  }
}

StatusOr<std::vector<StoredJob>> read_jobs(Database& database) {
  std::vector<std::string> order;
  PENSTOCK_ASSIGN_OR_RETURN(JobsByName jobs, read_definitions(database, order));
  PENSTOCK_RETURN_IF_ERROR(read_all_parts(database, jobs));
  PENSTOCK_RETURN_IF_ERROR(read_measurements(database, jobs));
  std::vector<StoredJob> result;
  for (const std::string& name : order) result.push_back(std::move(jobs.at(name)));
  return result;
}

StatusOr<std::map<std::string, Cordon>> read_cordons(Database& database) {
  std::map<std::string, Cordon> cordons;
  Statement rows = database.prepare("SELECT worker, by, since_unix_ms FROM cordons");
  while (true) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool more, rows.step());
    if (!more) return cordons;
    Cordon& cordon = cordons[rows.text()];
    cordon.by = rows.text();
    cordon.since_unix_ms = rows.integer();
  }
}

}  // namespace penstock::coordinator
