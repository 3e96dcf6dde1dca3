// Scalar float64 stages in a pipeline: the real interpreter, buffers and pools, a thread a rank, and an endpoint within
// the process. Tests only: errors of construction stop the process.
#pragma once

#include <deque>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "worker/executor/interpreter.h"
#include "worker/transport/in_process.h"

namespace penstock::worker {

// The one number of a boundary tensor.
inline double& scalar_of(const kernels::TensorView& tensor) {
  return *static_cast<double*>(tensor.data());
}

// One rank: its program, stages, pools, buffers and interpreter. `StageType` is a Stage that is made of (const
// plan::StageBuffers&, const plan::RankProgram&) and has update(), its optimizer step, and gradient(), what that will use.
template <typename StageType>
class ScalarRank final : public StepActions {
 public:
  ScalarRank(const plan::RankProgram& program, std::shared_ptr<InProcessHub> hub, Rendezvous& rendezvous)
      : program_(program),
        links_(LinkBuffers::create(program, sizeof(double)).value()),
        recorder_(stages_of(program), program.microbatches * program.updates),
        endpoint_(make_in_process_endpoint(std::move(hub))),
        rendezvous_(rendezvous) {
    for (const plan::StageBuffers& buffers : program.buffers) {
      stages_.emplace_back(buffers, program_);
      slabs_.push_back(kernels::Slab::allocate(64 * buffers.activation_slots, "test").value());
      pools_.emplace_back(buffers.stage, buffers.activation_slots, 64, slabs_.back().view());
    }
  }

  // The program, `runs` times over.
  Status run(int runs) {
    PENSTOCK_RETURN_IF_ERROR(
        endpoint_->open({"pipeline", program_.rank, program_.ranks, "127.0.0.1"}, rendezvous_, 30s));
    InterpreterParts parts{.program = program_,
                           .stages = {},
                           .pools = {},
                           .links = links_,
                           .endpoint = *endpoint_,
                           .actions = *this,
                           .recorder = recorder_,
                           .clock = clock_,
                           .boundary_rows = 1,
                           .boundary_columns = 2};
    for (StageType& stage : stages_) parts.stages.push_back(&stage);
    for (ActivationPool& pool : pools_) parts.pools.push_back(&pool);
    PENSTOCK_ASSIGN_OR_RETURN(const auto interpreter, Interpreter::create(std::move(parts)));
    recorder_.begin(clock_.now(), Duration::zero());
    for (int run = 0; run < runs; ++run) {
      const Status status = interpreter->run(StepIndex(run * program_.updates));
      if (!status.ok()) {
        endpoint_->abort(message(status));
        return status;
      }
    }
    return endpoint_->drain();
  }

  Status begin_step(StepIndex) override { return ok_status(); }
  Status reduce_gradients(StepIndex, StageIndex stage) override {
    ++reductions_;
    for (size_t i = 0; i < stages_.size(); ++i) {
      const RankIndex twin = program_.buffers[i].twin;
      if (stages_[i].index() == stage && twin.is_set()) return add_twin(twin, stages_[i].gradient());
    }
    return ok_status();
  }
  Status optimizer_step(StepIndex) override {
    for (StageType& stage : stages_) {
      if (stage.has_loss()) losses_.push_back(stage.loss_sum());
      stage.update();
    }
    recorder_.end(clock_.now(), Duration::zero(), report_);
    return ok_status();
  }

  const std::vector<double>& losses() const { return losses_; }  // [step], on the rank with the loss
  const std::deque<StageType>& stages() const { return stages_; }
  std::deque<StageType>& stages() { return stages_; }
  const std::deque<ActivationPool>& pools() const { return pools_; }
  int reductions() const { return reductions_; }
  const StepReport& report() const { return report_; }  // of the last step

 private:
  // Both ranks get the sum over the two replicas.
  Status add_twin(RankIndex twin, double& gradient) {
    const double mine = gradient;
    double theirs = 0;
    PENSTOCK_ASSIGN_OR_RETURN(const TransferId received,
                              endpoint_->post_receive(twin, &theirs, sizeof(theirs)));
    PENSTOCK_ASSIGN_OR_RETURN(const TransferId sent, endpoint_->post_send(twin, &mine, sizeof(mine)));
    PENSTOCK_RETURN_IF_ERROR(endpoint_->wait(received));
    PENSTOCK_RETURN_IF_ERROR(endpoint_->wait(sent));
    gradient += theirs;
    return ok_status();
  }

  static std::vector<StageIndex> stages_of(const plan::RankProgram& program) {
    std::vector<StageIndex> stages;
    for (const plan::StageBuffers& buffers : program.buffers) stages.push_back(buffers.stage);
    return stages;
  }

  plan::RankProgram program_;
  LinkBuffers links_;
  StepRecorder recorder_;
  std::unique_ptr<Endpoint> endpoint_;
  Rendezvous& rendezvous_;
  SystemClock clock_;
  std::deque<StageType> stages_;
  std::deque<kernels::Slab> slabs_;
  std::deque<ActivationPool> pools_;
  std::vector<double> losses_;
  StepReport report_;
  int reductions_ = 0;
};

template <typename StageType>
class ScalarPipeline {
 public:
  explicit ScalarPipeline(const plan::LoweredProgram& program) {
    for (const plan::RankProgram& of_rank : program.ranks) ranks_.emplace_back(of_rank, hub_, rendezvous_);
  }

  std::vector<Status> run(int runs) {
    std::vector<Status> statuses(ranks_.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      threads.emplace_back([&, rank] { statuses[rank] = ranks_[rank].run(runs); });
    }
    for (std::thread& thread : threads) thread.join();
    return statuses;
  }

  ScalarRank<StageType>& rank(int index) { return ranks_[index]; }
  const std::deque<ScalarRank<StageType>>& ranks() const { return ranks_; }

 private:
  std::shared_ptr<InProcessHub> hub_ = make_in_process_hub();
  InProcessRendezvous rendezvous_;
  std::deque<ScalarRank<StageType>> ranks_;
};

}  // namespace penstock::worker
