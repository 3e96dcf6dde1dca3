// Executes the lowered programs of all ranks together, without data or time, as far as they go.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "plan/schedule/lowered.h"
#include "plan/verification/verify.h"

namespace penstock::plan::internal {

enum class Sends : uint8_t { Buffered, Rendezvous, InOrderQueue };  // SendSemantics says what each means

// For programs whose ranks have been checked one by one, and whose links agree.
class JointRun {
 public:
  JointRun(const LoweredProgram& program, Sends sends);  // `program` must outlive this

  bool reaches_the_end();
  // After a run that did not: who stands where.
  Violation describe();

 private:
  struct LinkRun {
    int source = -1;
    int target = -1;
    int sent = 0;
    int posted = 0;
    int passed = 0;                   // InOrderQueue: messages that have left both queues
    std::vector<int> sent_in_slot;    // [send slot]: number of the message that was sent from it last
    std::vector<int> posted_in_slot;  // [receive slot]: of the message that was posted into it last
  };
  // One rank: where it stands, its links by peer, and its queue of transfers: the link of each.
  struct RankRun {
    size_t next = 0;
    std::vector<std::pair<int, int>> outgoing;  // peer, link; ascending
    std::vector<std::pair<int, int>> incoming;
    std::deque<int> queue;
    bool has_validated = false;
  };

  const std::vector<Instruction>& instructions_of(int rank) const {
    return program_.ranks[rank].instructions;
  }
  const Instruction& current(int rank) const { return instructions_of(rank)[ranks_[rank].next]; }
  LinkRun& link_to(int rank, RankIndex peer);
  LinkRun& link_from(int rank, RankIndex peer);
  bool is_shared(const Instruction& instruction) const;
  bool has_validated(int rank) const;
  bool may_run(int rank);
  void execute(int rank);
  void enqueue(int rank, const LinkRun& link);
  void pass_heads(int rank);
  int rank_that_blocks(int rank);

  const LoweredProgram& program_;
  Sends sends_;
  std::vector<RankRun> ranks_;
  std::vector<LinkRun> links_;
  std::deque<int> ready_;
  std::map<int, std::vector<int>> holders_;                // stages on more than one rank
  std::map<std::pair<int, int>, std::set<int>> meetings_;  // by stage and update: ranks that stand at the sum
};

}  // namespace penstock::plan::internal
