// Why a pipeline is slow, from what its stages took microbatch by microbatch, on every data-parallel replica.
//
// The median of each cell (stage, replica) is taken apart by median polish of its logarithm: stage effect x replica
// effect x residual. Medians are lower ones, so that one slow worker of two does not speak for its stage.
//
//   data variance   most cells vary: (q90 - q10) / 2.56 or mean - median exceeds 8 % of the median, the slowest
//                   2 % left out. Sequences of mixed lengths do that, and then forward and backward vary together
//   straggler       one cell is slower than its stage and its replica explain: derate or drain that worker, do not
//                   move layers
//   imbalance       a stage is slower than the median one on all replicas: move layers
//   balanced        none of them by more than 5 % (a straggler: 10 %)
//
// Where a straggler and an imbalance are both there, the larger is the verdict. With one replica a slow worker
// looks like a heavy stage: the verdict is imbalance, and `note` says so. Healthy stages vary by 2 to 3 %
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
};

enum class Finding : uint8_t { Balanced, Imbalance, Straggler, DataVariance };
const char* name_of(Finding finding);  // "data-variance"

struct Diagnosis {
  Finding finding = Finding::Balanced;
  int stage = -1;    // of an imbalance or a straggler
  int replica = -1;  // of a straggler

  std::vector<std::vector<double>> median_ms;  // [stage][replica], forward + backward
  std::vector<double> stage_factor;            // the median stage has 1
  std::vector<double> replica_factor;
  std::vector<std::vector<double>> residual_factor;
  std::vector<double> spread;  // of each stage: the larger of the two measures above, median over replicas
  double forward_backward_correlation = 0;  // over all cells, each by its median
  std::string because;                      // the verdict with its numbers, a sentence
  std::string advice;
  std::string note;  // what the trace cannot tell; mostly empty
};

// Whether it is the data that vary: what makes a microbatch long makes its forward and its backward long, by the same
// sequences. The correlation is the part of the variance that both have in common: 0.9, as in the published analysis (arXiv
// 2505.05713). At 0.5 half of it came to either alone, which is the machine's. Data that vary as little as is a finding at
// all, 8 % beside noise of 2 %, still give 0.94.
bool is_of_the_data(const Diagnosis& diagnosis);

// InvalidArgument names the cell: none or unequal samples, times that are no numbers above 0.
StatusOr<Diagnosis> diagnose(const StageTrace& trace);

}  // namespace penstock::plan
