// The payload slots that ranks report, against those that their programs imply.
#include <gtest/gtest.h>

#include "plan/cost/memory.h"
#include "plan/schedule/families.h"
#include "plan/schedule/payload_slots.h"
#include "worker/executor/testing/side_by_side.h"

namespace penstock::worker {
namespace {

int64_t bytes_of(const StepReport& report, const std::string& kind) {
  for (const MemoryKind& memory : report.memory) {
    if (memory.kind == kind) return memory.bytes_peak;
  }
  return 0;
}

// What one rank must say: of every block with experts of its stages the slots that its program has in use at once.
void expect_predicted_slots(const plan::JobSpec& job, const plan::RankProgram& program,
                            const StepReport& report) {
  size_t told = 0;
  for (const plan::StageBuffers& buffers : program.buffers) {
    const plan::PayloadHighWater high = plan::payload_high_water(program, buffers.stage);
    for (const plan::Item& item : job.parallel.split[static_cast<size_t>(buffers.stage.value)]) {
      if (item.kind != plan::ItemKind::Block || !job.model.has_experts(item.layer)) continue;
      std::map<std::string, int> expected = {
          {"inputs", job.recomputes(item.layer) ? high.recomputed_inputs : high.inputs}};
      if (job.parallel.expert > 1) expected["output_gradients"] = high.output_gradients;
      for (const auto& [kind, slots] : expected) {
        ASSERT_LT(told, report.payloads.size());
        const PayloadSlots& payload = report.payloads[told++];
        EXPECT_EQ(payload.stage, buffers.stage);
        EXPECT_EQ(payload.layer, item.layer);
        EXPECT_EQ(payload.kind, kind);
        EXPECT_EQ(payload.slots, slots) << kind;
        EXPECT_EQ(payload.held_peak, slots) << kind;
        // An asynchronous schedule has microbatches of the next updates under way.
        if (!job.is_asynchronous()) {
          EXPECT_EQ(payload.held, 0) << kind;
        }
        EXPECT_EQ(payload.oldest_lease_seconds > 0, slots > 0) << kind;
      }
    }
  }
  EXPECT_EQ(told, report.payloads.size());
  const plan::MemoryPrediction predicted = *plan::predict_memory(job, job.parallel.split, program);
  EXPECT_EQ(bytes_of(report, "payload"), predicted.payload);
  EXPECT_EQ(bytes_of(report, "activations"), predicted.activations);
}

void expect_predicted_slots(const Shape& shape) {
  const plan::JobSpec job = job_of(shape);
  const auto assignments = assignments_of(shape);
  const std::vector<ExecutorOutcome> outcomes = FakeDaemon(assignments).serve();
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    SCOPED_TRACE(fmt::format("rank {}", rank));
    EXPECT_EQ(outcomes[rank].exit_code, 0) << (outcomes[rank].failed ? outcomes[rank].failed->reason : "");
    ASSERT_EQ(outcomes[rank].steps.size(), static_cast<size_t>(shape.steps));
    expect_predicted_slots(job, assignments[rank].assignment.program, outcomes[rank].steps.back());
  }
}

TEST(PayloadSlotsOfRanks, are_those_of_the_program_under_every_schedule) {
  for (const std::string& name : plan::schedule_names()) {
    SCOPED_TRACE(name);
    Shape shape{.pipeline = 2, .expert = 2, .schedule = name, .model = kExperts, .steps = 2};
    shape.stages_per_rank = plan::generate({.name = name, .ranks = 2, .microbatches = 4})->stages_per_rank;
    if (shape.is_asynchronous()) {
      shape.parallel = ", flush_every: 2";
      shape.clip = 0;
    }
    expect_predicted_slots(shape);
  }
}

TEST(PayloadSlotsOfRanks, of_recomputed_blocks_and_of_halves_are_those_of_the_program) {
  for (const char* extra : {"recompute: [1, 5]\n", "two_batch_overlap: true\n"}) {
    SCOPED_TRACE(extra);
    expect_predicted_slots(
        {.pipeline = 2, .expert = 2, .schedule = "zb-h1", .model = kExperts, .extra = extra, .steps = 2});
  }
}

TEST(PayloadSlotsOfRanks, a_step_that_is_computed_anew_gives_back_what_its_warm_up_held) {
  // A clip that the last rank alone asks for: the others have begun the next step when they hear of it.
  const Shape shape{.pipeline = 3,
                    .schedule = "zb-h2",
                    .parallel = ", optimizer_step: post-validated",
                    .model = kExperts,
                    .clip = 1e-3};
  expect_predicted_slots(shape);
  EXPECT_EQ(train(shape), reference_of(shape));
}

TEST(PayloadSlotsOfRanks, validation_uses_those_of_the_training) {
  Shape shape{.pipeline = 2, .expert = 2, .model = kExperts, .steps = 2};
  shape.extra =
      fmt::format("validation: {{source: {}, every: 1, microbatches: 4}}\n", folder().path("text.txt"));
  expect_predicted_slots(shape);
}

}  // namespace
}  // namespace penstock::worker
