#include "worker/executor/rank_session.h"

#include <unistd.h>

#include <utility>

#include "base/log.h"
#include "kernels/ops/operators.h"
#include "plan/spec/parameters.h"
#include "worker/checkpoint/weights.h"
#include "worker/executor/check_assignment.h"
#include "worker/executor/data_handshake.h"
#include "worker/executor/link_handshake.h"
#include "worker/model/activation_type.h"

namespace penstock::worker {
namespace {

// The slowest rank may have much memory to fill before it publishes its address. The coordinator ends an
// attempt that is not ready 300 s after its start (its preparing limit): a rank waits for the others nearly as
// long, and ends a little before, so that the reason names the rank that is missing.
constexpr Duration kOpenTimeout = 280s;

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
  if (endpoint_) endpoint_->abort(reason);
}

Status RankSession::prepare() {
  PENSTOCK_ASSIGN_OR_RETURN(job_, check_assignment(assignment_));
  if (job_.device.threads == 0) job_.device.threads = executor_assignment_.threads;
  const plan::RankProgram& program = assignment_.program;
  PENSTOCK_RETURN_IF_ERROR(on_host(check_weights_place()));
  StatusOr<std::unique_ptr<RankModel>> model = RankModel::create(job_, program);
  if (!model.ok()) return on_host(model.status());
  model_ = *std::move(model);
  PENSTOCK_ASSIGN_OR_RETURN(LinkBuffers links, LinkBuffers::create(program, boundary_tensor_bytes(job_)));
  links_ = std::make_unique<LinkBuffers>(std::move(links));
  if (assignment_.validation) {
    PENSTOCK_ASSIGN_OR_RETURN(validation_, ValidationRun::create(job_, *assignment_.validation, *model_));
  }
  account_memory();
  PENSTOCK_RETURN_IF_ERROR(check_memory_budget());

  std::vector<StageIndex> stages;
  for (const plan::StageBuffers& buffers : program.buffers) stages.push_back(buffers.stage);
  recorder_ = std::make_unique<StepRecorder>(stages, program.microbatches * program.updates);
  PENSTOCK_RETURN_IF_ERROR(connect());
  PENSTOCK_ASSIGN_OR_RETURN(interpreter_, Interpreter::create({.program = program,
                                                               .stages = model_->stages(),
                                                               .pools = model_->pools(),
                                                               .links = *links_,
                                                               .endpoint = *endpoint_,
                                                               .actions = *this,
                                                               .recorder = *recorder_,
                                                               .clock = environment_.clock,
                                                               .boundary_type = activation_type(job_),
                                                               .boundary_rows = job_.tokens_per_microbatch(),
                                                               .boundary_columns = job_.model.hidden_size}));
  return environment_.report(RankReady{.attempt = assignment_.attempt,
                                       .rank = assignment_.rank,
                                       .executor_pid = getpid(),
                                       .fingerprint = kernels::cpu_fingerprint()});
}

Status RankSession::connect() {
  const plan::RankProgram& program = assignment_.program;
  endpoint_ = environment_.make_endpoint();
  const Group group{.name = "pipeline",
                    .rank = assignment_.rank,
                    .ranks = program.ranks,
                    .bind_address = executor_assignment_.bind_address};
  PENSTOCK_RETURN_IF_ERROR(endpoint_->open(group, environment_.rendezvous, kOpenTimeout));
  PENSTOCK_RETURN_IF_ERROR(compare_link_digests(*endpoint_, program));
  if (validation_) PENSTOCK_RETURN_IF_ERROR(compare_link_digests(*endpoint_, *assignment_.validation));
  PENSTOCK_RETURN_IF_ERROR(compare_data(*endpoint_, assignment_.rank, program.ranks, model_->data()));
  const auto parameters = static_cast<int64_t>(plan::model_parameters(job_.model).size());
  PENSTOCK_ASSIGN_OR_RETURN(norm_, GlobalNorm::create(*endpoint_, assignment_.rank, program.ranks,
                                                      model_->parameters().parameters(), parameters));
  PENSTOCK_RETURN_IF_ERROR(meet_tied_peer());
  return validation_ ? validation_->connect(*endpoint_, environment_.clock) : ok_status();
}

// The owner's weight goes out once before the first step: where weights are read from a folder, the copy is no
// parameter of its rank.
Status RankSession::meet_tied_peer() {
  if (!job_.model.tie_word_embeddings) return ok_status();
  PENSTOCK_ASSIGN_OR_RETURN(tied_,
                            TiedWeights::create(*endpoint_, assignment_.rank, assignment_.program.ranks,
                                                model_->parameters(), model_->operators()));
  return tied_->share_weight();
}

Status RankSession::train() {
  log::info("job {} attempt {} rank {}: ready, {}; steps {} to {}", assignment_.attempt.job,
            assignment_.attempt.attempt, assignment_.rank.value, kernels::cpu_fingerprint(),
            assignment_.first_step, job_.train.steps);
  recorder_->begin(environment_.clock.now(), model_->cpu_time());
  const int updates = assignment_.program.updates;
  for (int64_t step = assignment_.first_step; step < job_.train.steps; step += updates) {
    PENSTOCK_RETURN_IF_ERROR(interpreter_->run(StepIndex(step)));
  }
  return ok_status();
}

// Folders may be there on one host and not on another: the reason says where it looked.
Status RankSession::on_host(const Status& status) const {
  const auto rank = static_cast<size_t>(assignment_.rank.value);
  if (rank >= assignment_.rank_hosts.size()) return status;
  return with_context(status, "on host " + assignment_.rank_hosts[rank]);
}

Status RankSession::check_weights_place() const {
  if (assignment_.weights.directory.empty()) return ok_status();
  return worker::check_weights_place(assignment_.weights, assignment_.rank);
}

Status RankSession::write_weights() const {
  if (assignment_.weights.directory.empty()) return ok_status();
  return with_context(on_host(worker::write_weights(assignment_.weights, assignment_.rank,
                                                    assignment_.program.ranks, model_->parameters())),
                      "final weights");
}

Status RankSession::finish() {
  PENSTOCK_RETURN_IF_ERROR(endpoint_->drain());
  PENSTOCK_RETURN_IF_ERROR(write_weights());
  RankFinished finished{.attempt = assignment_.attempt, .rank = assignment_.rank, .digests = {}};
  for (const WeightDigest& digest : model_->parameters().digests()) {
    finished.digests.push_back({.parameter = digest.parameter, .digest = digest.digest});
  }
  log::info("job {} attempt {} rank {}: finished after step {}", assignment_.attempt.job,
            assignment_.attempt.attempt, assignment_.rank.value, job_.train.steps - 1);
  return environment_.report(finished);
}

Status RankSession::reduce_gradients(StepIndex, StageIndex) {
  return ok_status();  // one replica of every stage: its own sum is the whole sum
}

Status RankSession::optimizer_step(StepIndex step) {
  const TimePoint begin = environment_.clock.now();
  Duration waited{};
  const auto waiting = [&](auto&& exchange) {
    const TimePoint start = environment_.clock.now();
    auto result = exchange();
    waited += environment_.clock.now() - start;
    return result;
  };
  if (tied_) PENSTOCK_RETURN_IF_ERROR(waiting([&] { return tied_->sum_gradients(); }));
  const std::span<const SquaredNorm> squared_norms = model_->optimizer().local_squared_norms();
  PENSTOCK_ASSIGN_OR_RETURN(const double norm, waiting([&] { return norm_->compute(squared_norms); }));
  PENSTOCK_RETURN_IF_ERROR(model_->optimizer().apply(step, norm));
  if (tied_) PENSTOCK_RETURN_IF_ERROR(waiting([&] { return tied_->share_weight(); }));
  model_->zero_tied_gradient();
  recorder_->add_wait(waited);
  recorder_->add_optimizer(environment_.clock.now() - begin - waited);
  return report_step(step, norm);
}

// Between two steps: every slot is free, and the next step's times begin afterwards.
Status RankSession::validate(StepIndex step) {
  report_.validation_loss.reset();
  if (!validation_ || !validates_after(job_, step)) return ok_status();
  PENSTOCK_ASSIGN_OR_RETURN(report_.validation_loss, validation_->run());
  recorder_->begin(environment_.clock.now(), model_->cpu_time());
  return ok_status();
}

Status RankSession::report_step(StepIndex step, double gradient_norm) {
  report_.attempt = assignment_.attempt;
  report_.rank = assignment_.rank;
  report_.step = step.value;
  report_.gradient_norm = gradient_norm;
  for (const Stage* stage : model_->stages()) {
    if (stage->has_loss()) report_.loss = stage->loss_sum() / static_cast<double>(stage->loss_targets());
  }
  recorder_->end(environment_.clock.now(), model_->cpu_time(), report_);
  const std::vector<ActivationPool*>& pools = model_->pools();
  for (size_t i = 0; i < pools.size(); ++i) {
    report_.stages[i].activation_slots = pools[i]->capacity();
    report_.stages[i].activation_slots_peak = pools[i]->held_peak();
  }
  PENSTOCK_RETURN_IF_ERROR(validate(step));
  return environment_.report(report_frame_);
}

// All of these are allocated before the first step and kept to the end: the peak is what is held. Not counted: the
// operators' own scratch and tables, which the warm-up makes.
void RankSession::account_memory() {
  report_.memory = {{"parameters", model_->parameter_bytes()},
                    {"packed", model_->packed_bytes()},
                    {"gradients", model_->gradient_bytes()},
                    {"optimizer", model_->optimizer_bytes()},
                    {"activations", model_->activation_bytes()},
                    {"boundary", links_->bytes() + (validation_ ? validation_->boundary_bytes() : 0)}};
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
