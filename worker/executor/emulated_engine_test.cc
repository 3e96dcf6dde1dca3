#include "worker/executor/emulated_engine.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "plan/schedule/families.h"
#include "plan/simulation/simulate.h"
#include "worker/emulation/testing/manual_timer.h"
#include "worker/executor/interpreter.h"
#include "worker/transport/in_process.h"

namespace penstock::worker {
namespace {

constexpr int kMicrobatches = 8;
constexpr int kAsManyAsThereAre = 1 << 20;

struct Shape {
  std::string schedule;
  int ranks = 2;
  int stages_per_rank = 1;
  int stages() const { return ranks * stages_per_rank; }  // of a placement without replicas
};

// Times of which no two are alike. Milliseconds; the device does not mind.
plan::EmulatedCosts costs_of(int stages, int64_t latency_ms, int64_t message_ms) {
  constexpr int64_t kMs = 1'000'000;
  plan::EmulatedCosts costs;
  for (int stage = 0; stage < stages; ++stage) {
    costs.stages.push_back({.forward_ns = (10 + stage) * kMs,
                            .backward_ns = (21 + stage) * kMs,
                            .input_gradient_ns = (9 + 2 * stage) * kMs,
                            .weight_gradient_ns = (12 + 3 * stage % 5) * kMs});
  }
  costs.latency_ns = latency_ms * kMs;
  costs.message_ns = message_ms * kMs;
  return costs;
}

// A tick is a nanosecond.
plan::SimulationCosts as_simulated(const plan::EmulatedCosts& costs) {
  plan::SimulationCosts simulated;
  for (const auto& stage : costs.stages) {
    simulated.stages.push_back(
        {stage.forward_ns, stage.input_gradient_ns, stage.weight_gradient_ns, stage.backward_ns});
  }
  simulated.overlapped_pair = costs.overlapped_pair_ns;
  simulated.latency = costs.latency_ns;
  simulated.ticks_per_message = costs.message_ns;
  return simulated;
}

plan::JobSpec job_of(int stages) {
  std::string yaml = R"(name: emulated
model: {vocab_size: 256, hidden_size: 16, num_hidden_layers: 30, num_attention_heads: 2, intermediate_size: 16,
        max_position_embeddings: 8}
data: {source: /nowhere.txt, sequence_length: 8}
train: {steps: 3, global_batch_size: 8, microbatch_size: 1}
parallel: {pipeline: )" +
                     std::to_string(stages) + "}\n";
  return plan::parse_job_spec(yaml).value();
}

// Ends of a rank's computations on the timeline, in program order.
using Ends = std::vector<plan::Ticks>;

class RecordedStage final : public Stage {
 public:
  RecordedStage(Stage& stage, Timer& timer, Ends& ends) : stage_(stage), timer_(timer), ends_(ends) {}
  StageIndex index() const override { return stage_.index(); }
  Status forward(const StageCall& call) override { return noted(stage_.forward(call)); }
  Status backward(const StageCall& call) override { return noted(stage_.backward(call)); }
  Status input_gradient(const StageCall& call) override { return noted(stage_.input_gradient(call)); }
  Status weight_gradient(const StageCall& call) override { return noted(stage_.weight_gradient(call)); }
  double loss_sum() const override { return 0; }

 private:
  Status noted(const Status& status) {
    ends_.push_back(timer_.now().time_since_epoch().count());
    return status;
  }
  Stage& stage_;
  Timer& timer_;
  Ends& ends_;
};

class EmulatedRank final : private StepActions {
 public:
  EmulatedRank(const plan::JobSpec& job, const plan::RankProgram& program) : job_(job) {
    assignment_.rank = program.rank;
    assignment_.program = program;
    assignment_.rank_hosts.assign(static_cast<size_t>(program.ranks), "here");
  }

