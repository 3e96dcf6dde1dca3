// Writes the instructions of one rank from its actions and the message plan.
#pragma once

#include <map>
#include <unordered_map>
#include <vector>

#include "plan/schedule/internal/message_plan.h"
#include "plan/schedule/internal/slots.h"
#include "plan/schedule/internal/update_progress.h"

namespace penstock::plan::internal {

// One action becomes, in this order: the validation of the step before where it is its place, receives that the queue order puts before it, waits for the send slots that its outputs need, leases of its forwards,
// waits for its inputs, the computation, its sends or hand-offs, the end of leases, receives into the slots
// that it freed (unless they are queued), and the reductions and the optimizer step that it made possible.
class RankLowering {
 public:
  // `own_stages`: of this rank, ascending. All three must outlive this.
  RankLowering(const ComputeProgram& program, const MessagePlan& plan, RankIndex rank,
               const std::vector<StageIndex>& own_stages);

  // Internal when an action needs what its rank has not made yet.
  StatusOr<RankProgram> lower() &&;

 private:
  // Slots at this rank's end of a link, by the message that is in them.
  struct ReceiveEnd {
    LowestFree slots;
    int posted = 0;
    std::vector<int> slot_of;  // [message]
  };
  struct SendEnd {
    int sent = 0;
    int waited = 0;
  };

  Status emit_action(const Action& action);
  void validate_at_its_place();
  void wait_for_send_slot(const Work& work);
  void acquire(const Work& work);
  Status wait_for_input(const Work& work);
  Status compute(const Work& work, bool overlaps_next);
  void pass_output(const Work& work);
  void release(const Work& work);
  void free_input(const Work& work);
  void post_free_slots(int link);
  void post_queued_receives();
  void post_receive(int link);
  void finish_updates();
  void wait_for_all_sends();
  void wait_send(int link);
  void describe_buffers_and_links();

  StatusOr<int> version_of(const Work& work);
  Instruction& emit(InstructionKind kind, StageIndex stage, MicrobatchIndex microbatch);
  uint64_t key(StageIndex stage, MicrobatchIndex microbatch, Flow flow = Flow::Activation) const;

  const ComputeProgram& program_;
  const MessagePlan& plan_;
  const std::vector<StageIndex>& own_stages_;
  RankProgram result_;
  UpdateProgress updates_;
  int action_ = 0;                                        // position of the one that is written
  bool may_post_all_ = true;                              // false until ValidateStep, where there is one
  size_t queued_ = 0;                                     // receives that were posted in queue order
  std::vector<LowestFree> activation_slots_;              // [own stage]
  std::vector<BackwardForm> backward_forms_;              // [own stage]
  std::unordered_map<uint64_t, int> activation_slot_of_;  // leases held
  std::unordered_map<uint64_t, int> version_of_forward_;  // Stashed: from F to the end of its backward
  std::map<int, ReceiveEnd> receive_ends_;                // [link]
  std::map<int, SendEnd> send_ends_;                      // [link]
  LowestFree hand_off_slots_;
  std::unordered_map<uint64_t, int> hand_off_slot_of_;  // by target stage, microbatch and flow
  int hand_offs_ = 0;
  TransferDigest hand_off_digest_;
};

}  // namespace penstock::plan::internal
