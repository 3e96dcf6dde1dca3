// What a rank publishes so that the others of its host can map its window: one line of text.
//
// Pure but for here(). InvalidArgument / DataLoss: a text that no endpoint of this version wrote.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace penstock::worker {

inline constexpr size_t kRegions =
    8;  // of a window: the first holds what peers write to find each other's state

// Where processes can map each other's memory: one kernel, one view of process ids.
struct Neighbourhood {
  std::string host;       // its name, for people
  std::string boot;       // differs between hosts, and between two lives of one
  std::string processes;  // the namespace of process ids
};

struct WindowAddress {
  struct Part {
    int fd = -1;
    int64_t bytes = 0;
  };
  Neighbourhood neighbourhood;
  pid_t pid = 0;
  uint64_t nonce = 0;  // stands in the window too: another process that got the pid does not have it
  std::vector<Part> regions;
};

StatusOr<Neighbourhood> here();

std::string to_string(const WindowAddress& address);
StatusOr<WindowAddress> parse_window_address(const std::string& text);

// FailedPrecondition names both ranks and hosts, and says what to do, unless the two can share memory.
Status check_neighbours(RankIndex mine, const Neighbourhood& here, RankIndex theirs,
                        const Neighbourhood& there);

}  // namespace penstock::worker
