#include "coordinator/core/jobs/traces.h"

#include <iterator>
#include <utility>

namespace penstock::coordinator {

Traces::Added Traces::add(int64_t step, RankIndex rank, int ranks, TraceBytes bytes) {
  // Between the first step and the newest there is no place for one that comes late.
  const std::vector<int64_t> whole = complete();
  const bool full = whole.size() >= kTracedStepsKept;
  if (full && !steps_.contains(step) && step < whole[1]) return Added::Old;
  TracedStep& traced = steps_[step];
  if (traced.ranks.size() != static_cast<size_t>(ranks)) {  // a new one, or of the job as it was cut before
    traced = {.ranks = std::vector<TraceBytes>(static_cast<size_t>(ranks)),
              .missing = static_cast<size_t>(ranks)};
  }
  TraceBytes& place = traced.ranks.at(static_cast<size_t>(rank.value));
  if (place) return Added::Duplicate;
  traced.bytes += bytes->size();
  place = std::move(bytes);
  return --traced.missing == 0 ? Added::Complete : Added::Taken;
}

void Traces::restore(int64_t step, std::vector<TraceBytes> ranks) {
  TracedStep& traced = steps_[step];
  traced.ranks = std::move(ranks);
  for (const TraceBytes& bytes : traced.ranks) {
    if (bytes) traced.bytes += bytes->size();
    if (!bytes) ++traced.missing;
  }
}

std::vector<int64_t> Traces::trim(size_t most_bytes) {
  std::vector<int64_t> dropped;
  std::vector<int64_t> whole = complete();
  for (; whole.size() > kTracedStepsKept; whole.erase(whole.begin() + 1)) {
    dropped.push_back(whole[1]);
    steps_.erase(whole[1]);
  }
  for (auto step = steps_.begin(); steps_.size() - whole.size() > kTracedStepsAwaited;)
    step = step->second.missing > 0 ? steps_.erase(step) : std::next(step);
  while (bytes() > most_bytes && !steps_.empty()) {
    const auto victim = steps_.size() > 1 ? std::next(steps_.begin()) : steps_.begin();
    if (victim->second.missing == 0) dropped.push_back(victim->first);
    steps_.erase(victim);
  }
  return dropped;
}

void Traces::forget_incomplete() {
  std::erase_if(steps_, [](const auto& each) { return each.second.missing > 0; });
}

std::vector<int64_t> Traces::complete() const {
  std::vector<int64_t> steps;
  for (const auto& [step, traced] : steps_) {
    if (traced.missing == 0) steps.push_back(step);
  }
  return steps;
}

const TracedStep* Traces::find(int64_t step) const {
  const auto found = steps_.find(step);
  return found == steps_.end() || found->second.missing > 0 ? nullptr : &found->second;
}

size_t Traces::bytes() const {
  size_t all = 0;
  for (const auto& [step, traced] : steps_) all += traced.bytes;
  return all;
}

}  // namespace penstock::coordinator
