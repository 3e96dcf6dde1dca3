// The engine of an emulated device: the rank's program takes the time that the job's cost table says, and nothing is
// computed. worker/emulation says what of a run is real and what is modelled.
//
// Memory is accounted as plan/cost predicts it and not allocated: leases and slots are real, over no memory. There is
// no loss, no gradient, no validation and no weight; the ranks meet at the end of every step (with several updates in
// the program, at its end), as they do where gradients have a norm. A sum over replicas takes no time.
//
// Thread: the interpreter's, which creates it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/cost/memory.h"
#include "plan/spec/job_spec.h"
#include "proto/codec/messages.h"
#include "worker/emulation/action_times.h"
#include "worker/emulation/device.h"
#include "worker/emulation/links.h"
#include "worker/emulation/stage.h"
#include "worker/emulation/step_barrier.h"
#include "worker/executor/rank_engine.h"

namespace penstock::worker {

class EmulatedEngine final : public RankEngine {
 public:
  // FailedPrecondition: the ranks are on several hosts, whose clocks have nothing to do with each other.
  // `job` and `assignment` outlive it.
  static StatusOr<std::unique_ptr<RankEngine>> create(const plan::JobSpec& job, const Assignment& assignment,
                                                      std::unique_ptr<Timer> timer = make_system_timer());

  const std::vector<Stage*>& stages() const override { return stage_list_; }
  const std::vector<ActivationPool*>& pools() const override { return pool_list_; }
  // As large as the job's, and at most 4 KiB.
  BoundaryShape boundary() const override;
  Pairs pairs() const override { return Pairs::AtOnce; }
  std::vector<MemoryKind> memory(int64_t link_bytes) const override;
  std::string fingerprint() const override { return "emulated"; }
  Duration cpu_time() override { return thread_cpu_time(); }

  Status connect(const EngineConnection& connection) override;
  Endpoint& program_endpoint() override { return *links_; }
  Status reduce_gradients(StepIndex, StageIndex) override { return ok_status(); }
  Status optimizer_step(StepIndex step) override;
  void describe_step(StepReport&) const override {}
  Status after_step(StepIndex, StepReport&) override { return ok_status(); }
  StatusOr<std::vector<ParameterDigest>> finish() override;

 private:
  EmulatedEngine(const plan::JobSpec& job, const Assignment& assignment, std::unique_ptr<Timer> timer);
  Status check_hosts() const;

  const plan::JobSpec& job_;
  const Assignment& assignment_;
  std::unique_ptr<Timer> timer_;
  EmulatedDevice device_;
  ActionTimes times_;
  plan::MemoryPrediction memory_;
  std::vector<std::unique_ptr<ActivationPool>> pools_;
  std::vector<std::unique_ptr<EmulatedStage>> stages_;
  std::vector<Stage*> stage_list_;  // beside the program's buffers, as are the pools
  std::vector<ActivationPool*> pool_list_;
  std::optional<EngineConnection> connection_;
  std::unique_ptr<EmulatedLinks> links_;
  std::unique_ptr<StepBarrier> barrier_;
};

}  // namespace penstock::worker
