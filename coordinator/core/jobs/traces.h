// The traced steps of one job that are kept: the first one, which is warm and early, and the newest.
//
// A step is shown when the traces of all of its ranks are in. Their bytes are those of StepTrace messages, kept as they
// are: nobody here reads them.
// Limits: kTracedStepsKept steps that are shown, kTracedStepsAwaited that wait for a rank, and `most_bytes` for all of
// them; beyond, the older ones go.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"

namespace penstock::coordinator {

inline constexpr size_t kTracedStepsKept = 4;
inline constexpr size_t kTracedStepsAwaited = 64;  // ranks may be apart by as many

using TraceBytes = std::shared_ptr<const std::string>;

struct TracedStep {
  std::vector<TraceBytes> ranks{};  // [rank]; null: not in yet
  size_t missing = 0;
  size_t bytes = 0;
};

class Traces {
 public:
  enum class Added : uint8_t {
    Taken,
    Complete,   // the last one of its step
    Duplicate,  // that rank's was in already
    Old,        // newer steps have taken the room
  };
  // `rank` is one of `ranks`. A step that is kept of another number of ranks begins anew.
  Added add(int64_t step, RankIndex rank, int ranks, TraceBytes bytes);
  // A whole step, as it was stored.
  void restore(int64_t step, std::vector<TraceBytes> ranks);

  // Drops what is beyond the limits; the steps that went and were complete.
  std::vector<int64_t> trim(size_t most_bytes);
  // Drops the steps that wait for a rank: of another attempt none comes any more.
  void forget_incomplete();
  // Drops everything.
  void clear() { steps_.clear(); }

  std::vector<int64_t> complete() const;  // ascending
  // Null: not complete, or not kept.
  const TracedStep* find(int64_t step) const;
  size_t bytes() const;

 private:
  std::map<int64_t, TracedStep> steps_{};
};

}  // namespace penstock::coordinator
