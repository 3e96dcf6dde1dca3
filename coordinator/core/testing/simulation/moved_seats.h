// The promise to a job that moves of its own accord: the devices that it had are nobody else's before it is placed again,
// whoever restarts; but where it must be placed as any other, since one of its workers has gone, changed or been drained.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "coordinator/core/state.h"

namespace penstock::coordinator::testing {

class MovedSeats {
 public:
  // After every event.
  void check(const State& state, TimePoint now);
  bool any() const { return !moves_.empty(); }
  // The coordinator has crashed; what it finds is `durable`. How many moves it must go on with.
  int crash(const Archive& durable, TimePoint now);

 private:
  struct Move {
    int64_t sequence = 0;  // of the job: a later one may have the name
    std::vector<RankPlacement> seats{};
    bool is_void = false;
    std::optional<TimePoint> found{};  // by a coordinator that has not seen all workers yet
  };

  void note_new(const State& state);
  static bool is_over(const State& state, const std::string& name, const Move& move);
  static bool is_void(const State& state, const Move& move, TimePoint now);
  static void check_seats(const State& state, const std::string& name, const Move& move);

  std::map<std::string, Move> moves_{};  // by job
};

}  // namespace penstock::coordinator::testing
