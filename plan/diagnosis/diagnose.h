// Why a pipeline is slow, from what its stages took microbatch by microbatch, on every data-parallel replica.
//
// Ranks that hold the same stages do the same work. A rank takes the sum of its stages' medians; the level of a work is what a
// rank without fault takes for it, the lower median of those that do it, so that one slow worker of two does not speak for both.
//
//   imbalance       spread evenly, the highest level would fall by more than 4 %: move layers
//   straggler       a rank takes more than 1.10 times its level, and so against another rank's own time: derate or drain its
//                   worker
//   slow replica    all ranks of a replica do: what they share is slow, or their microbatches are longer
//   data variance   most stages vary: (q90 - q10) / 2.56 or mean - median exceeds 8 % of the median, the slowest 2 % (one at
//                   least) left out. Sequences of mixed lengths do that, and then forward and backward vary together
//   balanced        none of them, or none for which any rank waits
//
// All that is found is told, what costs most first. Differences within four standard errors of the medians are none. With one
// replica a slow worker looks like a heavy stage: the verdict is imbalance, and a note says so. Healthy stages vary by 2 to 3 %
// and differ by 1 to 2 % (published traces of training clusters, arXiv 2505.05713). Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace penstock::plan {

// Samples in the same order: forward_ms[i] and backward_ms[i] are of one microbatch.
struct CellSamples {
  std::vector<double> forward_ms;
  std::vector<double> backward_ms;
};

struct StageTrace {
  std::vector<std::vector<CellSamples>> cells;  // [stage][replica]; 1 to 4,096 stages, 1 to 4,096 replicas
  // [stage][replica], any numbers: cells of one rank have the same. Those of a stage ascend, and ranks that share one stage share
  // all. Empty: every cell has a rank of its own.
  std::vector<std::vector<int>> ranks;
  // Whether somebody else looks at single layers, which tell a slow worker from a heavy stage where there is one replica.
  bool layers_tell_workers = false;
};

enum class Finding : uint8_t { Balanced, Imbalance, Straggler, SlowReplica, DataVariance };
const char* name_of(Finding finding);  // "data-variance"

struct SlowWorker {
  std::vector<int> stages;
  int replica = 0;
  int rank = -1;      // as in the trace; -1: it tells none
  double factor = 0;  // its time to what others take, its replica's own slowness taken out
};

struct Judgement {
  Finding finding = Finding::Balanced;
  std::vector<int> stages = {};          // those of one rank: that sticks out, or whose worker is slowest
  int replica = -1;                      // of a straggler or a slow replica, the slowest
  double factor = 1;                     // imbalance: to the median of the other ranks; variance: the spread
  double gain = 0;                       // part of the slowest rank's time that mending it saves, at most
  std::vector<SlowWorker> workers = {};  // of a straggler or a slow replica, the slowest first
  std::string because = {};              // a sentence with its numbers
  std::string advice = {};
};

struct Diagnosis {
  std::vector<Judgement> verdicts;  // the first is the main one; never empty
  std::vector<std::string> notes;   // what the trace cannot tell, and what is odd and harmless

  bool stages_share_ranks = false;
  std::vector<std::vector<double>> median_ms;  // [stage][replica], forward + backward
  std::vector<double> stage_factor;            // [stage] what it takes without fault; the median stage has 1
  std::vector<double> rank_factor;     // [stage] the same of all stages of its ranks; the median rank has 1
  std::vector<double> replica_factor;  // 1: not slow as a whole
  std::vector<std::vector<double>> worker_factor;  // [stage][replica] its rank's time to the level
  std::vector<double> spread;  // [stage] the larger of the two measures above, lower median over replicas
  double forward_backward_correlation = 0;  // over all cells, each by its median

  const Judgement& main() const { return verdicts.front(); }
  const Judgement* of(Finding finding) const;  // null: not found
};

// Whether it is the data that vary: what makes a microbatch long makes its forward and its backward long, by the same
// sequences. The correlation is the part of the variance that both have in common: 0.9, as in the published analysis (arXiv
// 2505.05713). At 0.5 half of it came to either alone, which is the machine's. Data that vary as little as is a finding at
// all, 8 % beside noise of 2 %, still give 0.94.
inline constexpr double kVariesTogether = 0.9;
bool is_of_the_data(const Diagnosis& diagnosis);

// InvalidArgument names the cell: none or unequal samples, times that are no numbers from 1e-9 to 1e12 ms, ranks as above.
StatusOr<Diagnosis> diagnose(const StageTrace& trace);

}  // namespace penstock::plan
