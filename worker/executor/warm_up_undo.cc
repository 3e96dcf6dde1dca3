#include "worker/executor/warm_up_undo.h"

#include <utility>

namespace penstock::worker {
namespace {

Status receive_and_drop(const UnpostedMessages& messages, const WarmUpState& state) {
  for (int i = 0; i < messages.count; ++i) {
    PENSTOCK_ASSIGN_OR_RETURN(
        const TransferId transfer,
        state.endpoint.post_receive(messages.source, messages.slots->data(0), state.links.tensor_bytes()));
    PENSTOCK_RETURN_IF_ERROR(state.endpoint.wait(transfer));
  }
  return ok_status();
}

}  // namespace

StatusOr<std::vector<UnpostedMessages>> unposted_messages(const plan::RankProgram& program,
                                                          LinkBuffers& links) {
  std::vector<UnpostedMessages> unposted;
  for (const plan::Link& link : program.links) {
    if (link.target != program.rank || link.provisional_messages == 0) continue;
    PENSTOCK_ASSIGN_OR_RETURN(BoundarySlots * slots, links.find(link.source, link.target));
    int posted = 0;
    for (const plan::Instruction& instruction : program.instructions) {
      if (instruction.kind == plan::InstructionKind::ValidateStep) break;
      posted +=
          instruction.kind == plan::InstructionKind::PostReceive && instruction.peer == link.source ? 1 : 0;
    }
    unposted.push_back({link.source, slots, link.provisional_messages - posted});
  }
  return unposted;
}

Status undo_warm_up(const WarmUpState& state, std::span<const UnpostedMessages> unposted) {
  for (TransferId& transfer : state.transfers) {
    if (transfer.value < 0) continue;
    PENSTOCK_RETURN_IF_ERROR(state.endpoint.wait(std::exchange(transfer, TransferId{})));
  }
  for (ActivationLease& lease : state.leases) {
    if (lease.held()) lease.release();
  }
  state.links.free_all();
  for (const UnpostedMessages& messages : unposted)
    PENSTOCK_RETURN_IF_ERROR(receive_and_drop(messages, state));
  return ok_status();
}

}  // namespace penstock::worker
