#include "coordinator/store/internal/measurement_rows.h"

#include <utility>

#include "base/text.h"
#include "coordinator/store/internal/parts.h"
#include "coordinator/store/internal/words.h"

namespace penstock::coordinator {

// memory: a line a rank. layer: its type, -1 where a series is of no layer.
const char* const kMeasurementTables = R"(
CREATE TABLE measured_attempts(
  job TEXT NOT NULL, attempt INTEGER NOT NULL, schedule TEXT NOT NULL, stages TEXT NOT NULL, steps INTEGER NOT NULL,
  memory TEXT NOT NULL, history_steps BLOB NOT NULL, PRIMARY KEY(job, attempt)) WITHOUT ROWID;
CREATE TABLE measured_series(
  job TEXT NOT NULL, attempt INTEGER NOT NULL, place INTEGER NOT NULL, rank INTEGER NOT NULL, stage INTEGER NOT NULL,
  kind INTEGER NOT NULL, layer INTEGER NOT NULL, count INTEGER NOT NULL, seconds BLOB NOT NULL, cpu_seconds BLOB NOT NULL,
  PRIMARY KEY(job, attempt, place));
CREATE TABLE measured_loads(
  job TEXT NOT NULL, attempt INTEGER NOT NULL, layer INTEGER NOT NULL, stage INTEGER NOT NULL, steps INTEGER NOT NULL,
  expert_rows BLOB NOT NULL, ratio BLOB NOT NULL, PRIMARY KEY(job, attempt, layer));
CREATE TABLE measured_histories(
  job TEXT NOT NULL, attempt INTEGER NOT NULL, stage INTEGER NOT NULL, seconds BLOB NOT NULL, load BLOB NOT NULL,
  PRIMARY KEY(job, attempt, stage));
)";

