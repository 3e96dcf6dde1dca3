#include "coordinator/store/internal/rows.h"

#include "coordinator/store/internal/measurement_rows.h"

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

}  // namespace

Status create_tables(Database& database) {
  return database.execute(fmt::format("BEGIN; {} {} PRAGMA application_id={}; PRAGMA user_version={}; COMMIT",
                                      kTables, kMeasurementTables, kApplicationId, kSchemaVersion));
}

}  // namespace penstock::coordinator
