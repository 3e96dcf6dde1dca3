// 1F1B on the V placement (OLMo-core, 2026; sail-sg's V1F1B): whole backwards, and two thirds of the
// activations of interleaved 1F1B, the same on every rank.
//
// Building block, in slots of one forward, a backward taking two: forwards run down the lo stages, rank after
// rank, and back up the hi stages; 3 slots of pause where 3 divides P; then backwards run down the hi stages
// and back up the lo ones, with 3 slots of pause after every third rank, so that no two pieces of a rank meet
// modulo 6. The copies are pulled left, no rank holding more than any rank does in the block's own timetable.
//
// Peak 2(floor(2P/3)+1) half-stage activations for m >= 2P. Idle slots of a rank: no closed form; P=4: 15,
// P=8: 33, P=16: 75 with F = 1 and B = 2. extra_warm_up_forwards lets a rank hold that many more, which takes
// transfers off the critical path.
#include "plan/schedule/families/family.h"
#include "plan/schedule/families/timetable.h"

namespace penstock::plan::families {
namespace {

BuildingBlock building_block(int ranks) {
  constexpr int kPause = 3;
  BuildingBlock block;
  block.of_rank.resize(ranks);
  int slot = 0;
  for (int rank = 0; rank < ranks; ++rank) block.of_rank[rank].forward_low = slot++;
  for (int rank = ranks; rank-- > 0;) block.of_rank[rank].forward_high = slot++;
  if (ranks % 3 == 0) slot += kPause;
  int since_pause = (3 - (ranks + 2) % 3) % 3;
  const auto place_backward = [&](int& start) {
    start = slot;
    slot += 2;
    if (++since_pause % 3 == 0) slot += kPause;
  };
  for (int rank = 0; rank < ranks; ++rank) place_backward(block.of_rank[rank].backward_high);
  for (int rank = ranks; rank-- > 0;) place_backward(block.of_rank[rank].backward_low);
  return block;
}

int extra_of(const ScheduleRequest& request, int rank) {
  const auto& extra = request.extra_warm_up_forwards;
  if (extra.empty()) return 0;
  return extra.size() == 1 ? extra.front() : extra[rank];
}

}  // namespace

ComputeProgram one_f_one_b_v(const ScheduleRequest& request) {
  ComputeProgram program = v_program(request);
  const Timetable repeated = repeat_block(building_block(request.ranks), request.microbatches);
  const std::vector<int> held = most_held(repeated);
  std::vector<int> may_hold(request.ranks, *std::max_element(held.begin(), held.end()));
  for (int rank = 0; rank < request.ranks; ++rank) may_hold[rank] += extra_of(request, rank);
  program.actions = actions_in_order(pull_left(repeated, may_hold));
  return program;
}

}  // namespace penstock::plan::families
