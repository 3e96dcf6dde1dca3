// A lowered program with everything found that its instructions speak of: stages, pools, slots and where the
// id of a transfer is kept; in the order in which one thread runs it.
//
// Of an overlapped pair a CPU runs one half after the other (Pairs::InTurn). So that each half's transfers pass under the other's
// computation, the first half's output leaves before the second computes, and the second's input is waited for only when
// the first has computed. Outputs leave earlier and waits come later than in the program, transfers keep their order: what
// was free of deadlock stays so.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "plan/schedule/lowered.h"
#include "worker/buffers/activation_pool.h"
#include "worker/buffers/boundary_slots.h"
#include "worker/executor/link_buffers.h"
#include "worker/executor/warm_up_undo.h"
#include "worker/model/stage.h"

namespace penstock::worker {

// How a device runs an overlapped pair: its halves in turn, or both from the moment at which both inputs are there to the
// one at which both outputs are, as plan/simulation has it.
enum class Pairs : uint8_t { InTurn, AtOnce };

struct SlotReference {
  BoundarySlots* slots = nullptr;  // null: no tensor passes
  int slot = -1;
};

struct ResolvedInstruction {
  const plan::Instruction* source = nullptr;
  // Compute.
  Stage* stage = nullptr;
  int activation_slot = -1;
  SlotReference input;
  // Compute: where the result goes. Transfers and hand-offs: the slot that they are about.
  SlotReference output;
  // Acquire and release.
  ActivationPool* pool = nullptr;
  int lease = -1;  // index of the lease
  // Transfers: index of the id between post and wait.
  int transfer = -1;
};

struct ResolvedProgram {
  std::vector<ResolvedInstruction> instructions;  // in running order
  int leases = 0;
  int transfers = 0;
  std::vector<UnpostedMessages> unposted;  // before ValidateStep, where there is one
};

// `stages` and `pools` are in the order of program.buffers. Internal names the instruction and what it lacks.
StatusOr<ResolvedProgram> resolve(const plan::RankProgram& program, const std::vector<Stage*>& stages,
                                  const std::vector<ActivationPool*>& pools, LinkBuffers& links,
                                  Pairs pairs = Pairs::InTurn);

}  // namespace penstock::worker
