#include "worker/executor/training_engine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/log.h"
#include "kernels/ops/operators.h"
#include "plan/spec/parameters.h"
#include "worker/checkpoint/weights.h"
#include "worker/executor/data_handshake.h"
#include "worker/executor/link_handshake.h"
#include "worker/model/activation_type.h"
#include "worker/model/expert_load.h"

namespace penstock::worker {
namespace {

constexpr int64_t kStepsBetweenLoads = 100;

// Of the rank's own parameters, in model order.
double norm_of(std::span<const SquaredNorm> squared_norms) {
  double sum = 0;
  for (const SquaredNorm& norm : squared_norms) sum += norm.value;
  return std::sqrt(sum);
}

}  // namespace

StatusOr<std::unique_ptr<RankEngine>> TrainingEngine::create(const plan::JobSpec& job,
                                                             const Assignment& assignment,
                                                             const GroupEndpoints& groups) {
  std::unique_ptr<TrainingEngine> engine(new TrainingEngine(job, assignment, groups));
  PENSTOCK_RETURN_IF_ERROR(engine->allocate());
  return engine;
}

Status TrainingEngine::allocate() {
  PENSTOCK_RETURN_IF_ERROR(on_host(check_places()));
  StatusOr<std::unique_ptr<RankModel>> model =
      RankModel::create(job_, assignment_.program,
                        {.place = groups_.place(),
                         .expert_group = job_.parallel.expert > 1 ? &groups_.expert_model().member : nullptr},
                        {assignment_.load_from, assignment_.first_step});
  if (!model.ok()) return on_host(model.status());
  model_ = *std::move(model);
  const plan::RankProgram& program = assignment_.program;
  if (plan::is_post_validated(program) && program.rank.value + 1 < program.ranks) {
    PENSTOCK_RETURN_IF_ERROR(model_->optimizer().allocate_rollback());
  }
  PENSTOCK_RETURN_IF_ERROR(make_writer());
  if (!assignment_.validation) return ok_status();
  PENSTOCK_ASSIGN_OR_RETURN(validation_, ValidationRun::create(job_, *assignment_.validation, *model_));
  return ok_status();
}

BoundaryShape TrainingEngine::boundary() const {
  return {activation_type(job_), job_.tokens_per_microbatch(), job_.model.hidden_size};
}

std::vector<MemoryKind> TrainingEngine::memory(int64_t link_bytes) const {
  const int64_t exchanges = (sums_ ? sums_->bytes() : 0) + (tied_ ? tied_->bytes() : 0);
  std::vector<MemoryKind> kinds = {
      {"parameters", model_->parameter_bytes()},
      {"packed", model_->packed_bytes()},
      {"weight_versions", model_->weight_version_bytes()},
      {"gradients", model_->gradient_bytes()},
      {"optimizer", model_->optimizer_bytes()},
      {"rollback", model_->optimizer().rollback_bytes()},
      {"snapshot", writer_ ? writer_->snapshot_bytes() : 0},
      {"activations", model_->activation_bytes()},
      {"routes", model_->route_bytes()},
      {"payload", model_->payload_bytes()},
      {"boundary", link_bytes + (validation_ ? validation_->boundary_bytes() : 0)},
      {"workspace", model_->workspace_bytes() + exchanges}};
  std::erase_if(kinds, [](const MemoryKind& kind) { return kind.bytes_peak == 0; });
  return kinds;
}

std::string TrainingEngine::fingerprint() const {
  return kernels::cpu_fingerprint();
}

Status TrainingEngine::connect(const EngineConnection& connection) {
  connection_.emplace(connection);
  Endpoint& endpoint = connection.endpoint;
  if (validation_) PENSTOCK_RETURN_IF_ERROR(compare_link_digests(endpoint, *assignment_.validation));
  PENSTOCK_RETURN_IF_ERROR(compare_data(groups_.pipeline(), model_->data()));
  PENSTOCK_RETURN_IF_ERROR(meet_replicas());
  PENSTOCK_RETURN_IF_ERROR(meet_owners());
  PENSTOCK_RETURN_IF_ERROR(meet_tied_peer());
  if (writer_) writer_->start(fingerprint(), connection.report, connection.clock);
  return validation_ ? validation_->connect(endpoint, connection.clock) : ok_status();
}

// The ranks of other pipelines with the same stages: they read the same data, and share gradients and norms.
Status TrainingEngine::meet_replicas() {
  sums_ = std::make_unique<GradientSums>(job_, assignment_.program, model_->parameters(), model_->operators(),
                                         groups_);
  const JoinedGroup& data = groups_.data();
  if (data.member.ranks == 1) return ok_status();
  PENSTOCK_RETURN_IF_ERROR(compare_work(data, assignment_.program));
  if (validation_) PENSTOCK_RETURN_IF_ERROR(compare_work(data, *assignment_.validation));
  PENSTOCK_RETURN_IF_ERROR(compare_data(data, model_->data()));
  if (job_.parallel.shard_optimizer) {
    sharded_ = std::make_unique<ShardedWeights>(model_->parameters(), model_->state_shares(),
                                                model_->operators(), groups_);
  }
  std::vector<int32_t> mine;
  for (const Parameter& parameter : model_->parameters().parameters()) mine.push_back(parameter.spec.index);
  PENSTOCK_ASSIGN_OR_RETURN(stage_norms_, SharedNorms::create(data, mine,
                                                              {.name = "their stages",
                                                               .parameters = parameters_of_stages(),
                                                               .replicas = data.member.ranks}));
  return ok_status();
}

// Who has which parameter of the model.
Status TrainingEngine::meet_owners() {
  const plan::RankProgram& program = assignment_.program;
  const auto parameters = static_cast<int64_t>(plan::model_parameters(job_.model).size());
  const std::vector<int32_t> mine = parameters_of_stages();
  if (plan::is_post_validated(program)) {
    PENSTOCK_ASSIGN_OR_RETURN(post_validated_, PostValidatedStep::create(
                                                   {program.rank, program.ranks, parameters}, mine,
                                                   [this] { return squared_norms(); }, model_->optimizer(),
                                                   connection_->endpoint, connection_->clock));
    return ok_status();
  }
  const bool replicated = std::any_of(program.buffers.begin(), program.buffers.end(),
                                      [](const auto& stage) { return stage.twin.is_set(); });
  PENSTOCK_ASSIGN_OR_RETURN(norm_,
                            GlobalNorm::create(groups_.pipeline(), mine, {parameters, replicated ? 2 : 1}));
  return ok_status();
}

// With all of their experts.
std::vector<int32_t> TrainingEngine::parameters_of_stages() const {
  std::vector<plan::Item> items;
  for (const plan::StageBuffers& buffers : assignment_.program.buffers) {
    const auto& of_stage = job_.parallel.split[static_cast<size_t>(buffers.stage.value)];
    items.insert(items.end(), of_stage.begin(), of_stage.end());
  }
  std::vector<int32_t> indices;
  for (const plan::ParameterSpec& spec : plan::parameters_of(job_.model, items))
    indices.push_back(spec.index);
  return indices;
}

StatusOr<std::span<const SquaredNorm>> TrainingEngine::squared_norms() {
  const std::span<const SquaredNorm> here = model_->optimizer().local_squared_norms();
  return stage_norms_ ? stage_norms_->gather(here) : here;
}

// The owner's weight goes out once before the first step: where weights are read from a folder, the copy is no
// parameter of its rank.
Status TrainingEngine::meet_tied_peer() {
  if (!job_.model.tie_word_embeddings) return ok_status();
  const plan::RankProgram& program = assignment_.program;
  PENSTOCK_ASSIGN_OR_RETURN(tied_, TiedWeights::create(connection_->endpoint, program.rank, program.ranks,
                                                       model_->parameters(), model_->operators()));
  return tied_->share_weight();
}

Status TrainingEngine::reduce_gradients(StepIndex, StageIndex stage) {
  const TimePoint start = connection_->clock.now();
  const Status status = sums_->sum(stage);
  connection_->recorder.add_wait(connection_->clock.now() - start);
  return status;
}

Status TrainingEngine::optimizer_step(StepIndex step) {
  const Clock& clock = connection_->clock;
  const TimePoint begin = clock.now();
  Duration waited{};
  step_ = step;
  model_->versions().prepare();
  PENSTOCK_RETURN_IF_ERROR(post_validated_ ? update_provisionally(step, waited)
                                           : update_at_once(step, waited));
  model_->versions().publish();
  connection_->recorder.add_wait(waited);
  connection_->recorder.add_optimizer(clock.now() - begin - waited);
  return ok_status();
}

Status TrainingEngine::update_at_once(StepIndex step, Duration& waited) {
  const Clock& clock = connection_->clock;
  const auto waiting = [&](auto&& exchange) {
    const TimePoint start = clock.now();
    auto result = exchange();
    waited += clock.now() - start;
    return result;
  };
  if (tied_) PENSTOCK_RETURN_IF_ERROR(waiting([&] { return tied_->sum_gradients(); }));
  PENSTOCK_ASSIGN_OR_RETURN(const std::span<const SquaredNorm> norms, squared_norms());
  double norm = 0;
  if (job_.is_asynchronous()) {
    norm = norm_of(norms);
  } else {
    PENSTOCK_ASSIGN_OR_RETURN(norm, waiting([&] { return norm_->compute(norms); }));
  }
  PENSTOCK_RETURN_IF_ERROR(model_->optimizer().apply(step, norm));
  note_norm(norm);
  if (sharded_) PENSTOCK_RETURN_IF_ERROR(waiting([&] { return sharded_->share(); }));
  if (tied_) PENSTOCK_RETURN_IF_ERROR(waiting([&] { return tied_->share_weight(); }));
  model_->zero_tied_gradient();
  return ok_status();
}

// A step behind which the ranks do something else than the next step, or nothing, is validated at once: no warm-up
// of the next one could be computed meanwhile.
Status TrainingEngine::update_provisionally(StepIndex step, Duration& waited) {
  const Duration waited_before = post_validated_->waited();
  PENSTOCK_RETURN_IF_ERROR(post_validated_->end_step(step));
  const bool is_followed_by_step =
      step.value + 1 < job_.train.steps && !validates_after(job_, step) && !is_kept_after(step);
  if (!is_followed_by_step) {
    PENSTOCK_ASSIGN_OR_RETURN(const StepVerdict verdict, post_validated_->validate());
    PENSTOCK_RETURN_IF_ERROR(post_validated_->settle());
    note_norm(verdict.gradient_norm);
  }
  waited = post_validated_->waited() - waited_before;
  return ok_status();
}

StatusOr<StepVerdict> TrainingEngine::validate_step() {
  const Duration waited_before = post_validated_->waited();
  PENSTOCK_ASSIGN_OR_RETURN(const StepVerdict verdict, post_validated_->validate());
  connection_->recorder.add_wait(post_validated_->waited() - waited_before);
  note_norm(verdict.gradient_norm);
  return verdict;
}

void TrainingEngine::note_norm(double norm) {
  gradient_norm_ = norm;
  if (std::isfinite(norm)) return;
  ++skipped_steps_;
  log::warning(
      "job {} attempt {} rank {}: step {} changes no weight, its gradient norm is {}; {} skipped so far",
      assignment_.attempt.job, assignment_.attempt.attempt, assignment_.rank.value, step_.value, norm,
      skipped_steps_);
}

void TrainingEngine::describe_step(StepReport& report) const {
  report.gradient_norm = gradient_norm_;
  describe_experts(report);
  for (const Stage* stage : model_->stages()) {
    if (stage->has_loss()) report.loss = stage->mean_loss();
  }
}

Status TrainingEngine::after_step(StepIndex step, StepReport& report) {
  log_expert_loads(step);
  report.validation_loss.reset();
  if (validation_ && validates_after(job_, step)) {
    PENSTOCK_ASSIGN_OR_RETURN(report.validation_loss, validation_->run());
  }
  return is_kept_after(step) ? writer_->take(step.value + 1) : ok_status();
}

bool TrainingEngine::is_kept_after(StepIndex step) const {
  return writer_ && (step.value + 1) % job_.checkpoint.every == 0;
}

void TrainingEngine::describe_experts(StepReport& report) const {
  size_t place = 0;
  const std::vector<plan::StageBuffers>& buffers = assignment_.program.buffers;
  for (size_t s = 0; s < buffers.size(); ++s) {
    for (const ExpertLoad* load : model_->stages()[s]->expert_loads(StepIndex(report.step))) {
      if (place == report.expert_rows.size()) report.expert_rows.emplace_back();
      ExpertRows& told = report.expert_rows[place++];
      told.stage = buffers[s].stage;
      told.layer = load->layer;
      told.first_expert = static_cast<int>(load->first_expert);
      told.rows = load->rows;  // as many in every step
      told.dropped = load->dropped;
    }
  }
}

// After the first step, every hundredth and the last.
void TrainingEngine::log_expert_loads(StepIndex step) const {
  const int64_t done = step.value + 1;
  if (done != 1 && done % kStepsBetweenLoads != 0 && done != job_.train.steps) return;
  const std::vector<plan::StageBuffers>& buffers = assignment_.program.buffers;
  for (size_t s = 0; s < buffers.size(); ++s) {
    const std::string part =
        buffers[s].twin.is_set()
            ? fmt::format("; of this rank's microbatches, rank {} of the pipeline has the others",
                          buffers[s].twin.value)
            : "";
    for (const ExpertLoad* load : model_->stages()[s]->expert_loads(step))
      log::info("step {}: {}{}", done, described(*load), part);
  }
}

StatusOr<std::vector<ParameterDigest>> TrainingEngine::finish() {
  if (writer_) PENSTOCK_RETURN_IF_ERROR(writer_->drain());
  PENSTOCK_RETURN_IF_ERROR(write_weights());
  std::vector<ParameterDigest> digests;
  for (const WeightDigest& digest : model_->parameters().digests()) {
    digests.push_back({.parameter = digest.parameter, .digest = digest.digest});
  }
  return digests;
}

Status TrainingEngine::check_places() const {
  if (!assignment_.weights.directory.empty())
    PENSTOCK_RETURN_IF_ERROR(check_weights_place(assignment_.weights, assignment_.rank, "the final weights"));
  if (assignment_.checkpoints.directory.empty()) return ok_status();
  return check_weights_place(assignment_.checkpoints, assignment_.rank, "the checkpoints");
}

Status TrainingEngine::make_writer() {
  if (job_.checkpoint.every == 0 || assignment_.checkpoints.directory.empty()) return ok_status();
  PENSTOCK_ASSIGN_OR_RETURN(
      writer_, CheckpointWriter::create(
                   {.attempt = assignment_.attempt,
                    .rank = assignment_.rank,
                    .ranks = job_.ranks(),
                    .directory = assignment_.checkpoints.directory,
                    .spec_yaml = assignment_.spec_yaml,
                    .samples_per_step = job_.train.global_batch_size},
                   part_of(model_->training_state(), parameters_to_write(&plan::StateShare::writes_weight),
                           parameters_to_write(&plan::StateShare::writes_moments))));
  return ok_status();
}

Status TrainingEngine::write_weights() const {
  if (assignment_.weights.directory.empty()) return ok_status();
  return with_context(on_host(worker::write_weights(assignment_.weights, assignment_.rank, job_.ranks(),
                                                    parameters_to_write(&plan::StateShare::writes_weight))),
                      "final weights");
}

// Of the stages whose first replica is here; with one replica that is all of the rank.
std::vector<Parameter> TrainingEngine::parameters_to_write(bool plan::StateShare::*what) const {
  std::vector<plan::Item> items;
  for (const plan::StageBuffers& buffers : assignment_.program.buffers) {
    if (buffers.replica != 0) continue;
    const auto& of_stage = job_.parallel.split[static_cast<size_t>(buffers.stage.value)];
    items.insert(items.end(), of_stage.begin(), of_stage.end());
  }
  const Parameter* const first = model_->parameters().parameters().data();
  std::vector<Parameter> parameters;
  for (const Parameter* parameter : model_->parameters().of_items(items)) {
    const plan::StateShare& share = model_->state_shares()[static_cast<size_t>(parameter - first)];
    if (share.*what) parameters.push_back(*parameter);
  }
  return parameters;
}

// Folders may be there on one host and not on another: the reason says where it looked.
Status TrainingEngine::on_host(const Status& status) const {
  const auto rank = static_cast<size_t>(assignment_.rank.value);
  if (rank >= assignment_.rank_hosts.size()) return status;
  return with_context(status, "on host " + assignment_.rank_hosts[rank]);
}

}  // namespace penstock::worker
