#include "client/commands/work_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kMiB = 1 << 20;

class WorkProgressTest : public ::testing::Test {
 protected:
  ProgressScreen terminal() {
    return {clock_, [this](const std::string& text) { drawn_.push_back(text); }};
  }

  FakeClock clock_;
  std::vector<std::string> drawn_;
};

TEST_F(WorkProgressTest, short_work_draws_nothing) {
  {
    WorkProgress progress = WorkProgress::of_bytes("verify", 8 * kMiB, terminal());
    for (int i = 0; i < 8; ++i) {
      progress.add(kMiB);
      clock_.advance(100ms);
    }
  }
  EXPECT_THAT(drawn_, IsEmpty());
}

TEST_F(WorkProgressTest, long_work_is_drawn_every_second_over_itself_and_wiped_at_the_end) {
  {
    WorkProgress progress = WorkProgress::of_bytes("verify", 8 * kMiB, terminal());
    for (int i = 0; i < 5; ++i) {
      clock_.advance(500ms);
      progress.add(kMiB);
    }
  }
  EXPECT_THAT(drawn_,
              ElementsAre("\r\x1b[Kverify: 25% of 8.00MiB", "\r\x1b[Kverify: 50% of 8.00MiB", "\r\x1b[K"));
}

TEST_F(WorkProgressTest, things_are_counted) {
  {
    WorkProgress progress = WorkProgress::of_things("list", 120, "checkpoints", terminal());
    clock_.advance(1s);
    progress.add(34);
  }
  EXPECT_THAT(drawn_, ElementsAre("\r\x1b[Klist: 34 of 120 checkpoints", "\r\x1b[K"));
}

TEST_F(WorkProgressTest, nothing_is_drawn_where_there_is_no_terminal) {
  WorkProgress progress = WorkProgress::of_bytes("export", 0, {clock_, {}});
  clock_.advance(60s);
  progress.add(1);
  EXPECT_THAT(drawn_, IsEmpty());
}

}  // namespace
}  // namespace penstock::client
