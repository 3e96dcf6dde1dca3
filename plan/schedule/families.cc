#include "plan/schedule/families.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "plan/schedule/families/family.h"
#include "plan/schedule/limits.h"

namespace penstock::plan {
namespace {

struct Family {
  const char* name;
  bool one_stage_per_rank;
  ComputeProgram (*generate)(const ScheduleRequest&);
};

constexpr std::array kFamilies = {
    Family{"naive", true, families::naive},
    Family{"gpipe", true, families::gpipe},
    Family{"1f1b", true, families::one_f_one_b},
    Family{"interleaved-1f1b", false, families::interleaved_1f1b},
};

// Of the catalogue, and not built yet.
constexpr std::array kLaterNames = {
    "gpipe-lifo", "looped-bfs", "looped-bfs-lifo", "1f1b-v",        "zb-h1",  "zb-h2",
    "zb-auto",    "zb-v",       "v-half",          "v-min",         "v-auto", "dualpipe",
    "dualpipe-v", "chimera",    "pipedream",       "pipedream-2bw",
};

Status check_range(const char* field, int value, int maximum) {
  if (value >= 1 && value <= maximum) return ok_status();
  return invalid_argument("{}: expected 1 to {}, found {}", field, maximum, value);
}

Status check_shape(const ScheduleRequest& request) {
  PENSTOCK_RETURN_IF_ERROR(check_range("ranks", request.ranks, limits::kRanks));
  PENSTOCK_RETURN_IF_ERROR(check_range("microbatches", request.microbatches, limits::kMicrobatches));
  PENSTOCK_RETURN_IF_ERROR(check_range("stages_per_rank", request.stages_per_rank, limits::kStagesPerRank));
  const int64_t actions = int64_t{2} * request.ranks * request.microbatches * request.stages_per_rank;
  if (actions <= limits::kActions) return ok_status();
  return invalid_argument(
      "microbatches: {} ranks x {} microbatches x {} stages_per_rank are {} actions, at most {}",
      request.ranks, request.microbatches, request.stages_per_rank, actions, limits::kActions);
}

Status unknown_schedule(const std::string& name) {
  std::vector<std::string> known = schedule_names();
  if (known_schedule(name) == Known::Designed) {
    return invalid_argument("schedule: '{}' is not built yet; built are {}", name, join(known));
  }
  std::vector<std::string> all = known;
  all.insert(all.end(), kLaterNames.begin(), kLaterNames.end());
  const std::string nearest = nearest_name(name, all);
  return invalid_argument("schedule: '{}' is unknown{}; built are {}", name,
                          nearest.empty() ? "" : ", did you mean '" + nearest + "'?", join(known));
}

}  // namespace

ComputeProgram families::loop_program(const ScheduleRequest& request) {
  ComputeProgram program;
  program.schedule = request.name;
  program.ranks = request.ranks;
  program.microbatches = request.microbatches;
  program.stages_per_rank = request.stages_per_rank;
  program.placement = loop_placement(request.ranks, request.stages_per_rank);
  program.actions.resize(request.ranks);
  for (auto& actions : program.actions) {
    actions.reserve(size_t{2} * request.microbatches * request.stages_per_rank);
  }
  return program;
}

StatusOr<ComputeProgram> generate(const ScheduleRequest& request) {
  for (const Family& family : kFamilies) {
    if (request.name != family.name) continue;
    PENSTOCK_RETURN_IF_ERROR(check_shape(request));
    if (family.one_stage_per_rank && request.stages_per_rank != 1) {
      return invalid_argument(
          "stages_per_rank: schedule '{}' takes 1, found {}; 'interleaved-1f1b' takes any", family.name,
          request.stages_per_rank);
    }
    return family.generate(request);
  }
  return unknown_schedule(request.name);
}

Known known_schedule(const std::string& name) {
  const auto is_named = [&](const Family& family) { return family.name == name; };
  if (std::any_of(kFamilies.begin(), kFamilies.end(), is_named)) return Known::Built;
  const bool designed = std::find(kLaterNames.begin(), kLaterNames.end(), name) != kLaterNames.end();
  return designed ? Known::Designed : Known::Unknown;
}

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const Family& family : kFamilies) names.emplace_back(family.name);
  return names;
}

}  // namespace penstock::plan
