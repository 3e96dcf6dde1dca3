// Whether the rows that a router sends to its experts move over time, and the time of their stage with them: then a split that
// was measured early is not the one that is needed now.
//
// The history is cut into four quarters, each of which speaks by its medians, so that no bad step moves it.
//
//   drift     between the quarters with the least and the most load, the load rises by 5 % and the time by 3 % at least, and over
//             all points the two rise and fall together: their rank correlation (Spearman's) is 0.4, or 3.5 standard deviations of
//             what chance gives where there are few points, and more
//   steady    the load stays: one that is uneven all the time is an imbalance, which a split can mend
//   harmless  the load moves, and the time of the stage does not follow
//
// Stages of healthy machines differ by 1 to 2 % and their microbatches by 2 to 3 % (published traces, as in diagnose.h), which
// the median of a quarter makes smaller: 3 % between two of them is beyond noise. Pure; any thread.
#pragma once

#include <string>
#include <vector>

namespace penstock::plan {

// Of one stage with experts, oldest first; [i] is the same step in both.
struct RoutedStage {
  int stage = 0;
  std::vector<double>
      load;  // rows of its busiest rank, or expert, to those of the mean one; points of 0 do not count
  std::vector<double> seconds;  // forward and backward of a microbatch
};

enum class Routing : uint8_t { Unknown, Steady, Harmless, Drift };
const char* name_of(Routing routing);  // "drift"

struct RoutingJudgement {
  Routing routing = Routing::Unknown;  // of the stage that is furthest
  int stage = -1;
  double least_load = 0, most_load = 0;        // medians of the quarters with the least and the most
  double least_seconds = 0, most_seconds = 0;  // medians of the same two
  double high_load = 0;                        // nine in ten points are below: what to plan for
  double correlation = 0;
  std::string because{};  // a sentence with its numbers; "" where nothing is known
  std::string advice{};   // mostly empty
};

// Unknown: no stage with 16 points at least.
RoutingJudgement judge_routing(const std::vector<RoutedStage>& stages);

}  // namespace penstock::plan