namespace {

constexpr const char* kParts[] = {"measured_series", "measured_loads", "measured_histories"};

std::string memory_text(const std::vector<RankMemoryView>& ranks) {
  std::string text;
  for (const RankMemoryView& rank : ranks) text += kinds_text(rank) + "\n";
  return text;
}

Status add_series(Database& database, const PutMeasurements& write, size_t place) {
  const MeasuredSeries& series = write.measurements.series[place];
  Statement add = database.prepare(
      "INSERT INTO measured_series(job, attempt, place, rank, stage, kind, layer, count, seconds, cpu_seconds) "
      "VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
  return add.bind(write.job)
      .bind(write.measurements.attempt)
      .bind(static_cast<int64_t>(place))
      .bind(int64_t{series.rank.value})
      .bind(int64_t{series.stage.value})
      .bind(static_cast<int64_t>(series.kind))
      .bind(series.layer ? static_cast<int64_t>(*series.layer) : -1)
      .bind(series.count)
      .bind_bytes(bytes_of(series.seconds))
      .bind_bytes(bytes_of(series.cpu_seconds))
      .run();
}

Status add_load(Database& database, const PutMeasurements& write, const LayerLoad& load) {
  Statement add = database.prepare(
      "INSERT INTO measured_loads(job, attempt, layer, stage, steps, expert_rows, ratio) "
      "VALUES(?, ?, ?, ?, ?, ?, ?)");
  return add.bind(write.job)
      .bind(write.measurements.attempt)
      .bind(int64_t{load.layer.value})
      .bind(int64_t{load.stage.value})
      .bind(load.steps)
      .bind_bytes(bytes_of(load.rows))
      .bind_bytes(bytes_of(load.ratio))
      .run();
}

Status add_history(Database& database, const PutMeasurements& write, const StageHistory& stage) {
  Statement add = database.prepare(
      "INSERT INTO measured_histories(job, attempt, stage, seconds, load) VALUES(?, ?, ?, ?, ?)");
  return add.bind(write.job)
      .bind(write.measurements.attempt)
      .bind(int64_t{stage.stage.value})
      .bind_bytes(bytes_of(stage.seconds))
      .bind_bytes(bytes_of(stage.load))
      .run();
}

StatusOr<std::vector<RankMemoryView>> read_memory_lines(const std::string& text) {
  std::vector<RankMemoryView> ranks;
  std::vector<std::string> lines = split_on(text, '\n');
  lines.pop_back();  // behind the last line's end
  for (const std::string& line : lines) {
    PENSTOCK_ASSIGN_OR_RETURN(RankMemoryView kinds, read_kinds(line));
    ranks.push_back(std::move(kinds));
  }
  return ranks;
}

Status read_attempt(StoredJob& job, Statement& row) {
  AttemptMeasurements measured;
  measured.attempt = row.integer();
  measured.schedule = row.text();
  const std::string stages = row.text();
  if (!stages.empty()) measured.stages = split_on(stages, '\n');
  measured.steps = row.integer();
  const std::string memory = row.text();
  PENSTOCK_ASSIGN_OR_RETURN(measured.memory, read_memory_lines(memory));
  measured.history.steps = numbers_from<int64_t>(row.bytes());
  job.measurements[measured.attempt] = std::move(measured);
  return ok_status();
}

StatusOr<AttemptMeasurements*> attempt_of(StoredJob& job, Statement& row) {
  const int64_t attempt = row.integer();
  const auto measured = job.measurements.find(attempt);
  if (measured != job.measurements.end()) return &measured->second;
  return data_loss("measurements of job {}: attempt {} is not known", job.definition.name, attempt);
}

Status read_series(StoredJob& job, Statement& row) {
  PENSTOCK_ASSIGN_OR_RETURN(AttemptMeasurements * measured, attempt_of(job, row));
  MeasuredSeries series;
  series.rank = RankIndex(row.integer());
  series.stage = StageIndex(row.integer());
  const int64_t kind = row.integer();
  if (kind < 0 || kind >= kMeasuredKinds)
    return data_loss("measurements of job {}: expected a kind below {}, found {}", job.definition.name,
                     kMeasuredKinds, kind);
  series.kind = static_cast<MeasuredKind>(kind);
  const int64_t layer = row.integer();
  if (layer < -1 || layer >= plan::kLayerTypes)
    return data_loss("measurements of job {}: expected a type of layer below {}, found {}",
                     job.definition.name, plan::kLayerTypes, layer);
  if (layer >= 0) series.layer = static_cast<plan::LayerType>(layer);
  series.count = row.integer();
  series.seconds = numbers_from<float>(row.bytes());
  series.cpu_seconds = numbers_from<float>(row.bytes());
  measured->series.push_back(std::move(series));
  return ok_status();
}

Status read_load(StoredJob& job, Statement& row) {
  PENSTOCK_ASSIGN_OR_RETURN(AttemptMeasurements * measured, attempt_of(job, row));
  LayerLoad load;
  load.layer = LayerIndex(row.integer());
  load.stage = StageIndex(row.integer());
  load.steps = row.integer();
  load.rows = numbers_from<int64_t>(row.bytes());
  load.ratio = numbers_from<float>(row.bytes());
  measured->expert_loads.push_back(std::move(load));
  return ok_status();
}

Status read_history(StoredJob& job, Statement& row) {
  PENSTOCK_ASSIGN_OR_RETURN(AttemptMeasurements * measured, attempt_of(job, row));
  StageHistory stage;
  stage.stage = StageIndex(row.integer());
  stage.seconds = numbers_from<float>(row.bytes());
  stage.load = numbers_from<float>(row.bytes());
  measured->history.stages.push_back(std::move(stage));
  return ok_status();
}

}  // namespace

Status write_measurements(Database& database, const PutMeasurements& write) {
  const AttemptMeasurements& measured = write.measurements;
  Statement attempt = database.prepare(
      "INSERT OR REPLACE INTO measured_attempts(job, attempt, schedule, stages, steps, memory, history_steps) "
      "VALUES(?, ?, ?, ?, ?, ?, ?)");
  PENSTOCK_RETURN_IF_ERROR(attempt.bind(write.job)
                               .bind(measured.attempt)
                               .bind(measured.schedule)
                               .bind(joined(measured.stages, "\n"))
                               .bind(measured.steps)
                               .bind(memory_text(measured.memory))
                               .bind_bytes(bytes_of(measured.history.steps))
                               .run());
  for (const char* table : kParts) {
    Statement drop = database.prepare(fmt::format("DELETE FROM {} WHERE job=? AND attempt=?", table));
    PENSTOCK_RETURN_IF_ERROR(drop.bind(write.job).bind(measured.attempt).run());
  }
  for (size_t place = 0; place < measured.series.size(); ++place)
    PENSTOCK_RETURN_IF_ERROR(add_series(database, write, place));
  for (const LayerLoad& load : measured.expert_loads)
    PENSTOCK_RETURN_IF_ERROR(add_load(database, write, load));
  for (const StageHistory& stage : measured.history.stages)
    PENSTOCK_RETURN_IF_ERROR(add_history(database, write, stage));
  return ok_status();
}

Status drop_measurements(Database& database, const DropMeasurements& write) {
  const auto drop_from = [&](const char* table) {
    Statement drop = database.prepare(fmt::format("DELETE FROM {} WHERE job=? AND attempt<?", table));
    return drop.bind(write.job).bind(write.below).run();
  };
  for (const char* table : kParts) PENSTOCK_RETURN_IF_ERROR(drop_from(table));
  return drop_from("measured_attempts");
}

Status erase_measurements(Database& database, const std::string& job) {
  const auto erase_from = [&](const char* table) {
    Statement erase = database.prepare(fmt::format("DELETE FROM {} WHERE job=?", table));
    return erase.bind(job).run();
  };
  for (const char* table : kParts) PENSTOCK_RETURN_IF_ERROR(erase_from(table));
  return erase_from("measured_attempts");
}

Status read_measurements(Database& database, std::map<std::string, StoredJob>& jobs) {
  PENSTOCK_RETURN_IF_ERROR(
      read_parts(database,
                 "SELECT job, attempt, schedule, stages, steps, memory, history_steps FROM measured_attempts "
                 "ORDER BY job, attempt",
                 jobs, read_attempt));
  PENSTOCK_RETURN_IF_ERROR(read_parts(
      database,
      "SELECT job, attempt, rank, stage, kind, layer, count, seconds, cpu_seconds FROM measured_series "
      "ORDER BY job, attempt, place",
      jobs, read_series));
  PENSTOCK_RETURN_IF_ERROR(read_parts(
      database,
      "SELECT job, attempt, layer, stage, steps, expert_rows, ratio FROM measured_loads ORDER BY job, attempt, layer",
      jobs, read_load));
  return read_parts(
      database,
      "SELECT job, attempt, stage, seconds, load FROM measured_histories ORDER BY job, attempt, stage", jobs,
      read_history);
}

}  // namespace penstock::coordinator
