// What must hold after every event, whatever has happened. What does not is a failure of the running test.
#pragma once

#include <map>
#include <set>
#include <string>
#include <tuple>

#include "coordinator/core/state.h"
#include "coordinator/core/testing/simulation/moved_seats.h"
#include "coordinator/core/testing/simulation/planner.h"
#include "coordinator/core/testing/simulation/scene.h"
#include "coordinator/core/views.h"

namespace penstock::coordinator::testing {

// What happened in one history, or in several: a world in which nothing happens proves nothing.
struct Tally {
  int succeeded = 0;               // jobs
  int succeeded_side_by_side = 0;  // with several pipelines
  int succeeded_from_another = 0;  // that began with another job's checkpoint
  int assignments = 0;             // of ranks
  int from_checkpoints = 0;        // of their job
  int begun_with_another = 0;      // with another job's
  int placed_beside_cordons = 0;   // attempts, while a worker was drained
  int recuts = 0;                  // jobs resumed with another number of ranks
  int traces_seen = 0;             // whole ones, after every event
  int moves = 0;                   // of layers, there or back
  int moves_undone = 0;
  int moves_interrupted = 0;  // by a crash
  int crashes = 0;
};

class Promises {
 public:
  // What is looked at outlives this.
  struct World {
    const State& state;
    const Archive& durable;
    const SimulatedPlanner& planner;
    const Scene& scene;
  };
  Promises(World world, Tally& tally) : world_(world), tally_(tally) {}

  // After every event.
  void check();
  // After an event about `job`, which was as `before`: if its layers moved, that is nobody's failure.
  void check_move(const std::string& job, const Job& before);
  bool is_a_job_moving() const { return moved_seats_.any(); }
  // When all jobs have ended.
  void check_rest() const;
  // The coordinator has crashed: of what is left a job has one of its files, and knows the one before.
  void check_crash();

  // Before the command is obeyed.
  void check_assignment(const Assignment& assignment);
  void check_commit(const CommitCheckpoint& command) const;
  void note_acknowledged(const std::string& job) { acknowledged_.insert(job); }
  void note_retired(const std::string& job);

 private:
  struct End {
    JobState state = JobState::Queued;
    std::string digest{};
    int64_t sequence = 0;
  };

  const Job* find_job(const std::string& name) const;
  void check_jobs();
  void note_end(const JobView& view, int64_t sequence);
  void check_devices() const;
  void check_bounds() const;
  void check_bounds_of(const Job& job) const;
  void check_weights() const;
  void check_recovery() const;
  void check_traces();
  void check_moves() const;
  void check_cordons();
  void check_start(const Assignment& assignment, const StoredJob& stored);

  World world_;
  Tally& tally_;
  MovedSeats moved_seats_{};
  std::set<std::string> acknowledged_;
  std::map<std::string, End> ended_;
  std::set<std::tuple<std::string, int64_t, int64_t, int>> started_;  // job, its sequence, attempt, rank
  std::map<std::tuple<std::string, int64_t, int64_t>, std::string> files_;  // by job, its sequence, attempt
  int64_t newest_placement_ = 0;  // order of the attempts that check_cordons has seen
};

}  // namespace penstock::coordinator::testing
