#include "coordinator/store/internal/rows.h"

#include <map>
#include <utility>

#include "base/text.h"
#include "coordinator/store/internal/measurement_rows.h"
#include "coordinator/store/internal/parts.h"
#include "coordinator/store/internal/words.h"

namespace penstock::coordinator {
namespace {

constexpr const char* kTables = R"(
CREATE TABLE jobs(
  name TEXT PRIMARY KEY, request_id TEXT NOT NULL, principal TEXT NOT NULL, spec_yaml TEXT NOT NULL,
  schedule TEXT NOT NULL, sequence INTEGER NOT NULL, submitted_unix_ms INTEGER NOT NULL, steps INTEGER NOT NULL,
  tokens_per_step INTEGER NOT NULL, ranks INTEGER NOT NULL, stages INTEGER NOT NULL, microbatches INTEGER NOT NULL,
  state TEXT NOT NULL, reason TEXT NOT NULL, by TEXT NOT NULL, since_unix_ms INTEGER NOT NULL,
  attempt INTEGER NOT NULL, started_unix_ms INTEGER NOT NULL, step INTEGER NOT NULL, has_loss INTEGER NOT NULL,
  loss REAL, tokens_per_second REAL, step_seconds REAL, weights_digest TEXT NOT NULL, exit_code INTEGER NOT NULL,
  durable_step INTEGER NOT NULL, restarts INTEGER NOT NULL, barren_attempts INTEGER NOT NULL,
  checkpoints TEXT NOT NULL, sums_since INTEGER NOT NULL, started_from TEXT NOT NULL, first_step INTEGER NOT NULL,
  file_before TEXT NOT NULL, splits_undone TEXT NOT NULL, submitted_yaml TEXT NOT NULL);
CREATE TABLE events(
  job TEXT NOT NULL, sequence INTEGER NOT NULL, unix_ms INTEGER NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL,
  by TEXT NOT NULL, PRIMARY KEY(job, sequence)) WITHOUT ROWID;
CREATE TABLE losses(
  job TEXT NOT NULL, step INTEGER NOT NULL, loss REAL, PRIMARY KEY(job, step)) WITHOUT ROWID;
CREATE TABLE validation(
  job TEXT NOT NULL, step INTEGER NOT NULL, loss REAL, PRIMARY KEY(job, step)) WITHOUT ROWID;
CREATE TABLE stages(
  job TEXT NOT NULL, stage INTEGER NOT NULL, rank INTEGER NOT NULL, worker TEXT NOT NULL, layers TEXT NOT NULL,
  forward_ms REAL, backward_ms REAL, wait_ms REAL, memory_peak_bytes INTEGER, memory_predicted_bytes INTEGER,
  activation_slots INTEGER, activation_slots_peak INTEGER, busy_fraction REAL, payload_slots INTEGER,
  payload_slots_peak INTEGER, PRIMARY KEY(job, stage, rank)) WITHOUT ROWID;
CREATE TABLE memory(
  job TEXT NOT NULL, rank INTEGER NOT NULL, kinds TEXT NOT NULL, PRIMARY KEY(job, rank)) WITHOUT ROWID;
CREATE TABLE traces(
  job TEXT NOT NULL, step INTEGER NOT NULL, rank INTEGER NOT NULL, trace BLOB NOT NULL, PRIMARY KEY(job, step, rank));
CREATE TABLE placements(
  job TEXT NOT NULL, rank INTEGER NOT NULL, attempt INTEGER NOT NULL, placed_order INTEGER NOT NULL,
  worker TEXT NOT NULL, incarnation INTEGER NOT NULL, device INTEGER NOT NULL, PRIMARY KEY(job, rank)) WITHOUT ROWID;
CREATE TABLE cordons(worker TEXT PRIMARY KEY, by TEXT NOT NULL, since_unix_ms INTEGER NOT NULL) WITHOUT ROWID;
)";

constexpr const char* kPutStatus =
    "UPDATE jobs SET state=?, reason=?, by=?, since_unix_ms=?, attempt=?, started_unix_ms=?, step=?, "
    "has_loss=?, loss=?, tokens_per_second=?, step_seconds=?, weights_digest=?, exit_code=?, "
    "durable_step=?, restarts=?, barren_attempts=? WHERE name=?";

void bind_status(Statement& statement, const JobStatus& status) {
  statement.bind(std::string(to_string(status.state)))
      .bind(status.reason)
      .bind(status.by)
      .bind(status.since_unix_ms)
      .bind(status.attempt)
      .bind(status.started_unix_ms)
      .bind(status.step)
      .bind(int64_t{status.loss.has_value()})
      .bind(status.loss)
      .bind(status.tokens_per_second)
      .bind(status.step_seconds)
      .bind(status.weights_digest)
      .bind(int64_t{status.exit_code})
      .bind(status.durable_step)
      .bind(status.restarts)
      .bind(status.barren_attempts);
}

StatusOr<JobState> read_state(Statement& row) {
  const std::string text = row.text();
  const std::optional<JobState> state = parse_job_state(text);
  if (!state) return data_loss("state: expected one of a job's, found \"{}\"", text);
  return *state;
}

struct Writer {
  Database& database;

