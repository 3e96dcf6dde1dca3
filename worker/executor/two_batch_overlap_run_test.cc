// Jobs whose microbatches go to their experts in halves.
#include <gtest/gtest.h>

#include "worker/executor/testing/side_by_side.h"

namespace penstock::worker {
namespace {

Shape in_halves(Shape shape) {
  shape.model = kExperts;
  shape.extra += "two_batch_overlap: true\n";
  return shape;
}

TEST(TwoBatchOverlapRun, has_the_bits_of_itself_under_every_cut_schedule_and_transport) {
  const Result expected = train(in_halves({.expert = 2}));
  ASSERT_EQ(expected.losses.size(), static_cast<size_t>(kSteps));
  for (const Shape& shape : {Shape{.pipeline = 2, .expert = 2},
                             Shape{.pipeline = 2, .expert = 2, .schedule = "zb-v", .stages_per_rank = 2},
                             Shape{.pipeline = 4, .expert = 2, .schedule = "zb-h1"},
                             Shape{.pipeline = 2, .expert = 2, .parallel = ", p2p: {mode: one-sided}"},
                             Shape{.pipeline = 2, .expert = 2, .extra = "recompute: full\n"}}) {
    SCOPED_TRACE(::testing::PrintToString(shape));
    EXPECT_EQ(train(in_halves(shape)), expected);
  }
}

TEST(TwoBatchOverlapRun, leaves_the_losses_of_whole_microbatches) {
  // The sums of experts' weight gradients have another order, and nothing else.
  Shape shape{.pipeline = 2, .expert = 2, .model = kExperts};
  const Result whole = train(shape);
  const Result halves = train(in_halves(shape));
  EXPECT_EQ(halves.losses.front(), whole.losses.front());
  EXPECT_LE(largest_difference(halves.losses, whole.losses), 1e-6);
  EXPECT_NE(halves.digests, whole.digests);
}

}  // namespace
}  // namespace penstock::worker