  Status run_step(std::shared_ptr<InProcessHub> hub, Rendezvous& rendezvous) {
    auto timer = std::make_unique<ManualTimer>();
    Timer& clock = *timer;
    PENSTOCK_ASSIGN_OR_RETURN(engine_, EmulatedEngine::create(job_, assignment_, std::move(timer)));
    const plan::RankProgram& program = assignment_.program;
    const std::unique_ptr<Endpoint> endpoint = make_in_process_endpoint(hub);
    const Group group{.name = "p", .rank = program.rank, .ranks = program.ranks, .bind_address = "127.0.0.1"};
    PENSTOCK_RETURN_IF_ERROR(endpoint->open(group, rendezvous, 30s));
    std::vector<StageIndex> indices;
    for (const plan::StageBuffers& buffers : program.buffers) indices.push_back(buffers.stage);
    StepRecorder recorder(indices, 2 * program.microbatches);
    const SystemClock system_clock;
    PENSTOCK_RETURN_IF_ERROR(engine_->connect({*endpoint, system_clock, recorder, {}}));
    PENSTOCK_ASSIGN_OR_RETURN(LinkBuffers links, LinkBuffers::create(program, engine_->boundary().bytes()));
    std::vector<std::unique_ptr<RecordedStage>> recorded;
    std::vector<Stage*> stages;
    for (Stage* stage : engine_->stages()) {
      recorded.push_back(std::make_unique<RecordedStage>(*stage, clock, ends_));
      stages.push_back(recorded.back().get());
    }
    PENSTOCK_ASSIGN_OR_RETURN(auto interpreter,
                              Interpreter::create({.program = program,
                                                   .stages = stages,
                                                   .pools = engine_->pools(),
                                                   .links = links,
                                                   .endpoint = engine_->program_endpoint(),
                                                   .actions = *this,
                                                   .recorder = recorder,
                                                   .clock = system_clock,
                                                   .boundary_rows = engine_->boundary().rows,
                                                   .boundary_columns = engine_->boundary().columns,
                                                   .pairs = engine_->pairs()}));
    PENSTOCK_RETURN_IF_ERROR(interpreter->run(StepIndex(0)));
    for (const ActivationPool* pool : engine_->pools()) peaks_.push_back(pool->held_peak());
    return endpoint->drain();
  }
  const Ends& ends() const { return ends_; }
  const std::vector<int>& peaks() const { return peaks_; }

 private:
  Status begin_step(StepIndex) override { return ok_status(); }
  Status reduce_gradients(StepIndex step, StageIndex stage) override {
    return engine_->reduce_gradients(step, stage);
  }
  Status optimizer_step(StepIndex step) override { return engine_->optimizer_step(step); }