  StatusOr<bool> knows(const std::string& job) {
    Statement statement = database.prepare("SELECT 1 FROM jobs WHERE name=?");
    return statement.bind(job).step();
  }
  Status erase(const std::string& table, const std::string& job) {
    Statement statement = database.prepare("DELETE FROM " + table + " WHERE job=?");
    return statement.bind(job).run();
  }
  Status erase_all_of(const std::string& job) {
    for (const char* table : {"events", "losses", "validation", "stages", "memory", "traces", "placements"})
      PENSTOCK_RETURN_IF_ERROR(erase(table, job));
    PENSTOCK_RETURN_IF_ERROR(erase_measurements(database, job));
    Statement statement = database.prepare("DELETE FROM jobs WHERE name=?");
    return statement.bind(job).run();
  }

  Status operator()(const CreateJob& write) {
    const JobDefinition& job = write.definition;
    PENSTOCK_RETURN_IF_ERROR(erase_all_of(job.name));
    Statement statement = database.prepare(
        "INSERT INTO jobs(name, request_id, principal, spec_yaml, schedule, sequence, submitted_unix_ms, "
        "steps, tokens_per_step, ranks, stages, microbatches, state, reason, by, since_unix_ms, attempt, "
        "started_unix_ms, step, has_loss, loss, tokens_per_second, step_seconds, weights_digest, exit_code, "
        "durable_step, restarts, barren_attempts, checkpoints, sums_since, started_from, first_step, file_before, "
        "splits_undone, submitted_yaml) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
    statement.bind(job.name)
        .bind(job.request_id)
        .bind(job.principal)
        .bind(job.spec_yaml)
        .bind(job.schedule)
        .bind(job.sequence)
        .bind(job.submitted_unix_ms)
        .bind(job.steps)
        .bind(job.tokens_per_step)
        .bind(int64_t{job.ranks})
        .bind(int64_t{job.stages})
        .bind(job.microbatches);
    bind_status(statement, write.status);
    return statement.bind(job.checkpoints)
        .bind(job.sums_since)
        .bind(job.started_from)
        .bind(job.first_step)
        .bind(job.moves.file_before)
        .bind(joined(job.moves.undone, "\n"))
        .bind(job.submitted_yaml)
        .run();
  }

  // What a person or a move of its layers may change of it; the rest is as it was.
  Status operator()(const PutDefinition& write) {
    const JobDefinition& job = write.definition;
    Statement statement = database.prepare(
        "UPDATE jobs SET spec_yaml=?, schedule=?, ranks=?, stages=?, microbatches=?, checkpoints=?, "
        "sums_since=?, file_before=?, splits_undone=?, submitted_yaml=? WHERE name=?");
    return statement.bind(job.spec_yaml)
        .bind(job.schedule)
        .bind(int64_t{job.ranks})
        .bind(int64_t{job.stages})
        .bind(job.microbatches)
        .bind(job.checkpoints)
        .bind(job.sums_since)
        .bind(job.moves.file_before)
        .bind(joined(job.moves.undone, "\n"))
        .bind(job.submitted_yaml)
        .bind(job.name)
        .run();
  }

  Status operator()(const PutStatus& write) {
    Statement statement = database.prepare(kPutStatus);
    bind_status(statement, write.status);
    return statement.bind(write.job).run();
  }

  Status operator()(const AddEvent& write) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool known, knows(write.job));
    if (!known) return ok_status();
    Statement add = database.prepare(
        "INSERT OR REPLACE INTO events(job, sequence, unix_ms, state, reason, by) VALUES(?, ?, ?, ?, ?, ?)");
    PENSTOCK_RETURN_IF_ERROR(add.bind(write.job)
                                 .bind(write.sequence)
                                 .bind(write.event.unix_ms)
                                 .bind(std::string(to_string(write.event.state)))
                                 .bind(write.event.reason)
                                 .bind(write.event.by)
                                 .run());
    Statement trim = database.prepare(
        "DELETE FROM events WHERE job=?1 AND sequence<="
        "(SELECT sequence FROM events WHERE job=?1 ORDER BY sequence DESC LIMIT 1 OFFSET ?2)");
    return trim.bind(write.job).bind(write.kept).run();
  }

