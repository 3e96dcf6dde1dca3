#include "coordinator/store/internal/rows.h"

#include <charconv>
#include <cstring>
#include <map>
#include <utility>

#include "base/text.h"

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
  file_before TEXT NOT NULL, splits_undone TEXT NOT NULL);
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
CREATE TABLE measured_attempts(
  job TEXT NOT NULL, attempt INTEGER NOT NULL, schedule TEXT NOT NULL, stages TEXT NOT NULL, steps INTEGER NOT NULL,
  PRIMARY KEY(job, attempt)) WITHOUT ROWID;
CREATE TABLE measured_series(
  job TEXT NOT NULL, attempt INTEGER NOT NULL, place INTEGER NOT NULL, rank INTEGER NOT NULL, stage INTEGER NOT NULL,
  kind INTEGER NOT NULL, count INTEGER NOT NULL, seconds BLOB NOT NULL, cpu_seconds BLOB NOT NULL,
  PRIMARY KEY(job, attempt, place));
CREATE TABLE placements(
  job TEXT NOT NULL, rank INTEGER NOT NULL, attempt INTEGER NOT NULL, placed_order INTEGER NOT NULL,
  worker TEXT NOT NULL, incarnation INTEGER NOT NULL, device INTEGER NOT NULL, PRIMARY KEY(job, rank)) WITHOUT ROWID;
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

std::string joined(const std::vector<std::string>& words, const char* between = " ") {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

// "parameters 4096 4096 gradients 4096 -": of each kind what is predicted and what was measured.
std::string kinds_text(const RankMemoryView& rank) {
  std::vector<std::string> words;
  const auto count = [](const std::optional<int64_t>& bytes) {
    return bytes ? fmt::format("{}", *bytes) : "-";
  };
  for (const MemoryUseView& use : rank) {
    for (std::string word : {use.kind, count(use.predicted_bytes), count(use.peak_bytes)})
      words.push_back(std::move(word));
  }
  return joined(words);
}

StatusOr<std::optional<int64_t>> read_bytes(const std::string& word) {
  if (word == "-") return std::optional<int64_t>();
  int64_t bytes = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), bytes);
  if (error == std::errc() && end == word.data() + word.size()) return std::optional(bytes);
  return data_loss("memory: expected bytes, or - where they are not known, found \"{}\"", word);
}

StatusOr<RankMemoryView> read_kinds(const std::string& text) {
  RankMemoryView rank;
  const std::vector<std::string> words = text.empty() ? std::vector<std::string>() : split_on(text, ' ');
  if (words.size() % 3 != 0) return data_loss("memory: expected three words a kind, found \"{}\"", text);
  for (size_t i = 0; i < words.size(); i += 3) {
    MemoryUseView use{.kind = words[i]};
    PENSTOCK_ASSIGN_OR_RETURN(use.predicted_bytes, read_bytes(words[i + 1]));
    PENSTOCK_ASSIGN_OR_RETURN(use.peak_bytes, read_bytes(words[i + 2]));
    rank.push_back(std::move(use));
  }
  return rank;
}

// As the machine has them: the file stays on it.
std::string bytes_of(const std::vector<float>& samples) {
  std::string bytes(samples.size() * sizeof(float), '\0');
  if (!samples.empty()) std::memcpy(bytes.data(), samples.data(), bytes.size());
  return bytes;
}

