// A stage of an emulated device: the interpreter's calls, as long as the cost table says. It has no loss, reads no input
// and writes no output. Thread: the interpreter's.
#pragma once

#include "base/ids.h"
#include "base/status.h"
#include "worker/emulation/action_times.h"
#include "worker/emulation/device.h"
#include "worker/model/stage.h"

namespace penstock::worker {

class EmulatedStage final : public Stage {
 public:
  // Both outlive it.
  EmulatedStage(StageIndex index, const ActionTimes& times, EmulatedDevice& device)
      : index_(index), times_(times), device_(device) {}

  StageIndex index() const override { return index_; }

  Status forward(const StageCall& call) override { return run(plan::ActionKind::Forward, call); }
  Status backward(const StageCall& call) override { return run(plan::ActionKind::Backward, call); }
  Status input_gradient(const StageCall& call) override { return run(plan::ActionKind::InputGradient, call); }
  Status weight_gradient(const StageCall& call) override {
    return run(plan::ActionKind::WeightGradient, call);
  }
  double loss_sum() const override { return 0; }

 private:
  Status run(plan::ActionKind kind, const StageCall& call) {
    device_.run(times_.of(index_, kind, call.microbatch));
    return ok_status();
  }

  StageIndex index_;
  const ActionTimes& times_;
  EmulatedDevice& device_;
};

}  // namespace penstock::worker