  Status operator()(const AddLosses& write) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool known, knows(write.job));
    if (!known) return ok_status();
    Statement trim = database.prepare("DELETE FROM losses WHERE job=? AND step>=?");
    PENSTOCK_RETURN_IF_ERROR(trim.bind(write.job).bind(write.first_step).run());
    int64_t step = write.first_step;
    for (double loss : write.losses) {
      Statement add = database.prepare("INSERT INTO losses(job, step, loss) VALUES(?, ?, ?)");
      PENSTOCK_RETURN_IF_ERROR(add.bind(write.job).bind(step++).bind(loss).run());
    }
    return ok_status();
  }

  Status operator()(const AddValidation& write) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool known, knows(write.job));
    if (!known) return ok_status();
    for (const ValidationView& each : write.losses) {
      Statement add = database.prepare("INSERT OR REPLACE INTO validation(job, step, loss) VALUES(?, ?, ?)");
      PENSTOCK_RETURN_IF_ERROR(add.bind(write.job).bind(each.step).bind(each.loss).run());
    }
    Statement trim = database.prepare(
        "DELETE FROM validation WHERE job=?1 AND step<="
        "(SELECT step FROM validation WHERE job=?1 ORDER BY step DESC LIMIT 1 OFFSET ?2)");
    return trim.bind(write.job).bind(static_cast<int64_t>(kValidationsKept)).run();
  }

  Status operator()(const DropValidation& write) {
    Statement drop = database.prepare("DELETE FROM validation WHERE job=? AND step>?");
    return drop.bind(write.job).bind(write.beyond).run();
  }

  Status operator()(const PutStages& write) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool known, knows(write.job));
    if (!known) return ok_status();
    PENSTOCK_RETURN_IF_ERROR(erase("stages", write.job));
    for (const StageView& stage : write.stages) PENSTOCK_RETURN_IF_ERROR(add_stage(write.job, stage));
    return ok_status();
  }

  Status add_stage(const std::string& job, const StageView& stage) {
    Statement add = database.prepare(
        "INSERT INTO stages(job, stage, rank, worker, layers, forward_ms, backward_ms, wait_ms, "
        "memory_peak_bytes, memory_predicted_bytes, activation_slots, activation_slots_peak, busy_fraction, "
        "payload_slots, payload_slots_peak) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
    return add.bind(job)
        .bind(int64_t{stage.stage.value})
        .bind(int64_t{stage.rank.value})
        .bind(stage.worker)
        .bind(joined(stage.layers))
        .bind(stage.forward_ms)
        .bind(stage.backward_ms)
        .bind(stage.wait_ms)
        .bind(stage.memory_peak_bytes)
        .bind(stage.memory_predicted_bytes)
        .bind(widened(stage.activation_slots))
        .bind(widened(stage.activation_slots_peak))
        .bind(stage.busy_fraction)
        .bind(widened(stage.payload_slots))
        .bind(widened(stage.payload_slots_peak))
        .run();
  }

  Status operator()(const PutMemory& write) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool known, knows(write.job));
    if (!known) return ok_status();
    PENSTOCK_RETURN_IF_ERROR(erase("memory", write.job));
    for (size_t rank = 0; rank < write.ranks.size(); ++rank) {
      Statement add = database.prepare("INSERT INTO memory(job, rank, kinds) VALUES(?, ?, ?)");
      PENSTOCK_RETURN_IF_ERROR(
          add.bind(write.job).bind(static_cast<int64_t>(rank)).bind(kinds_text(write.ranks[rank])).run());
    }
    return ok_status();
  }

  static std::optional<int64_t> widened(const std::optional<int32_t>& value) {
    return value ? std::optional<int64_t>(*value) : std::nullopt;
  }

  Status operator()(const PutTrace& write) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool known, knows(write.job));
    if (!known) return ok_status();
    PENSTOCK_RETURN_IF_ERROR((*this)(DropTrace{write.job, write.step}));
    for (size_t rank = 0; rank < write.ranks.size(); ++rank) {
      Statement add = database.prepare("INSERT INTO traces(job, step, rank, trace) VALUES(?, ?, ?, ?)");
      PENSTOCK_RETURN_IF_ERROR(add.bind(write.job)
                                   .bind(write.step)
                                   .bind(static_cast<int64_t>(rank))
                                   .bind_bytes(*write.ranks[rank])
                                   .run());
    }
    return ok_status();
  }

  Status operator()(const DropTrace& write) {
    Statement drop = database.prepare("DELETE FROM traces WHERE job=? AND step=?");
    return drop.bind(write.job).bind(write.step).run();
  }

  Status operator()(const PutMeasurements& write) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool known, knows(write.job));
    return known ? write_measurements(database, write) : ok_status();
  }

  Status operator()(const DropMeasurements& write) { return drop_measurements(database, write); }

  Status operator()(const PutCordon& write) {
    Statement put =
        database.prepare("INSERT OR REPLACE INTO cordons(worker, by, since_unix_ms) VALUES(?, ?, ?)");
    return put.bind(write.worker).bind(write.cordon.by).bind(write.cordon.since_unix_ms).run();
  }
  Status operator()(const DropCordon& write) {
    Statement drop = database.prepare("DELETE FROM cordons WHERE worker=?");
    return drop.bind(write.worker).run();
  }

  Status operator()(const PutAttempt& write) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool known, knows(write.job));
    if (!known) return ok_status();
    PENSTOCK_RETURN_IF_ERROR(erase("placements", write.job));
    for (const RankPlacement& rank : write.ranks) {
      Statement add = database.prepare(
          "INSERT INTO placements(job, rank, attempt, placed_order, worker, incarnation, device) "
          "VALUES(?, ?, ?, ?, ?, ?, ?)");
      PENSTOCK_RETURN_IF_ERROR(add.bind(write.job)
                                   .bind(int64_t{rank.rank.value})
                                   .bind(write.attempt)
                                   .bind(write.order)
                                   .bind(rank.worker)
                                   .bind(rank.incarnation)
                                   .bind(int64_t{rank.device})
                                   .run());
    }
    return ok_status();
  }

  Status operator()(const ForgetAttempt& write) { return erase("placements", write.job); }
  Status operator()(const DropJob& write) { return erase_all_of(write.job); }
};

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
Status read_all_losses(Database& database, std::map<std::string, StoredJob>& jobs) {
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

}  // namespace