std::vector<float> samples_from(const std::string& bytes) {
  std::vector<float> samples(bytes.size() / sizeof(float));
  if (!samples.empty()) std::memcpy(samples.data(), bytes.data(), samples.size() * sizeof(float));
  return samples;
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
    for (const char* table : {"events", "losses", "validation", "stages", "memory", "traces",
                              "measured_attempts", "measured_series", "placements"})
      PENSTOCK_RETURN_IF_ERROR(erase(table, job));
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
        "splits_undone) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
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
        .run();
  }

  // What a person or a move of its layers may change of it; the rest is as it was.
  Status operator()(const PutDefinition& write) {
    const JobDefinition& job = write.definition;
    Statement statement = database.prepare(
        "UPDATE jobs SET spec_yaml=?, schedule=?, ranks=?, stages=?, microbatches=?, checkpoints=?, "
        "sums_since=?, file_before=?, splits_undone=? WHERE name=?");
    return statement.bind(job.spec_yaml)
        .bind(job.schedule)
        .bind(int64_t{job.ranks})
        .bind(int64_t{job.stages})
        .bind(job.microbatches)
        .bind(job.checkpoints)
        .bind(job.sums_since)
        .bind(job.moves.file_before)
        .bind(joined(job.moves.undone, "\n"))
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
    if (!known) return ok_status();
    const AttemptMeasurements& measured = write.measurements;
    Statement attempt = database.prepare(
        "INSERT OR REPLACE INTO measured_attempts(job, attempt, schedule, stages, steps) VALUES(?, ?, ?, ?, ?)");
    PENSTOCK_RETURN_IF_ERROR(attempt.bind(write.job)
                                 .bind(measured.attempt)
                                 .bind(measured.schedule)
                                 .bind(joined(measured.stages, "\n"))
                                 .bind(measured.steps)
                                 .run());
    Statement drop = database.prepare("DELETE FROM measured_series WHERE job=? AND attempt=?");
    PENSTOCK_RETURN_IF_ERROR(drop.bind(write.job).bind(measured.attempt).run());
    for (size_t place = 0; place < measured.series.size(); ++place)
      PENSTOCK_RETURN_IF_ERROR(add_series(write.job, measured, place));
    return ok_status();
  }

  Status add_series(const std::string& job, const AttemptMeasurements& measured, size_t place) {
    const MeasuredSeries& series = measured.series[place];
    Statement add = database.prepare(
        "INSERT INTO measured_series(job, attempt, place, rank, stage, kind, count, seconds, cpu_seconds) "
        "VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)");
    return add.bind(job)
        .bind(measured.attempt)
        .bind(static_cast<int64_t>(place))
        .bind(int64_t{series.rank.value})
        .bind(int64_t{series.stage.value})
        .bind(static_cast<int64_t>(series.kind))
        .bind(series.count)
        .bind_bytes(bytes_of(series.seconds))
        .bind_bytes(bytes_of(series.cpu_seconds))
        .run();
  }

  Status operator()(const DropMeasurements& write) {
    for (const char* table : {"measured_attempts", "measured_series"}) {
      Statement drop = database.prepare(std::string("DELETE FROM ") + table + " WHERE job=? AND attempt<?");
      PENSTOCK_RETURN_IF_ERROR(drop.bind(write.job).bind(write.below).run());
    }
    return ok_status();
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

// Calls `take(job, row)` for every row whose first column names a job that is known.
template <typename Take>
Status read_parts(Database& database, const std::string& sql, std::map<std::string, StoredJob>& jobs,
                  Take take) {
  Statement rows = database.prepare(sql);
  while (true) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool more, rows.step());
    if (!more) return ok_status();
    auto job = jobs.find(rows.text());
    if (job != jobs.end()) PENSTOCK_RETURN_IF_ERROR(take(job->second, rows));
  }
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

Status read_measured_attempt(StoredJob& job, Statement& row) {
  AttemptMeasurements measured;
  measured.attempt = row.integer();
  measured.schedule = row.text();
  const std::string stages = row.text();
  if (!stages.empty()) measured.stages = split_on(stages, '\n');
  measured.steps = row.integer();
  job.measurements[measured.attempt] = std::move(measured);
  return ok_status();
}

Status read_series(StoredJob& job, Statement& row) {
  const int64_t attempt = row.integer();
  const auto measured = job.measurements.find(attempt);
  if (measured == job.measurements.end())
    return data_loss("measurements of job {}: attempt {} is not known", job.definition.name, attempt);
  MeasuredSeries series;
  series.rank = RankIndex(row.integer());
  series.stage = StageIndex(row.integer());
  const int64_t kind = row.integer();
  if (kind < 0 || kind >= kMeasuredKinds)
    return data_loss("measurements of job {}: expected a kind below {}, found {}", job.definition.name,
                     kMeasuredKinds, kind);
  series.kind = static_cast<MeasuredKind>(kind);
  series.count = row.integer();
  series.seconds = samples_from(row.bytes());
  series.cpu_seconds = samples_from(row.bytes());
  measured->second.series.push_back(std::move(series));
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
  return database.execute(fmt::format("BEGIN; {} PRAGMA application_id={}; PRAGMA user_version={}; COMMIT",
                                      kTables, kApplicationId, kSchemaVersion));
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
        "file_before, splits_undone FROM jobs ORDER BY sequence");
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
  PENSTOCK_RETURN_IF_ERROR(read_parts(
      database, "SELECT job, attempt, schedule, stages, steps FROM measured_attempts ORDER BY job, attempt",
      jobs, read_measured_attempt));
  PENSTOCK_RETURN_IF_ERROR(read_parts(
      database,
      "SELECT job, attempt, rank, stage, kind, count, seconds, cpu_seconds FROM measured_series ORDER BY job, attempt, place",
      jobs, read_series));
  std::vector<StoredJob> result;
  for (const std::string& name : order) result.push_back(std::move(jobs.at(name)));
  return result;
}

}  // namespace penstock::coordinator
