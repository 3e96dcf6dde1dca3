// Chooses devices for a job's ranks, or says what it waits for.
//
// Adjacent ranks exchange most, so they stay on one host as far as they can: the fullest fit on one host
// first (the host with the fewest free devices that suffice), else as few hosts as possible. Groups of ranks that
// exchange more than all others stay whole while any host has room for one.
//
// A job whose seats are kept goes back to them, and nobody else gets them.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core/fleet/fleet.h"

namespace penstock::coordinator {

struct PlacementRequest {
  std::string job{};  // for the reasons of jobs after it
  std::string kind = "cpu";
  int ranks = 1;
  int group = 1;          // that many ranks behind one another share out the experts of a block
  bool one_host = false;  // all of them, or none
  std::string one_host_reason = "parallel.p2p is one-sided";
};

struct Seat {
  std::string worker{};
  int device = 0;  // index of its device slot
};

struct Placement {
  std::vector<Seat> seats{};  // [rank]; empty: the job waits
  std::string reason{};       // "placed on ..." or "waits for ..."
  // Waiting only: the devices of the fleet would suffice once they are all free. Then younger jobs must not
  // take them; a job that needs more than the fleet has holds up nobody.
  bool fits_fleet = false;

  bool placed() const { return !seats.empty(); }
};

// By job that goes back there; [rank].
using KeptSeats = std::map<std::string, std::vector<Seat>>;

// Places jobs one after the other, with one look at the fleet for all of them: each finds what those before it have
// left. The fleet's devices must change by these placements only.
class Placer {
 public:
  explicit Placer(const Fleet& fleet, KeptSeats kept = {});
  Placement place(const PlacementRequest& request);
  // Whether the job has kept seats; they must be free when it is placed.
  bool keeps_seats(const std::string& job) const { return kept_.contains(job); }

 private:
  struct Host {
    std::string id{};
    std::vector<Seat> free{};  // by worker and device
    int usable = 0;            // free or busy, on workers that take work
  };
  // Why devices are not free: the first few, and how many there are.
  struct Obstacles {
    static constexpr size_t kShown = 4;
    std::vector<std::string> shown{};
    size_t count = 0;
    // `text` makes the text when it is shown.
    template <typename Text>
    void add(Text text) {
      if (count++ < kShown) shown.push_back(text());
    }
  };
  struct Supply {
    std::vector<Host> hosts{};
    int free = 0;
    int usable = 0;  // free or busy, on workers that take work
    Obstacles obstacles{};
  };

  Supply survey(const std::string& kind) const;
  static Host& best_of(std::vector<Host>& hosts, int ranks);
  static std::vector<Seat> choose(Supply& supply, const PlacementRequest& request);
  std::string placed_text(const std::vector<Seat>& seats, int group) const;
  std::string groups_text(const std::vector<Seat>& seats, int group) const;
  static bool suffices(const Supply& supply, const PlacementRequest& request);
  static bool fits_fleet(const Supply& supply, const PlacementRequest& request);
  static std::string waits_reason(Supply& supply, const PlacementRequest& request);

  const Fleet& fleet_;
  const KeptSeats kept_;
  std::map<std::pair<std::string, int>, std::string> kept_for_{};  // worker and device -> job
  std::map<std::string, Supply> supplies_{};                       // by kind
};

// One job alone.
Placement place(const Fleet& fleet, const PlacementRequest& request);

}  // namespace penstock::coordinator
