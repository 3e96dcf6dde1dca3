#include "coordinator/store/internal/rows.h"

#include <optional>
#include <string>
#include <variant>

#include "base/text.h"
#include "coordinator/store/internal/columns.h"
#include "coordinator/store/internal/measurement_rows.h"
#include "coordinator/store/internal/words.h"

namespace penstock::coordinator {
namespace {

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

std::optional<int64_t> widened(const std::optional<int32_t>& value) {
  return value ? std::optional<int64_t>(*value) : std::nullopt;
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
    Statement statement = database.prepare(insert_into("jobs", kJobColumns));
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
    Statement add = database.prepare(insert_into("stages", kStageColumns));
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

}  // namespace

Status write_rows(Database& database, const Write& write) {
  return std::visit(Writer{database}, write);
}

}  // namespace penstock::coordinator
