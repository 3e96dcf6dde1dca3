// A rank's place in a group of ranks (plan/spec/rank_place.h) that are connected with each other. Ranks are numbered
// inside the group, in the order of their numbers in the job. Plain data; what a group does together stands in this
// room's other files.
#pragma once

#include "base/ids.h"
#include "worker/transport/endpoint.h"

namespace penstock::worker {

struct GroupMember {
  Endpoint* endpoint = nullptr;  // open between the group's ranks; null before that, and in a group of one
  RankIndex rank{0};
  int ranks = 1;
};

}  // namespace penstock::worker
