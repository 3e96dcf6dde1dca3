#include "worker/buffers/boundary_slots.h"

#include <gtest/gtest.h>

#include <cmath>

namespace penstock::worker {
namespace {

constexpr int64_t kSlotBytes = 128;

class BoundarySlotsTest : public ::testing::Test {
 protected:
  kernels::Slab slab_ = kernels::Slab::allocate(2 * kSlotBytes, "test").value();
  BoundarySlots slots_{"send slots of link 0>1", 2, kSlotBytes, slab_.view()};
};

TEST_F(BoundarySlotsTest, receive_send_and_hand_off_each_end_free) {
  ASSERT_TRUE(slots_.fill(0, MicrobatchIndex(0)).ok());
  ASSERT_TRUE(slots_.filled(0).ok());
  ASSERT_TRUE(slots_.check_full(0).ok());
  ASSERT_TRUE(slots_.free_read(0).ok());
  ASSERT_TRUE(slots_.fill(1, MicrobatchIndex(1)).ok());
  ASSERT_TRUE(slots_.filled(1).ok());
  ASSERT_TRUE(slots_.send(1).ok());
  EXPECT_FALSE(slots_.all_free());
  ASSERT_TRUE(slots_.free_sent(1).ok());
  EXPECT_TRUE(slots_.all_free());
  EXPECT_EQ(slots_.in_use_peak(), 1);
}

TEST_F(BoundarySlotsTest, reading_what_has_not_arrived_is_an_error_that_names_the_slot) {
  ASSERT_TRUE(slots_.fill(1, MicrobatchIndex(6)).ok());
  const Status status = slots_.check_full(1);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(message(status),
            "send slots of link 0>1: slot 1 expected full, found being filled (last used by microbatch 6)");
}

TEST_F(BoundarySlotsTest, overwriting_what_is_still_on_its_way_is_an_error) {
  ASSERT_TRUE(slots_.fill(0, MicrobatchIndex(2)).ok());
  ASSERT_TRUE(slots_.filled(0).ok());
  ASSERT_TRUE(slots_.send(0).ok());
  EXPECT_FALSE(slots_.fill(0, MicrobatchIndex(3)).ok());
  EXPECT_FALSE(slots_.free_read(0).ok());
}

TEST_F(BoundarySlotsTest, slots_in_any_state_are_free_after_all_were_freed) {
  ASSERT_TRUE(slots_.fill(0, MicrobatchIndex(3)).ok());
  ASSERT_TRUE(slots_.fill(1, MicrobatchIndex(4)).ok());
  ASSERT_TRUE(slots_.filled(1).ok());
  ASSERT_TRUE(slots_.send(1).ok());
  EXPECT_FALSE(slots_.all_free());
  slots_.free_all();
  EXPECT_TRUE(slots_.all_free());
  EXPECT_TRUE(slots_.fill(1, MicrobatchIndex(5)).ok());
}

TEST_F(BoundarySlotsTest, slot_outside_the_link_is_refused) {
  EXPECT_FALSE(slots_.fill(2, MicrobatchIndex(0)).ok());
  EXPECT_FALSE(slots_.fill(-1, MicrobatchIndex(0)).ok());
}

#ifndef NDEBUG
TEST_F(BoundarySlotsTest, freed_slot_is_full_of_nan_in_debug_builds) {
  ASSERT_TRUE(slots_.fill(1, MicrobatchIndex(0)).ok());
  ASSERT_TRUE(slots_.filled(1).ok());
  ASSERT_TRUE(slots_.free_read(1).ok());
  EXPECT_TRUE(std::isnan(static_cast<float*>(slots_.data(1))[0]));
}
#endif

}  // namespace
}  // namespace penstock::worker
