#include "worker/buffers/payload_pool.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <utility>

namespace penstock::worker {
namespace {

constexpr int64_t kSlotBytes = 128;

// In every build: what a debug build checks is asked for.
class PayloadPoolTest : public ::testing::TestWithParam<bool> {
 protected:
  PayloadPoolShape shape(int slots) const {
    return {.stage = StageIndex(5),
            .layer = LayerIndex(3),
            .kind = PayloadKind::Inputs,
            .slots = slots,
            .slot_bytes = kSlotBytes,
            .checks_memory = GetParam()};
  }
  PayloadLease acquire(int microbatch) { return pool_->acquire(MicrobatchIndex(microbatch)).value(); }

  FakeClock clock_;
  std::unique_ptr<PayloadPool> pool_ = PayloadPool::create(shape(3), clock_).value();
};

TEST_P(PayloadPoolTest, lowest_free_slot_is_taken) {
  PayloadLease first = acquire(0), second = acquire(1), third = acquire(2);
  EXPECT_EQ(third.slot(), 2);
  second.release();
  first.release();
  const PayloadLease again = acquire(3);
  EXPECT_EQ(again.slot(), 0);
  EXPECT_EQ(again.generation(), 2u);
  EXPECT_EQ(acquire(4).slot(), 1);
}

TEST_P(PayloadPoolTest, slots_do_not_share_bytes) {
  PayloadLease first = acquire(0), second = acquire(1);
  std::memset(first.data(), 1, kSlotBytes);
  std::memset(second.data(), 2, kSlotBytes);
  for (int64_t at = 0; at < kSlotBytes; ++at) ASSERT_EQ(static_cast<char*>(first.data())[at], 1) << at;
  EXPECT_EQ(reinterpret_cast<uintptr_t>(second.data()) % 64, 0u) << "a slot begins on a cache line";
}

TEST_P(PayloadPoolTest, exhaustion_names_stage_layer_kind_holder_and_the_age_of_the_oldest_lease) {
  PayloadLease young = acquire(7);
  PayloadLease old = acquire(8);
  young.release();
  clock_.advance(1500ms);
  young = acquire(9);
  const PayloadLease third = acquire(10);
  clock_.advance(500ms);
  const Status status = pool_->acquire(MicrobatchIndex(11)).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(
      message(status),
      "stage 5 layer 3: microbatch 11 asked for a slot of payload inputs; all 3 are held, the oldest lease "
      "is microbatch 8's on slot 1, 2.000 s old");
}

TEST_P(PayloadPoolTest, statistics_count_what_is_held_and_the_longest_lease_of_the_step) {
  {
    PayloadLease long_one = acquire(0);
    clock_.advance(3s);
    const PayloadLease short_one = acquire(1);
    clock_.advance(1s);
    EXPECT_EQ(pool_->held(), 2);
  }
  PayloadLease held = acquire(2);
  clock_.advance(2s);
  EXPECT_EQ(pool_->slots(), 3);
  EXPECT_EQ(pool_->held(), 1);
  EXPECT_EQ(pool_->held_peak(), 2);
  EXPECT_EQ(pool_->take_longest_lease(), 4s);
  EXPECT_EQ(pool_->take_longest_lease(), 2s) << "of the next step: the one that goes on";
  held.release();
  EXPECT_EQ(pool_->take_longest_lease(), 2s);
  EXPECT_EQ(pool_->take_longest_lease(), 0s);
}

TEST_P(PayloadPoolTest, guards_are_in_no_account) {
  EXPECT_EQ(pool_->bytes(), 3 * kSlotBytes);
}

TEST_P(PayloadPoolTest, pool_of_no_slots_is_empty_and_says_so) {
  const auto none = PayloadPool::create(shape(0), clock_).value();
  EXPECT_EQ(
      message(none->acquire(MicrobatchIndex(1)).status()),
      "stage 5 layer 3: microbatch 1 asked for a slot of payload inputs; all 0 are held, there is no lease");
}

TEST_P(PayloadPoolTest, released_slot_is_full_of_nan_where_memory_is_checked) {
  PayloadLease lease = acquire(0);
  float* values = static_cast<float*>(lease.data());
  const auto elements = kSlotBytes / static_cast<int64_t>(sizeof(float));
  for (int64_t i = 0; i < elements; ++i) values[i] = 1.0f;
  lease.release();
  for (int64_t i = 0; i < elements; ++i) EXPECT_EQ(std::isnan(values[i]), GetParam()) << i;
}

using PayloadPoolDeathTest = PayloadPoolTest;

TEST_P(PayloadPoolDeathTest, second_release_stops_the_process) {
  PayloadLease lease = acquire(4);
  lease.release();
  EXPECT_DEATH(
      lease.release(),
      "second release of payload inputs slot 0 of stage 5 layer 3, generation 1, which microbatch 4 held");
}

TEST_P(PayloadPoolDeathTest, use_after_release_stops_the_process_and_names_the_holder) {
  PayloadLease lease = acquire(4);
  const PayloadLease moved = std::move(lease);
  EXPECT_NE(moved.data(), nullptr);
  EXPECT_DEATH(lease.data(), "use after release of payload inputs slot 0 of stage 5 layer 3");
}

TEST_P(PayloadPoolDeathTest, pool_that_ends_before_its_leases_stops_the_process) {
  EXPECT_DEATH(
      {
        const PayloadLease lease = acquire(6);
        pool_.reset();
      },
      "payload inputs pool of stage 5 layer 3 ends while 1 of its 3 slots are leased, the oldest lease is "
      "microbatch 6's on slot 0");
}

TEST_P(PayloadPoolDeathTest, writing_beyond_either_end_is_found_at_the_release) {
  if (!GetParam()) {
    PayloadLease lease = acquire(1);
    EXPECT_EQ(static_cast<char*>(acquire(2).data()) - static_cast<char*>(lease.data()), kSlotBytes)
        << "without checks slots stand side by side";
    return;
  }
  PayloadLease lease = acquire(1), next = acquire(2);
  char* const data = static_cast<char*>(next.data());
  EXPECT_DEATH(
      {
        data[kSlotBytes] = 0;
        next.release();
      },
      "stage 5 layer 3: somebody wrote behind the end of payload inputs slot 1 of 128 bytes, which microbatch 2 holds");
  EXPECT_DEATH(
      {
        data[-1] = 0;
        next.release();
      },
      "somebody wrote before the begin of payload inputs slot 1");
}

INSTANTIATE_TEST_SUITE_P(Checks, PayloadPoolTest, ::testing::Bool(),
                         [](const auto& tested) { return tested.param ? "checked" : "unchecked"; });
INSTANTIATE_TEST_SUITE_P(Checks, PayloadPoolDeathTest, ::testing::Bool(),
                         [](const auto& tested) { return tested.param ? "checked" : "unchecked"; });

}  // namespace
}  // namespace penstock::worker