Status create_tables(Database& database) {
  return database.execute(fmt::format("BEGIN; {} {} PRAGMA application_id={}; PRAGMA user_version={}; COMMIT",
                                      kTables, kMeasurementTables, kApplicationId, kSchemaVersion));
}

Status write_rows(Database& database, const Write& write) {
  return std::visit(Writer{database}, write);
}

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
  std::map<std::string, StoredJob> jobs;
  std::vector<std::string> order;
  {
    Statement rows = database.prepare(
        "SELECT name, request_id, principal, spec_yaml, schedule, sequence, submitted_unix_ms, steps, "
        "tokens_per_step, ranks, stages, microbatches, state, reason, by, since_unix_ms, attempt, "
        "started_unix_ms, step, has_loss, loss, tokens_per_second, step_seconds, weights_digest, exit_code, "
        "durable_step, restarts, barren_attempts, checkpoints, sums_since, started_from, first_step, "
        "file_before, splits_undone, submitted_yaml FROM jobs ORDER BY sequence");
    while (true) {
      PENSTOCK_ASSIGN_OR_RETURN(const bool more, rows.step());
      if (!more) break;
      PENSTOCK_ASSIGN_OR_RETURN(StoredJob job, read_job(rows));
      order.push_back(job.definition.name);
      jobs.emplace(order.back(), std::move(job));
    }
  }
  PENSTOCK_RETURN_IF_ERROR(read_parts(
      database, "SELECT job, sequence, unix_ms, state, reason, by FROM events ORDER BY job, sequence", jobs,
      read_event));
  PENSTOCK_RETURN_IF_ERROR(read_all_losses(database, jobs));
  PENSTOCK_RETURN_IF_ERROR(read_parts(database, "SELECT job, step, loss FROM validation ORDER BY job, step",
                                      jobs, read_validation));
  PENSTOCK_RETURN_IF_ERROR(read_parts(
      database,
      "SELECT job, stage, rank, worker, layers, forward_ms, backward_ms, wait_ms, memory_peak_bytes, "
      "memory_predicted_bytes, activation_slots, activation_slots_peak, busy_fraction, payload_slots, "
      "payload_slots_peak FROM stages ORDER BY job, stage, rank",
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
