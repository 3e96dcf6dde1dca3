#include "worker/buffers/activation_pool.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <utility>

namespace penstock::worker {
namespace {

constexpr int64_t kSlotBytes = 256;

class ActivationPoolTest : public ::testing::Test {
 protected:
  kernels::Slab slab_ = kernels::Slab::allocate(3 * kSlotBytes, "test").value();
  ActivationPool pool_{StageIndex(5), 3, kSlotBytes, slab_.view()};

  ActivationLease acquire(int slot, int microbatch) {
    return pool_.acquire(slot, MicrobatchIndex(microbatch)).value();
  }
};

TEST_F(ActivationPoolTest, leases_of_different_slots_do_not_share_bytes) {
  const ActivationLease first = acquire(0, 0);
  const ActivationLease last = acquire(2, 1);
  EXPECT_EQ(static_cast<char*>(last.data()) - static_cast<char*>(first.data()), 2 * kSlotBytes);
  EXPECT_EQ(first.data(), slab_.view().data);
}

TEST_F(ActivationPoolTest, peak_counts_most_held_at_once_and_not_acquisitions) {
  // The peak is compared with the predicted H_s: a count of acquisitions would hide a slot that is held too
  // long.
  for (int microbatch = 0; microbatch < 5; ++microbatch) {
    ActivationLease a = acquire(0, microbatch);
    ActivationLease b = acquire(1, microbatch);
  }
  EXPECT_EQ(pool_.held(), 0);
  EXPECT_EQ(pool_.held_peak(), 2);
  EXPECT_EQ(pool_.capacity(), 3);
}

TEST_F(ActivationPoolTest, acquiring_a_held_slot_names_its_holder_and_the_oldest_lease) {
  ActivationLease a = acquire(1, 7);
  ActivationLease b = acquire(0, 8);
  const Status status = pool_.acquire(0, MicrobatchIndex(9)).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(message(status),
            "stage 5: microbatch 9 asked for activation slot 0, which microbatch 8 holds; 2 of 3 slots are "
            "held, the "
            "oldest lease is microbatch 7's on slot 1");
}

TEST_F(ActivationPoolTest, slot_outside_the_pool_is_refused) {
  EXPECT_EQ(pool_.acquire(3, MicrobatchIndex(0)).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(pool_.acquire(-1, MicrobatchIndex(0)).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(ActivationPoolTest, moved_lease_keeps_the_slot_and_the_generation_grows_with_each_use) {
  ActivationLease first = acquire(1, 0);
  const uint64_t generation = first.generation();
  ActivationLease second = std::move(first);
  EXPECT_TRUE(second.held());
  EXPECT_FALSE(first.held());  // NOLINT(bugprone-use-after-move): that is the point
  second.release();
  EXPECT_EQ(pool_.held(), 0);
  EXPECT_EQ(acquire(1, 1).generation(), generation + 1);
}

TEST_F(ActivationPoolTest, assigning_over_a_held_lease_gives_its_slot_back) {
  ActivationLease lease = acquire(0, 0);
  lease = acquire(1, 1);
  EXPECT_EQ(lease.slot(), 1);
  EXPECT_EQ(pool_.held(), 1);
}

using ActivationPoolDeathTest = ActivationPoolTest;

TEST_F(ActivationPoolDeathTest, second_release_stops_the_process) {
  ActivationLease lease = acquire(2, 0);
  lease.release();
  EXPECT_DEATH(lease.release(),
               "second release of activation slot 2 of stage 5, generation 1, which microbatch 0 held");
}

TEST_F(ActivationPoolDeathTest, use_after_release_stops_the_process) {
  ActivationLease lease = acquire(2, 0);
  lease.release();
  EXPECT_DEATH(lease.data(),
               "use after release of activation slot 2 of stage 5, generation 1, which microbatch 0 held");
}

TEST_F(ActivationPoolDeathTest, pool_that_ends_before_its_leases_stops_the_process) {
  EXPECT_DEATH(
      {
        std::optional<ActivationPool> pool;
        pool.emplace(StageIndex(1), 1, kSlotBytes, slab_.view());
        ActivationLease lease = pool->acquire(0, MicrobatchIndex(0)).value();
        pool.reset();
      },
      "activation pool of stage 1 ends while 1 of its 1 slots are leased, the oldest lease is microbatch 0");
}

#ifndef NDEBUG
TEST_F(ActivationPoolTest, released_slot_is_full_of_nan_in_debug_builds) {
  ActivationLease lease = acquire(1, 0);
  float* values = static_cast<float*>(lease.data());
  for (int i = 0; i < kSlotBytes / 4; ++i) values[i] = 1.0f;
  lease.release();
  for (int i = 0; i < kSlotBytes / 4; ++i) EXPECT_TRUE(std::isnan(values[i])) << i;
  EXPECT_EQ(static_cast<float*>(slab_.view().data)[0], 0.0f) << "a neighbour was poisoned too";
}
#endif

}  // namespace
}  // namespace penstock::worker
