#include "worker/executor/emulated_engine.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace penstock::worker {

StatusOr<std::unique_ptr<RankEngine>> EmulatedEngine::create(const plan::JobSpec& job,
                                                             const Assignment& assignment,
                                                             std::unique_ptr<Timer> timer) {
  std::unique_ptr<EmulatedEngine> engine(new EmulatedEngine(job, assignment, std::move(timer)));
  PENSTOCK_RETURN_IF_ERROR(engine->check_hosts());
  PENSTOCK_ASSIGN_OR_RETURN(
      engine->memory_,
      plan::predict_memory(job, job.parallel.split, assignment.program,
                           {.place = plan::place_of_rank(job.parallel, assignment.rank),
                            .validation = assignment.validation ? &*assignment.validation : nullptr}));
  return engine;
}

EmulatedEngine::EmulatedEngine(const plan::JobSpec& job, const Assignment& assignment,
                               std::unique_ptr<Timer> timer)
    : job_(job),
      assignment_(assignment),
      timer_(std::move(timer)),
      device_(*timer_),
      times_(assignment.program, job.device.costs) {
  for (const plan::StageBuffers& buffers : assignment.program.buffers) {
    pools_.push_back(
        std::make_unique<ActivationPool>(buffers.stage, buffers.activation_slots, 0, kernels::SlabView{}));
    stages_.push_back(std::make_unique<EmulatedStage>(buffers.stage, times_, device_));
    pool_list_.push_back(pools_.back().get());
    stage_list_.push_back(stages_.back().get());
  }
}

Status EmulatedEngine::check_hosts() const {
  const std::vector<std::string>& hosts = assignment_.rank_hosts;
  const auto other =
      std::find_if(hosts.begin(), hosts.end(), [&](const auto& host) { return host != hosts[0]; });
  if (other == hosts.end()) return ok_status();
  return failed_precondition(
      "an emulated job: expected all ranks on one host, whose clock times its messages, found rank 0 on {} and rank "
      "{} on {}; give one worker as many emulated devices as the job has ranks (penstock-worker --devices)",
      hosts[0], other - hosts.begin(), *other);
}

BoundaryShape EmulatedEngine::boundary() const {
  constexpr auto kElement = static_cast<int64_t>(sizeof(float));
  const int64_t bytes =
      std::clamp(job_.boundary_bytes(), EmulatedLinks::kLeastBytes, EmulatedLinks::kMostBytes);
  return {kernels::DataType::Float32, 1, bytes / kElement};
}

std::vector<MemoryKind> EmulatedEngine::memory(int64_t) const {
  std::vector<MemoryKind> kinds;
  for (const auto& [kind, bytes] : memory_.by_kind()) kinds.push_back({kind, bytes});
  return kinds;
}

Status EmulatedEngine::connect(const EngineConnection& connection) {
  connection_.emplace(connection);
  const int ranks = assignment_.program.ranks;
  const plan::EmulatedCosts& costs = job_.device.costs;
  links_ = std::make_unique<EmulatedLinks>(
      connection.endpoint, device_,
      EmulatedLinkOptions{
          .ranks = ranks, .latency = Duration(costs.latency_ns), .occupancy = Duration(costs.message_ns)});
  barrier_ = std::make_unique<StepBarrier>(connection.endpoint, assignment_.program.rank, ranks);
  return ok_status();
}

Status EmulatedEngine::optimizer_step(StepIndex step) {
  const int64_t updates = assignment_.program.updates;
  if ((step.value - assignment_.first_step + 1) % updates != 0) return ok_status();
  const TimePoint began = timer_->now();
  PENSTOCK_RETURN_IF_ERROR(barrier_->meet());
  connection_->recorder.add_wait(timer_->now() - began);
  device_.start_now();
  return ok_status();
}

StatusOr<std::vector<ParameterDigest>> EmulatedEngine::finish() {
  log::info("rank {}: emulated; woke at most {:.2f} ms later than its device's timeline says",
            assignment_.rank.value, to_milliseconds(device_.largest_lateness()));
  return std::vector<ParameterDigest>{};
}

}  // namespace penstock::worker
