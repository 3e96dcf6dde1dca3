// What the core has done beside it, and the disk that this happens on: a planner that takes its time, stumbles, and moves
// layers; checkpoints that are committed, damaged and removed; folders of weights.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "coordinator/core/command.h"
#include "coordinator/core/event.h"
#include "coordinator/core/testing/simulation/scene.h"

namespace penstock::coordinator::testing {

class SimulatedPlanner {
 public:
  struct Answer {
    std::string job;
    Event event;
  };

  explicit SimulatedPlanner(Scene& scene) : scene_(scene) {}

  // Each waits for an answer.
  void take(const PlanAttempt& command);
  void take(const ConsiderSplit& command);
  void take(const CommitWeights& command) { weights_.push_back(command); }
  void take(const CommitCheckpoint& command);
  void take(const LookForCheckpoint& command) { looking_.push_back(command); }
  // At once.
  void take(const DiscardWeights& command);
  void take(const RemoveDrafts& command) { drafts_removed_.insert(command.place.marker); }

  // Answers one of those that wait, in order among its like; nothing when there is none.
  std::optional<Answer> answer_one();
  // Its coordinator has crashed: nobody waits. Commits that have begun may come to their ends.
  void crash();

  size_t splits_to_consider() const { return splits_.size(); }
  bool has_weights_of(const std::string& job) const { return whole_.contains(weights_folder(job)); }

 private:
  static std::string weights_folder(const std::string& job) { return "/state/jobs/" + job + "/weights"; }

  Answer plan();
  Answer consider_split();
  Answer commit_weights();
  Answer commit_checkpoint();
  Answer look_for_checkpoint();
  void find_checkpoint(const PlanAttempt& wanted, AttemptPlanned& planned);
  void put_checkpoint(const CommitCheckpoint& command);

  Scene& scene_;
  std::deque<PlanAttempt> attempts_;
  std::deque<ConsiderSplit> splits_;
  std::deque<CommitWeights> weights_;
  std::deque<CommitCheckpoint> checkpoints_;
  std::deque<LookForCheckpoint> looking_;
  // The disk.
  std::map<std::pair<std::string, std::string>, std::set<int64_t>> steps_kept_;  // by directory and job
  std::set<std::string> drafts_removed_;  // attempts, by the markers of their folders
  std::set<std::string> whole_;           // folders of weights that are committed
};

}  // namespace penstock::coordinator::testing
