#include "client/present/suspects.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "client/present/expert_loads.h"

namespace penstock::client {
namespace {

using plan::Finding;

// As of an imbalance and of a straggler (plan/diagnosis/diagnose.h).
constexpr double kMoreRows = 1.05;
constexpr double kSlow = 1.10;
constexpr size_t kShown = 3;

std::string ranks_text(const std::vector<int>& ranks) {
  std::vector<std::string> texts;
  for (const int rank : ranks) texts.push_back(fmt::format("{}", rank));
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", list_cut(texts));
}

// Draining takes a whole worker out of service.
std::string healthy_text(const Suspect& suspect) {
  if (suspect.healthy_ranks.empty()) return "";
  return fmt::format(", though it runs {} as well, which {} not slow", ranks_text(suspect.healthy_ranks),
                     suspect.healthy_ranks.size() == 1 ? "is" : "are");
}

std::string straggler_text(const Suspect& suspect) {
  const std::string who = fmt::format("worker {}, with {}", suspect.worker, ranks_text(suspect.ranks));
  if (is_explained_by_rows(suspect))
    return fmt::format(
        "{}: its experts get {:.2f} times the rows of the mean rank: that is the router's doing", who,
        suspect.load);
  return fmt::format(
      "{}: `penstock drain {}` keeps new ranks away from it{}; to plan with it, derate it to {:.2f} of the others' speed",
      who, suspect.worker, healthy_text(suspect), 1 / suspect.factor);
}

std::string replica_text(const Suspect& suspect) {
  return fmt::format("{} run{} on worker {}{}", ranks_text(suspect.ranks),
                     suspect.ranks.size() == 1 ? "s" : "", suspect.worker, healthy_text(suspect));
}

std::map<int, std::string> workers_by_rank(const v1::MeasurementsResponse& measurements) {
  std::map<int, std::string> workers;
  for (const v1::StageStatus& stage : measurements.stages()) {
    if (!stage.worker().empty()) workers[stage.rank()] = stage.worker();
  }
  return workers;
}

// The most of its stages: what is uneven in one alone makes the whole rank late.
double load_of(const plan::SlowWorker& slow, const plan::JobSpec& job,
               const v1::MeasurementsResponse& measurements) {
  double most = 0;
  for (const int stage : slow.stages) {
    if (!measurements.attempts().empty())
      most = std::max(most, load_of_rank(*measurements.attempts().rbegin(), job, stage, slow.rank));
  }
  return most;
}

}  // namespace

std::vector<Suspect> suspects_of(const plan::Diagnosis& diagnosis, const plan::JobSpec& job,
                                 const v1::MeasurementsResponse& measurements) {
  const std::map<int, std::string> workers = workers_by_rank(measurements);
  std::set<int> slow;
  std::vector<Suspect> suspects;
  for (const plan::Judgement& verdict : diagnosis.verdicts) {
    for (const plan::SlowWorker& each : verdict.workers) {
      const auto worker = workers.find(each.rank);
      if (worker == workers.end()) continue;
      slow.insert(each.rank);
      const auto is_same = [&](const Suspect& suspect) {
        return suspect.finding == verdict.finding && suspect.worker == worker->second;
      };
      const auto known = std::find_if(suspects.begin(), suspects.end(), is_same);
      if (known != suspects.end()) {
        known->ranks.push_back(each.rank);
        continue;
      }
      suspects.push_back({.finding = verdict.finding,
                          .worker = worker->second,
                          .ranks = {each.rank},
                          .healthy_ranks = {},
                          .factor = each.factor,
                          .load = load_of(each, job, measurements)});
    }
  }
  for (Suspect& suspect : suspects) {
    for (const auto& [rank, worker] : workers) {
      if (worker == suspect.worker && !slow.contains(rank)) suspect.healthy_ranks.push_back(rank);
    }
  }
  return suspects;
}

bool is_explained_by_rows(const Suspect& suspect) {
  return suspect.load > kMoreRows && suspect.factor / suspect.load < kSlow;
}

std::string suspects_text(const std::vector<Suspect>& suspects, Finding finding) {
  std::string text;
  size_t count = 0;
  for (const Suspect& suspect : suspects) {
    if (suspect.finding != finding || ++count > kShown) continue;
    text += (finding == Finding::Straggler ? straggler_text(suspect) : replica_text(suspect)) + "\n";
  }
  if (count > kShown) text += fmt::format("and {} more workers\n", count - kShown);
  return text;
}

}  // namespace penstock::client
