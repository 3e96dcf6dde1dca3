#include "coordinator/core/jobs/lifecycle.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace penstock::coordinator {
namespace {

using enum JobState;

TEST(Lifecycle, legal_moves_are_exactly_the_drawn_ones) {
  // The drawing in the header is the promise; a move that nobody drew is a bug in the core.
  const std::set<std::pair<JobState, JobState>> drawn = {
      {Queued, Placing},      {Placing, Queued},       {Placing, Preparing},  {Preparing, Running},
      {Running, Succeeded},   {Preparing, Recovering}, {Running, Recovering}, {Recovering, Queued},
      {Preparing, Draining},  {Running, Draining},     {Draining, Paused},    {Draining, Succeeded},
      {Draining, Recovering}, {Paused, Queued},        {Queued, Paused},      {Placing, Paused},
      {Recovering, Paused},
  };
  for (int s = 0; s < kJobStates; ++s) {
    for (int t = 0; t < kJobStates; ++t) {
      const auto source = static_cast<JobState>(s);
      const auto target = static_cast<JobState>(t);
      bool expected = drawn.contains({source, target});
      if (!has_ended(source) && (target == Failed || target == Cancelled)) expected = true;
      EXPECT_EQ(can_move(source, target), expected) << to_string(source) << " -> " << to_string(target);
    }
  }
}

TEST(Lifecycle, every_state_has_a_name_that_reads_back) {
  std::set<std::string_view> names;
  for (int i = 0; i < kJobStates; ++i) {
    const auto state = static_cast<JobState>(i);
    EXPECT_EQ(parse_job_state(to_string(state)), state);
    names.insert(to_string(state));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(kJobStates));
  EXPECT_EQ(parse_job_state("sleeping"), std::nullopt);
}

}  // namespace
}  // namespace penstock::coordinator