  const plan::JobSpec& job_;
  Assignment assignment_;
  std::unique_ptr<RankEngine> engine_;
  Ends ends_;
  std::vector<int> peaks_;
};

struct Emulated {
  std::vector<Ends> ends;               // [rank]
  std::vector<std::vector<int>> peaks;  // [rank][own stage]
};

Emulated emulate(const plan::LoweredProgram& program, const plan::EmulatedCosts& costs) {
  plan::JobSpec job = job_of(program.ranks.front().stages);
  job.device.kind = "emulated";
  job.device.costs = costs;
  const std::shared_ptr<InProcessHub> hub = make_in_process_hub();
  InProcessRendezvous rendezvous;
  std::vector<std::unique_ptr<EmulatedRank>> ranks;
  for (const plan::RankProgram& rank : program.ranks)
    ranks.push_back(std::make_unique<EmulatedRank>(job, rank));
  std::vector<std::thread> threads;
  for (const auto& rank : ranks) {
    threads.emplace_back([&] {
      const Status status = rank->run_step(hub, rendezvous);
      EXPECT_TRUE(status.ok()) << status;
    });
  }
  for (std::thread& thread : threads) thread.join();
  Emulated result;
  for (const auto& rank : ranks) {
    result.ends.push_back(rank->ends());
    result.peaks.push_back(rank->peaks());
  }
  return result;
}

// The simulation's ends, where a pair has two: of its halves, the second is its own.
void expect_as_simulated(const Emulated& emulated, const plan::Simulation& simulated) {
  for (size_t rank = 0; rank < simulated.ranks.size(); ++rank) {
    const Ends& ends = emulated.ends[rank];
    size_t next = 0;
    for (const plan::TimedAction& timed : simulated.ranks[rank].actions) {
      next += timed.action.overlapped ? 1 : 0;
      ASSERT_LT(next, ends.size());
      ASSERT_EQ(ends[next++], timed.end) << "rank " << rank << ", " << plan::to_string(timed.action);
    }
    EXPECT_EQ(next, ends.size());
  }
}

plan::ComputeProgram program_of(const Shape& shape) {
  return plan::generate({.name = shape.schedule,
                         .ranks = shape.ranks,
                         .microbatches = kMicrobatches,
                         .stages_per_rank = shape.stages_per_rank})
      .value();
}

const Shape kShapes[] = {{"naive", 3, 1},
                         {"gpipe", 3, 1},
                         {"1f1b", 1, 1},
                         {"1f1b", 4, 1},
                         {"interleaved-1f1b", 4, 2},
                         {"looped-bfs", 2, 3},
                         {"zb-h1", 4, 1},
                         {"zb-h2", 4, 1},
                         {"zb-v", 4, 2},
                         {"v-half", 4, 2},
                         {"1f1b-v", 3, 2},
                         {"dualpipe-v", 4, 2},
                         {"dualpipe", 4, 1},
                         {"chimera", 4, 1}};

TEST(EmulatedEngine, every_action_ends_when_the_simulation_says) {
  // Two ways to one result: the simulation knows all ranks and moves one clock; here every rank knows its own program
  // and what its messages say.
  for (const Shape& shape : kShapes) {
    const plan::ComputeProgram program = program_of(shape);
    const plan::LoweredProgram lowered = *plan::lower(
        program, {.receive_slots_per_link = kAsManyAsThereAre, .send_slots_per_link = kAsManyAsThereAre});
    for (const auto& [latency, message] : {std::pair{0, 0}, {5, 0}, {0, 7}, {6, 13}}) {
      SCOPED_TRACE(testing::Message()
                   << shape.schedule << ", latency " << latency << ", message " << message);
      const plan::EmulatedCosts costs = costs_of(program.stages(), latency, message);
      expect_as_simulated(emulate(lowered, costs), *plan::simulate(lowered, as_simulated(costs)));
    }
  }
}

TEST(EmulatedEngine, the_slots_that_jobs_have_are_enough_for_the_schedule_s_own_time) {
  for (const Shape& shape : {Shape{"1f1b", 4, 1}, Shape{"interleaved-1f1b", 4, 2}, Shape{"zb-h1", 4, 1}}) {
    const plan::ComputeProgram program = program_of(shape);
    const plan::EmulatedCosts costs = costs_of(program.stages(), 5, 1);
    expect_as_simulated(emulate(*plan::lower(program), costs), *plan::simulate(program, as_simulated(costs)));
  }
}

TEST(EmulatedEngine, a_pair_ends_together_and_after_its_own_cost) {
  const plan::ComputeProgram program = program_of({"dualpipe-v", 4, 2});
  plan::EmulatedCosts costs = costs_of(program.stages(), 4, 0);
  costs.overlapped_pair_ns = 17'000'000;
  const plan::LoweredProgram lowered = *plan::lower(
      program, {.receive_slots_per_link = kAsManyAsThereAre, .send_slots_per_link = kAsManyAsThereAre});
  expect_as_simulated(emulate(lowered, costs), *plan::simulate(lowered, as_simulated(costs)));
}

TEST(EmulatedEngine, receives_that_are_posted_at_the_consumer_hide_no_transfer) {
  // Interleaved 1F1B with a latency of half an action: posted early, most transfers pass beside other actions.
  const plan::ComputeProgram program = program_of({"interleaved-1f1b", 4, 2});
  plan::EmulatedCosts costs;
  costs.stages.assign(8, {10'000'000, 20'000'000, 10'000'000, 10'000'000});
  costs.latency_ns = 5'000'000;
  const auto makespan = [&](plan::Posting posting) {
    const plan::LoweredProgram lowered = *plan::lower(program, {.receive_slots_per_link = kAsManyAsThereAre,
                                                                .send_slots_per_link = kAsManyAsThereAre,
                                                                .posting = posting});
    const plan::Simulation simulated = *plan::simulate(lowered, as_simulated(costs));
    expect_as_simulated(emulate(lowered, costs), simulated);
    return simulated.makespan;
  };
  EXPECT_GT(makespan(plan::Posting::AtConsumer), makespan(plan::Posting::Early) * 1.1);
}

TEST(EmulatedEngine, doubled_costs_take_twice_as_long) {
  const plan::LoweredProgram program = *plan::lower(program_of({"1f1b", 4, 1}));
  plan::EmulatedCosts doubled = costs_of(4, 10, 2);
  for (auto& stage : doubled.stages) {
    for (int64_t* ns : {&stage.forward_ns, &stage.backward_ns}) *ns *= 2;
  }
  const Emulated once = emulate(program, costs_of(4, 5, 1)), twice = emulate(program, doubled);
  for (size_t rank = 0; rank < 4; ++rank) EXPECT_EQ(twice.ends[rank].back(), 2 * once.ends[rank].back());
}

TEST(EmulatedEngine, leases_are_as_many_as_the_program_needs) {
  const plan::LoweredProgram program = *plan::lower(program_of({"interleaved-1f1b", 4, 2}));
  const Emulated emulated = emulate(program, costs_of(8, 0, 0));
  for (size_t rank = 0; rank < program.ranks.size(); ++rank) {
    const auto& buffers = program.ranks[rank].buffers;
    for (size_t own = 0; own < buffers.size(); ++own)
      EXPECT_EQ(emulated.peaks[rank][own], buffers[own].activation_slots);
  }
}

TEST(EmulatedEngine, ranks_on_two_hosts_are_refused) {
  plan::JobSpec job = job_of(2);
  job.device.kind = "emulated";
  job.device.costs = costs_of(2, 0, 0);
  Assignment assignment;
  assignment.program = plan::lower(program_of({"1f1b", 2, 1}))->ranks[0];
  assignment.rank_hosts = {"here", "there"};
  const auto engine = EmulatedEngine::create(job, assignment, std::make_unique<ManualTimer>());
  EXPECT_EQ(engine.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(message(engine.status()).find("rank 1 on there"), std::string::npos) << engine.status();
}

TEST(EmulatedEngine, memory_is_accounted_by_the_kinds_of_the_prediction) {
  plan::JobSpec job = job_of(2);
  job.device.costs = costs_of(2, 0, 0);
  Assignment assignment;
  assignment.program = plan::lower(program_of({"1f1b", 2, 1}))->ranks[0];
  const auto engine = EmulatedEngine::create(job, assignment, std::make_unique<ManualTimer>());
  ASSERT_TRUE(engine.ok()) << engine.status();
  const std::vector<MemoryKind> kinds = (*engine)->memory(64);
  const int64_t total =
      std::accumulate(kinds.begin(), kinds.end(), int64_t{0},
                      [](int64_t sum, const MemoryKind& kind) { return sum + kind.bytes_peak; });
  EXPECT_EQ(total, plan::predict_memory(job, job.parallel.split, assignment.program)->total());
  EXPECT_GT(total, 1 << 20);  // of which nothing was allocated
}

}  // namespace
}  // namespace penstock::worker
