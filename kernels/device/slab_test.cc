#include "kernels/device/slab.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace penstock::kernels {
namespace {

TEST(Slab, memory_is_aligned_and_zero) {
  // Gradients start at zero and every tensor starts on a cache line because of this.
  for (int64_t bytes : {1, 63, 64, 4097, 1 << 20}) {
    auto slab = Slab::allocate(bytes, "gradients");
    ASSERT_TRUE(slab.ok()) << slab.status();
    EXPECT_EQ(slab->bytes(), bytes);
    const SlabView view = slab->view();
    EXPECT_EQ(view.bytes, bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view.data) % 64, 0u);
    for (int64_t i = 0; i < bytes; ++i) ASSERT_EQ(static_cast<char*>(view.data)[i], 0);
  }
}

TEST(Slab, zero_bytes_are_fine) {
  auto slab = Slab::allocate(0, "boundary of the only stage");
  ASSERT_TRUE(slab.ok());
  EXPECT_EQ(slab->bytes(), 0);
}

TEST(Slab, impossible_size_is_refused_with_size_and_purpose) {
  auto slab = Slab::allocate(std::numeric_limits<int64_t>::max() / 2, "activations of stage 3");
  ASSERT_EQ(slab.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(message(slab.status()), testing::HasSubstr("activations of stage 3"));
  EXPECT_THAT(message(slab.status()),
              testing::HasSubstr(std::to_string(std::numeric_limits<int64_t>::max() / 2)));
  EXPECT_EQ(Slab::allocate(std::numeric_limits<int64_t>::max(), "x").status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(Slab::allocate(-1, "x").status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace penstock::kernels
