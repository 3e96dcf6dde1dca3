// Chooses devices for a job's ranks, or says what it waits for.
//
// Adjacent ranks exchange most, so they stay on one host as far as they can: the fullest fit on one host
// first (the host with the fewest free devices that suffice), else as few hosts as possible.
#pragma once

#include <string>
#include <vector>

#include "coordinator/core/fleet/fleet.h"

namespace penstock::coordinator {

struct PlacementRequest {
  std::string kind = "cpu";
  int ranks = 1;
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

Placement place(const Fleet& fleet, const PlacementRequest& request);

}  // namespace penstock::coordinator
