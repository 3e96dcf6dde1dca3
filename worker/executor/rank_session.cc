#include "worker/executor/rank_session.h"

#include <unistd.h>

#include <utility>

#include "base/log.h"
#include "worker/executor/check_assignment.h"
#include "worker/executor/emulated_engine.h"
#include "worker/executor/link_handshake.h"
#include "worker/executor/training_engine.h"

namespace penstock::worker {
namespace {

// The slowest rank may have much memory to fill before it publishes its address. The coordinator ends an
// attempt that is not ready 300 s after its start (its preparing limit): a rank waits for the others nearly as
// long, and ends a little before, so that the reason names the rank that is missing.
constexpr Duration kOpenTimeout = 280s;

StatusOr<std::unique_ptr<RankEngine>> make_engine(const plan::JobSpec& job, const Assignment& assignment,
                                                  const GroupEndpoints& groups) {
  if (job.device.emulated()) return EmulatedEngine::create(job, assignment);
  return TrainingEngine::create(job, assignment, groups);
}

}  // namespace

RankSession::RankSession(ExecutorAssignment assignment, RankEnvironment environment)
    : executor_assignment_(std::move(assignment)),
      assignment_(executor_assignment_.assignment),
      environment_(std::move(environment)) {}

Status RankSession::run() {
  PENSTOCK_RETURN_IF_ERROR(prepare());
  PENSTOCK_RETURN_IF_ERROR(train());
  return finish();
}

void RankSession::abort(const std::string& reason) {
  if (groups_) groups_->abort(reason);
}

Status RankSession::prepare() {
  PENSTOCK_ASSIGN_OR_RETURN(job_, check_assignment(assignment_));
  if (job_.device.threads == 0) job_.device.threads = executor_assignment_.threads;
  const plan::RankProgram& program = assignment_.program;
  groups_ = std::make_unique<GroupEndpoints>(job_.parallel, assignment_.rank, environment_.make_endpoint);
  PENSTOCK_ASSIGN_OR_RETURN(engine_, make_engine(job_, assignment_, *groups_));
  const BoundaryShape boundary = engine_->boundary();
  PENSTOCK_ASSIGN_OR_RETURN(LinkBuffers links,
                            LinkBuffers::create(program, boundary.bytes(), groups_->pipeline_endpoint()));
  links_ = std::make_unique<LinkBuffers>(std::move(links));
  account_memory();
  describe_payloads();
  PENSTOCK_RETURN_IF_ERROR(check_memory_budget());

  std::vector<StageIndex> stages;
  for (const plan::StageBuffers& buffers : program.buffers) stages.push_back(buffers.stage);
  recorder_ = std::make_unique<StepRecorder>(stages, program.microbatches * program.updates);
  trace_.attempt = assignment_.attempt;
  trace_.rank = assignment_.rank;
  trace_recorder_ = std::make_unique<TraceRecorder>(program, trace_);
  PENSTOCK_RETURN_IF_ERROR(connect());
  account_memory();  // with what meets the other ranks
  PENSTOCK_RETURN_IF_ERROR(check_memory_budget());
  PENSTOCK_ASSIGN_OR_RETURN(interpreter_, Interpreter::create({.program = program,
                                                               .stages = engine_->stages(),
                                                               .pools = engine_->pools(),
                                                               .links = *links_,
                                                               .endpoint = engine_->program_endpoint(),
                                                               .actions = *this,
                                                               .recorder = *recorder_,
                                                               .clock = environment_.clock,
                                                               .boundary_type = boundary.type,
                                                               .boundary_rows = boundary.rows,
                                                               .boundary_columns = boundary.columns,
                                                               .trace = trace_recorder_.get(),
                                                               .pairs = engine_->pairs()}));
  fingerprint_ = engine_->fingerprint();
  return environment_.report(RankReady{.attempt = assignment_.attempt,
                                       .rank = assignment_.rank,
                                       .executor_pid = getpid(),
                                       .fingerprint = fingerprint_});
}

Status RankSession::connect() {
  PENSTOCK_RETURN_IF_ERROR(groups_->open(executor_assignment_.bind_address, environment_.rendezvous,
                                         environment_.clock, kOpenTimeout));
  Endpoint& pipeline = groups_->pipeline_endpoint();
  PENSTOCK_RETURN_IF_ERROR(compare_link_digests(pipeline, assignment_.program));
  return engine_->connect({pipeline, environment_.clock, *recorder_, environment_.report});
}

Status RankSession::train() {
  log::info("job {} attempt {} rank {}: ready, {}; steps {} to {}", assignment_.attempt.job,
            assignment_.attempt.attempt, assignment_.rank.value, fingerprint_, assignment_.first_step,
            job_.train.steps);
  if (job_.trace.every > 0 && !trace_recorder_->has_room()) {
    log::warning("job {} attempt {} rank {}: {}", assignment_.attempt.job, assignment_.attempt.attempt,
                 assignment_.rank.value, trace_recorder_->why_not());
  }
  recorder_->begin(environment_.clock.now(), engine_->cpu_time());
  const int updates = assignment_.program.updates;
  for (int64_t step = assignment_.first_step; step < job_.train.steps; step += updates) {
    PENSTOCK_RETURN_IF_ERROR(run_program(StepIndex(step)));
  }
  return ok_status();
}

Status RankSession::run_program(StepIndex first) {
  if (!trace_recorder_->has_room() || !is_traced(job_, first, assignment_.program.updates)) {
    return interpreter_->run(first);
  }
  trace_recorder_->begin(first, environment_.clock);
  PENSTOCK_RETURN_IF_ERROR(interpreter_->run(first));
  trace_recorder_->end();
  return environment_.report(trace_frame_);
}

Status RankSession::finish() {
  PENSTOCK_RETURN_IF_ERROR(groups_->drain());
  RankFinished finished{.attempt = assignment_.attempt, .rank = assignment_.rank, .digests = {}};
  PENSTOCK_ASSIGN_OR_RETURN(finished.digests, engine_->finish());
  log::info("job {} attempt {} rank {}: finished after step {}", assignment_.attempt.job,
            assignment_.attempt.attempt, assignment_.rank.value, job_.train.steps - 1);
  return environment_.report(finished);
}

Status RankSession::reduce_gradients(StepIndex step, StageIndex stage) {
  return engine_->reduce_gradients(step, stage);
}

Status RankSession::optimizer_step(StepIndex step) {
  PENSTOCK_RETURN_IF_ERROR(engine_->optimizer_step(step));
  return report_step(step);
}

Status RankSession::report_step(StepIndex step) {
  report_.attempt = assignment_.attempt;
  report_.rank = assignment_.rank;
  report_.step = step.value;
  engine_->describe_step(report_);
  recorder_->end(environment_.clock.now(), engine_->cpu_time(), report_);
  report_slots();
  PENSTOCK_RETURN_IF_ERROR(engine_->after_step(step, report_));
  recorder_->begin(environment_.clock.now(), engine_->cpu_time());  // what stood between the steps is in none
  return engine_->is_provisional() ? ok_status() : environment_.report(report_frame_);
}

void RankSession::report_slots() {
  const std::vector<ActivationPool*>& pools = engine_->pools();
  for (size_t i = 0; i < pools.size(); ++i) {
    report_.stages[i].activation_slots = pools[i]->capacity();
    report_.stages[i].activation_slots_peak = pools[i]->held_peak();
  }
  for (size_t i = 0; i < payload_pools_.size(); ++i) {
    PayloadPool& pool = *payload_pools_[i];
    PayloadSlots& told = report_.payloads[i];
    told.held = pool.held();
    told.held_peak = pool.held_peak();
    told.oldest_lease_seconds = to_seconds(pool.take_longest_lease());
  }
}

StatusOr<bool> RankSession::validate_step(StepIndex) {
  if (!engine_->is_provisional()) return true;  // the first step, and those behind a step that was waited for
  PENSTOCK_ASSIGN_OR_RETURN(const StepVerdict verdict, engine_->validate_step());
  report_.gradient_norm = verdict.gradient_norm;
  PENSTOCK_RETURN_IF_ERROR(environment_.report(report_frame_));
  return verdict.stands;
}

// All of these are allocated before the first step and kept to the end: the peak is what is held.
void RankSession::account_memory() {
  report_.memory = engine_->memory(links_->bytes());
}

void RankSession::describe_payloads() {
  payload_pools_ = engine_->payload_pools();
  for (PayloadPool* pool : payload_pools_) {
    report_.payloads.push_back({.stage = pool->stage(),
                                .layer = pool->layer(),
                                .kind = name_of(pool->kind()),
                                .slots = pool->slots()});
    pool->take_longest_lease();  // that of the warm-up
  }
}

Status RankSession::check_memory_budget() const {
  if (job_.memory_budget_bytes == 0) return ok_status();
  int64_t total = 0;
  std::string account;
  for (const MemoryKind& kind : report_.memory) {
    total += kind.bytes_peak;
    account += fmt::format("{}{} {}", account.empty() ? "" : ", ", kind.kind, kind.bytes_peak);
  }
  if (total <= job_.memory_budget_bytes) return ok_status();
  return resource_exhausted("rank {} holds {} bytes ({}), over its memory_budget of {}",
                            assignment_.rank.value, total, account, job_.memory_budget_bytes);
}

}  // namespace penstock::worker
