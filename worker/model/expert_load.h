// How the experts of one block were used in a step.
//
// Rows and dropped choices are those of all tokens that experts were given, with those of the sequences that fill up a step's
// last microbatch: they take an expert's time and room like others, and that is what loads are held against (measured stages,
// capacities). Ranks that share experts out are told how many rows come, not of which tokens. The losses are without them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"

namespace penstock::worker {

struct ExpertLoad {
  StepIndex step;
  LayerIndex layer;
  int64_t first_expert = 0;   // of this rank, where ranks share them out
  std::vector<int64_t> rows;  // of each of its experts, whichever rank's tokens they are
  int64_t dropped = 0;        // of its own tokens' choices those that found their expert full
  // Sums of the router's losses (kernels/ops/router/contract.h) over the sequences and tokens that count.
  double balance = 0;
  double z = 0;
  int64_t sequences = 0;
  int64_t tokens = 0;

  void begin(StepIndex of);  // forgets the step before
};

// "layer 3: 512 rows an expert, 420 (expert 5) to 610 (expert 0); 3 choices dropped; balance loss 1.04, z-loss 2.1"
std::string described(const ExpertLoad& load);

}  // namespace penstock::worker
