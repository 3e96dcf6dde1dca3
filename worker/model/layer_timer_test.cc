#include "worker/model/layer_timer.h"

#include <gtest/gtest.h>

#include <chrono>

namespace penstock::worker {
namespace {

using std::chrono::milliseconds;

plan::JobSpec job() {
  const StatusOr<plan::JobSpec> spec = plan::parse_job_spec(
      "name: tiny\n"
      "model: {vocab_size: 256, hidden_size: 8, num_hidden_layers: 3, num_attention_heads: 2,\n"
      "        intermediate_size: 16, max_position_embeddings: 8}\n"
      "data: {source: /data/text.txt, sequence_length: 8}\n"
      "train: {steps: 1, global_batch_size: 1, microbatch_size: 1, dtype: float32}\n"
      "parallel: {pipeline: 1}\nrecompute: [1]\n");
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.value_or(plan::JobSpec{});
}

TEST(LayerTimer, adds_up_by_type_what_items_take_but_not_what_they_wait_for) {
  FakeClock clock;
  WaitMeter waits(clock);
  const auto takes = [&](int ms, int waited_ms) {
    return [&, ms, waited_ms] {
      clock.advance(milliseconds(ms));
      return waits.measure([&] {
        clock.advance(milliseconds(waited_ms));
        return ok_status();
      });
    };
  };
  const plan::JobSpec spec = job();
  LayerTimer timer(spec, plan::model_items(spec.model), &clock, &waits);
  EXPECT_TRUE(timer.forward(0, takes(7, 0)).ok());  // off
  timer.time_layers(true);
  for (size_t item = 0; item < 5; ++item) EXPECT_TRUE(timer.forward(item, takes(1 << item, 3)).ok());
  for (size_t item = 5; item-- > 0;) EXPECT_TRUE(timer.backward(item, takes(10 << item, 5)).ok());
  EXPECT_TRUE(timer.backward(2, takes(1, 0)).ok());  // the other half
  ASSERT_EQ(timer.times().size(), 4u);               // blocks 0 and 2 are one type, block 1 is another
  const auto expect = [&](size_t at, plan::LayerType type, int forwards, int forward_ms, int backward_ms) {
    EXPECT_EQ(timer.times()[at].type, type);
    EXPECT_EQ(timer.times()[at].forwards, forwards);
    EXPECT_EQ(timer.times()[at].forward, milliseconds(forward_ms));
    EXPECT_EQ(timer.times()[at].backward, milliseconds(backward_ms));
  };
  expect(0, plan::LayerType::Embedding, 1, 1, 10);
  expect(1, plan::LayerType::Block, 2, 2 + 8, 20 + 80);
  expect(2, plan::LayerType::RecomputedBlock, 1, 4, 40 + 1);
  expect(3, plan::LayerType::Head, 1, 16, 160);
  timer.time_layers(true);  // of a step that comes again
  EXPECT_EQ(timer.times()[1].forwards, 0);
  EXPECT_EQ(timer.times()[1].backward, Duration::zero());
}

TEST(LayerTimer, without_a_clock_times_nothing) {
  const plan::JobSpec spec = job();
  LayerTimer timer(spec, plan::model_items(spec.model), nullptr, nullptr);
  timer.time_layers(true);
  EXPECT_TRUE(timer.forward(0, [] { return ok_status(); }).ok());
  EXPECT_EQ(timer.times()[0].forwards, 0);
}

}  // namespace
}  // namespace penstock::worker
