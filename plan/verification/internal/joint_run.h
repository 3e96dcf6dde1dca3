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

// Buffered: a send ends by itself. Rendezvous: it ends when the other side has posted the receive.
enum class Sends : uint8_t { Buffered, Rendezvous };

// For programs whose ranks have been checked one by one, and whose links agree.
class JointRun {
 public:
  JointRun(const LoweredProgram& program, Sends sends);  // `program` must outlive this

  bool reaches_the_end();
  // After a run that did not: who stands where.
  Violation describe();

 private:
  struct LinkRun {
    int sent = 0;
    int posted = 0;
    std::vector<int> sent_in_slot;    // [send slot]: number of the message that was sent from it last
    std::vector<int> posted_in_slot;  // [receive slot]: of the message that was posted into it last
  };

  const std::vector<Instruction>& instructions_of(int rank) const {
    return program_.ranks[rank].instructions;
  }
  const Instruction& current(int rank) const { return instructions_of(rank)[next_[rank]]; }
  LinkRun& link(int source, int target) { return links_.find({source, target})->second; }
  bool is_shared(const Instruction& instruction) const;
  bool may_run(int rank);
  void execute(int rank);
  int rank_that_blocks(int rank);

  const LoweredProgram& program_;
  Sends sends_;
  std::vector<size_t> next_;  // [rank]: instruction
  std::deque<int> ready_;
  std::map<std::pair<int, int>, LinkRun> links_;
  std::map<int, std::vector<int>> holders_;                // stages on more than one rank
  std::map<std::pair<int, int>, std::set<int>> meetings_;  // by stage and update: ranks that stand at the sum
};

}  // namespace penstock::plan::internal
