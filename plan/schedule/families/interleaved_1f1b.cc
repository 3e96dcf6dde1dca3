// Interleaved 1F1B (Narayanan et al., 2021): a rank holds V stages, P apart, and runs the microbatches in
// groups; in a group it goes stage by stage. Rank r runs 2(P-1-r) + (V-1)g forwards ahead, g being the first
// group's size, then one forward and one backward in turn, then the rest. Makespan (mV+P-1)(F+X), V times
// less idle than 1F1B.
//
// Groups are of P microbatches where P divides m, which is the textbook's rule. Elsewhere a short last group
// would leave its ranks idle, so that m is shared out over floor(m/P) groups instead, which differ by one
// microbatch at most, the larger ones first: the first group must be the largest, since its size sets how far
// forwards run ahead. The makespan stays ideal for every m >= P, at the price of (V-1)(g-P) more activations.
// With m < P there is one group; then no schedule is faster than (PV+m-1)(F+X), and this one reaches it.
#include <algorithm>

#include "plan/schedule/families/family.h"

namespace penstock::plan::families {
namespace {

struct Slice {
  int chunk;  // 0..V-1: the rank's how-manieth stage
  int microbatch;
};

std::vector<int> group_sizes(int microbatches, int ranks) {
  const int groups = std::max(1, microbatches / ranks);
  std::vector<int> sizes(groups, microbatches / groups);
  for (int larger = 0; larger < microbatches % groups; ++larger) ++sizes[larger];
  return sizes;
}

// The order of one rank's forwards, group by group and chunk by chunk;
// of its backwards with the chunks reversed.
std::vector<Slice> order_of_forwards(const std::vector<int>& groups, int chunks) {
  std::vector<Slice> order;
  int first = 0;
  for (const int size : groups) {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (int microbatch = first; microbatch < first + size; ++microbatch)
        order.push_back({chunk, microbatch});
    }
    first += size;
  }
  return order;
}

}  // namespace

ComputeProgram interleaved_1f1b(const ScheduleRequest& request) {
  ComputeProgram program = loop_program(request);
  const int ranks = request.ranks;
  const int chunks = request.stages_per_rank;
  const std::vector<int> groups = group_sizes(request.microbatches, ranks);
  const std::vector<Slice> order = order_of_forwards(groups, chunks);
  const int total = static_cast<int>(order.size());

  for (int rank = 0; rank < ranks; ++rank) {
    auto& actions = program.actions[rank];
    const auto forward = [&](int k) {
      append(actions, order[k].chunk * ranks + rank, ActionKind::Forward, order[k].microbatch);
    };
    const auto backward = [&](int k) {
      append(actions, (chunks - 1 - order[k].chunk) * ranks + rank, ActionKind::Backward,
             order[k].microbatch);
    };
    const int64_t ahead = 2 * (ranks - 1 - rank) + static_cast<int64_t>(chunks - 1) * groups.front();
    const int warm_up = static_cast<int>(std::min<int64_t>(ahead, total));
    for (int k = 0; k < warm_up; ++k) forward(k);
    for (int k = 0; k < total; ++k) {
      if (k + warm_up < total) forward(k + warm_up);
      backward(k);
    }
  }
  return program;
}

}  // namespace penstock::plan::families
