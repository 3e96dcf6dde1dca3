#include "plan/diagnosis/internal/verdicts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/text.h"
#include "plan/diagnosis/statistics.h"

namespace penstock::plan::internal {
namespace {

constexpr double kUneven = 0.04;  // part of the highest level; what predictions are off by (should_move.h)
constexpr double kVariable = 0.08;
constexpr double kWaitedFor = 0.02;  // what mending saves at least
constexpr double kClearly = 1.05;    // of two stages one is as far above the mean as the other below
constexpr double kStandardErrors = 4;

// --- names.

std::string name_of_stages(const std::vector<int>& stages) {
  std::vector<std::string> names;
  for (const int stage : stages) names.push_back(fmt::format("{}", stage));
  return fmt::format("stage{} {}", stages.size() == 1 ? "" : "s", list_cut(names));
}

std::string name_of_works(const RankTimes& times, const std::vector<size_t>& works) {
  std::vector<int> stages;
  for (const size_t work : works)
    stages.insert(stages.end(), times.stages[work].begin(), times.stages[work].end());
  return name_of_stages(stages);
}

// What of a pipeline is even or not: its stages, or the sums of those on one rank.
const char* part_of(const RankTimes& times) {
  return times.hold_several() ? "rank" : "stage";
}

std::string name_of_worker(const SlowWorker& worker) {
  return fmt::format("{} in replica {}", name_of_stages(worker.stages), worker.replica);
}

// --- what mending saves.

double longest(const Grid& ms) {
  double most = 0;
  for (const auto& row : ms) most = std::max(most, *std::max_element(row.begin(), row.end()));
  return most;
}

double saved_without(const RankTimes& times, const std::vector<SlowRank>& slow) {
  Grid healed = times.ms;
  for (const SlowRank& rank : slow) healed[rank.work][rank.replica] /= rank.factor;
  return 1 - longest(healed) / longest(times.ms);
}

std::string saving_text(double gain) {
  return gain < kWaitedFor
             ? "no rank waits for it as things are"
             : fmt::format("without that the slowest rank would take {:.0f} % less", 100 * gain);
}

// --- verdicts.

SlowWorker worker_of(const RankTimes& times, const SlowRank& slow) {
  return {.stages = times.stages[slow.work],
          .replica = static_cast<int>(slow.replica),
          .rank = times.ranks.empty() ? -1 : times.ranks[slow.work][slow.replica],
          .factor = slow.factor};
}

std::string times_text(const RankTimes& times, const SlowRank& slow) {
  const double ms = times.ms[slow.work][slow.replica];
  return fmt::format("{:.4g} ms, not {:.4g}", ms, ms / slow.factor);
}

bool are_of_one_replica(const std::vector<SlowRank>& slow) {
  return std::all_of(slow.begin(), slow.end(),
                     [&](const SlowRank& rank) { return rank.replica == slow.front().replica; });
}

std::string slow_workers_text(const RankTimes& times, const std::vector<SlowRank>& slow,
                              const std::vector<SlowWorker>& workers) {
  if (slow.size() == 1)
    return fmt::format("the worker of {} takes {:.2f} times what its stage{} elsewhere ({})",
                       name_of_worker(workers[0]), slow[0].factor,
                       workers[0].stages.size() == 1 ? " takes" : "s take", times_text(times, slow[0]));
  std::vector<std::string> names;
  for (size_t i = 0; i < slow.size(); ++i)
    names.push_back(fmt::format("{} ({:.2f} times; {})", name_of_worker(workers[i]), slow[i].factor,
                                times_text(times, slow[i])));
  return fmt::format("{} workers take up to {:.2f} times what their stages take elsewhere: {}", slow.size(),
                     slow[0].factor, list_cut(names));
}

std::optional<Judgement> straggler_of(const RankTimes& times, const Effects& effects) {
  const std::vector<SlowRank>& slow = effects.slow;
  if (slow.empty()) return std::nullopt;
  Judgement verdict{.finding = Finding::Straggler};
  for (const SlowRank& rank : slow) verdict.workers.push_back(worker_of(times, rank));
  verdict.stages = verdict.workers[0].stages;
  verdict.replica = verdict.workers[0].replica;
  verdict.factor = slow[0].factor;
  verdict.gain = saved_without(times, slow);
  verdict.because = slow_workers_text(times, slow, verdict.workers) + "; " + saving_text(verdict.gain);
  verdict.advice = slow.size() == 1 ? "derate or drain that worker" : "derate or drain those workers";
  if (slow.size() > 1 && are_of_one_replica(slow))
    verdict.advice += ", after a look at what they share: a host, a link";
  return verdict;
}

std::optional<Judgement> slow_replica_of(const RankTimes& times, const Effects& effects) {
  Judgement verdict{.finding = Finding::SlowReplica};
  std::vector<SlowRank> slow;
  std::vector<std::string> names;
  for (size_t replica = 0; replica < times.replicas(); ++replica) {
    const double factor = effects.replica_factor[replica];
    if (factor <= 1) continue;
    names.push_back(fmt::format("replica {} takes {:.2f} times", replica, factor));
    for (size_t work = 0; work < times.works(); ++work) slow.push_back({work, replica, factor});
    if (factor <= verdict.factor) continue;
    verdict.factor = factor;
    verdict.replica = static_cast<int>(replica);
  }
  if (slow.empty()) return std::nullopt;
  std::stable_sort(slow.begin(), slow.end(),
                   [](const SlowRank& a, const SlowRank& b) { return a.factor > b.factor; });
  for (const SlowRank& rank : slow) verdict.workers.push_back(worker_of(times, rank));
  verdict.gain = saved_without(times, slow);
  verdict.because =
      fmt::format("{} what the others take, on each of {} {} ranks; {}", list_cut(names),
                  names.size() == 1 ? "its" : "their", times.works(), saving_text(verdict.gain));
  verdict.advice =
      "look at what its workers share, a host or a link, and at whether its microbatches are longer";
  return verdict;
}

// Works on either side of the mean by more than is even.
struct Sides {
  std::vector<size_t> heavy, light;
};

Sides sides_of(const std::vector<double>& levels) {
  const double middle = mean(levels);
  Sides sides;
  for (size_t work = 0; work < levels.size(); ++work) {
    if (levels[work] > middle * (1 + kUneven)) sides.heavy.push_back(work);
    if (levels[work] < middle * (1 - kUneven)) sides.light.push_back(work);
  }
  return sides;
}

std::string with_what_it_holds(const RankTimes& times, const std::vector<size_t>& works) {
  const std::string name = name_of_works(times, works);
  if (works.size() > 1 || times.stages[works[0]].size() > 1) return name;
  const int stage = times.stages[works[0]][0];
  if (stage + 1 == static_cast<int>(times.works())) return name + ", which holds the head,";
  return stage == 0 ? name + ", which holds the embedding," : name;
}

std::string advice_of(const RankTimes& times, const Sides& sides, bool is_heavy) {
  const std::vector<size_t>& named = is_heavy ? sides.heavy : sides.light;
  const std::vector<size_t>& rest = is_heavy ? sides.light : sides.heavy;
  const bool are_all = rest.empty() || rest.size() + named.size() == times.works();
  const std::string other = are_all ? "the others" : name_of_works(times, rest);
  return is_heavy
             ? fmt::format("move layers away from {} to {}", with_what_it_holds(times, sides.heavy), other)
             : fmt::format("move layers from {} to {}", other, name_of_works(times, sides.light));
}

std::optional<Judgement> imbalance_of(const RankTimes& times, const Effects& effects) {
  const std::vector<double>& levels = effects.level_ms;
  const auto [low, high] = std::minmax_element(levels.begin(), levels.end());
  const double middle = mean(levels);
  const auto heaviest = static_cast<size_t>(high - levels.begin());
  const auto lightest = static_cast<size_t>(low - levels.begin());
  Judgement verdict{.finding = Finding::Imbalance, .gain = 1 - middle / *high};
  if (verdict.gain <= kUneven || *high - middle <= kStandardErrors * effects.error_ms[heaviest])
    return std::nullopt;
  const bool is_heavy = middle - *low <= kClearly * (*high - middle);
  const size_t work = is_heavy ? heaviest : lightest;
  std::vector<double> others = levels;
  others.erase(others.begin() + static_cast<std::ptrdiff_t>(work));
  const double usual = median(others);
  verdict.stages = times.stages[work];
  verdict.factor = levels[work] / usual;
  const std::string than = others.size() == 1 ? "what the other takes" : "the median of the others";
  verdict.because = fmt::format(
      "{} take{} {:.2f} times {} ({:.4g} ms, not {:.4g}); spread evenly, the slowest {} would take {:.0f} % less",
      name_of_works(times, {work}), times.stages[work].size() > 1 ? "" : "s", verdict.factor, than,
      levels[work], usual, part_of(times), 100 * verdict.gain);
  verdict.advice = advice_of(times, sides_of(levels), is_heavy);
  return verdict;
}

// In step with its neighbours a rank waits for the longest of several microbatches: about a deviation beyond the mean.
std::optional<Judgement> variance_of(const Diagnosis& diagnosis) {
  const double spread = lower_median(diagnosis.spread);
  if (spread <= kVariable) return std::nullopt;
  const bool together = diagnosis.forward_backward_correlation >= kVariesTogether;
  return Judgement{
      .finding = Finding::DataVariance,
      .factor = spread,
      .gain = spread / (1 + spread),
      .because =
          fmt::format("microbatches of one stage vary by {:.0f} % (healthy: 2 to 3 %), forward and backward "
                      "{} (correlation {:.2f})",
                      100 * spread, together ? "together" : "apart", diagnosis.forward_backward_correlation),
      .advice = together
                    ? "pack sequences of mixed lengths into microbatches of equal cost; plan on medians only"
                    : "look at what else runs on the machines; plan on medians only"};
}

double most_between_workers(const RankTimes& times) {
  double most = 1;
  for (const auto& row : times.ms) {
    const auto [low, high] = std::minmax_element(row.begin(), row.end());
    most = std::max(most, *high / *low);
  }
  return most;
}

Judgement balanced(const RankTimes& times, const Effects& effects, const Diagnosis& diagnosis) {
  std::vector<std::string> parts;
  const std::vector<double>& levels = effects.level_ms;
  if (times.works() > 1)
    parts.push_back(fmt::format("the slowest {} takes {:.1f} % more than their mean", part_of(times),
                                100 * (*std::max_element(levels.begin(), levels.end()) / mean(levels) - 1)));
  if (times.replicas() > 1)
    parts.push_back(fmt::format("workers of a stage differ by at most {:.1f} %",
                                100 * (most_between_workers(times) - 1)));
  parts.push_back(fmt::format("microbatches vary by {:.1f} %", 100 * lower_median(diagnosis.spread)));
  return {.because = join(parts), .advice = "nothing to move"};
}

// --- notes.

// Of a replica that is faster than most, whose others are not slow for it.
std::string fast_replica_note(const RankTimes& times, const Effects& effects) {
  for (size_t replica = 0; replica < times.replicas(); ++replica) {
    std::vector<double> factors;
    size_t fast = 0;
    for (size_t work = 0; work < times.works(); ++work) {
      const double ms = times.ms[work][replica];
      factors.push_back(ms / effects.level_ms[work]);
      fast += is_longer(effects.level_ms[work], effects.error_ms[work], ms, times.error_ms[work][replica]);
    }
    if (fast == times.works())
      return fmt::format(
          "replica {} takes {:.2f} times what most take: its machines are faster, or its microbatches shorter",
          replica, median(factors));
  }
  return "";
}

// Stages of ranks that hold several may be uneven while the ranks are not.
std::string uneven_stages_note(const RankTimes& times, const Effects& effects, const Diagnosis& diagnosis) {
  if (!times.hold_several() || imbalance_of(times, effects)) return "";
  const auto [low, high] = std::minmax_element(diagnosis.stage_factor.begin(), diagnosis.stage_factor.end());
  if (mean(diagnosis.stage_factor) > *high * (1 - kUneven)) return "";
  return fmt::format(
      "stage {} takes {:.2f} times stage {}, and yet the ranks are even: no layers move for that, though stages of "
      "one size fill a pipeline sooner",
      high - diagnosis.stage_factor.begin(), *high / *low, low - diagnosis.stage_factor.begin());
}

std::string few_samples_note(const StageTrace& trace) {
  constexpr size_t kFew = 8;
  size_t least = kFew;
  for (const auto& stage : trace.cells) {
    for (const CellSamples& cell : stage) least = std::min(least, cell.forward_ms.size());
  }
  if (least >= kFew) return "";
  return fmt::format("of some stage {} microbatch{} measured: more tell more surely", least,
                     least == 1 ? " is" : "es are");
}

}  // namespace

std::vector<Judgement> verdicts_of(const RankTimes& times, const Effects& effects,
                                   const Diagnosis& diagnosis) {
  std::optional<Judgement> straggler = straggler_of(times, effects),
                           replica = slow_replica_of(times, effects);
  std::optional<Judgement> imbalance = imbalance_of(times, effects);
  if (!imbalance && straggler) straggler->advice += "; do not move layers";
  if (!imbalance && replica) replica->advice += "; do not move layers";
  std::vector<Judgement> verdicts;
  for (std::optional<Judgement>* found : {&straggler, &replica, &imbalance}) {
    if (*found) verdicts.push_back(**std::move(found));
  }
  if (std::optional<Judgement> variance = variance_of(diagnosis)) verdicts.push_back(*std::move(variance));
  std::stable_sort(verdicts.begin(), verdicts.end(),
                   [](const Judgement& a, const Judgement& b) { return a.gain > b.gain; });
  if (verdicts.empty() || verdicts[0].gain < kWaitedFor)
    verdicts.insert(verdicts.begin(), balanced(times, effects, diagnosis));
  return verdicts;
}

std::vector<std::string> notes_of(const StageTrace& trace, const RankTimes& times, const Effects& effects,
                                  const Diagnosis& diagnosis) {
  std::vector<std::string> notes;
  const Judgement* imbalance = diagnosis.of(Finding::Imbalance);
  if (imbalance != nullptr && imbalance->factor > 1 && times.replicas() == 1 && !trace.layers_tell_workers)
    notes.push_back(
        "with one replica a slow worker looks like a heavy stage; move the stage to another worker to tell");
  for (std::string note : {fast_replica_note(times, effects), uneven_stages_note(times, effects, diagnosis),
                           few_samples_note(trace)}) {
    if (!note.empty()) notes.push_back(std::move(note));
  }
  return notes;
}

}  // namespace penstock::plan::internal
