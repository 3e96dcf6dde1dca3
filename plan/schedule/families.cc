#include "plan/schedule/families.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "plan/schedule/families/family.h"
#include "plan/schedule/limits.h"

namespace penstock::plan {
namespace {

enum class Stages : uint8_t { One, Two, Any };  // stages_per_rank
enum class Ranks : uint8_t { Any, Even };
enum class Sums : uint8_t { InMicrobatchOrder, InAnOrderOfItsOwn };
enum class Steps : uint8_t { Repeated, Own };     // several updates: one after the other, or the family's
enum class Backwards : uint8_t { Whole, Split };  // for the size of the program
enum class Rule : uint8_t { Any, P, TwoP, TwoPLess1, PLess1 };  // from which m on the published figures hold

struct Family {
  const char* name;
  ComputeProgram (*generate)(const ScheduleRequest&);
  Stages stages = Stages::One;
  Rule microbatches = Rule::Any;
  Rule made_for = Rule::Any;  // its lists exist from this m on: fewer microbatches keep their place in them
  Backwards backwards = Backwards::Whole;
  Ranks ranks = Ranks::Any;
  Steps steps = Steps::Repeated;
  Sums sums = Sums::InMicrobatchOrder;
};

constexpr std::array kFamilies = {
    Family{.name = "naive", .generate = families::naive},
    Family{.name = "gpipe", .generate = families::gpipe},
    Family{.name = "gpipe-lifo", .generate = families::gpipe_lifo, .sums = Sums::InAnOrderOfItsOwn},
    Family{.name = "1f1b", .generate = families::one_f_one_b},
    Family{.name = "interleaved-1f1b",
           .generate = families::interleaved_1f1b,
           .stages = Stages::Any,
           .microbatches = Rule::P},
    Family{.name = "looped-bfs",
           .generate = families::looped_bfs,
           .stages = Stages::Any,
           .microbatches = Rule::P},
    Family{.name = "looped-bfs-lifo",
           .generate = families::looped_bfs_lifo,
           .stages = Stages::Any,
           .microbatches = Rule::P,
           .sums = Sums::InAnOrderOfItsOwn},
    Family{.name = "1f1b-v",
           .generate = families::one_f_one_b_v,
           .stages = Stages::Two,
           .microbatches = Rule::TwoP},
    Family{
        .name = "zb-h1", .generate = families::zb_h1, .microbatches = Rule::P, .backwards = Backwards::Split},
    Family{.name = "zb-h2",
           .generate = families::zb_h2,
           .microbatches = Rule::TwoPLess1,
           .backwards = Backwards::Split},
    Family{.name = "zb-v",
           .generate = families::zb_v,
           .stages = Stages::Two,
           .microbatches = Rule::TwoPLess1,
           .made_for = Rule::P,
           .backwards = Backwards::Split},
    Family{.name = "v-half",
           .generate = families::v_half,
           .stages = Stages::Two,
           .microbatches = Rule::TwoP,
           .backwards = Backwards::Split},
    Family{.name = "v-min",
           .generate = families::v_min,
           .stages = Stages::Two,
           .microbatches = Rule::TwoP,
           .backwards = Backwards::Split},
    Family{.name = "dualpipe",
           .generate = families::dualpipe,
           .microbatches = Rule::TwoP,
           .made_for = Rule::TwoPLess1,
           .backwards = Backwards::Split,
           .ranks = Ranks::Even,
           .sums = Sums::InAnOrderOfItsOwn},
    Family{.name = "dualpipe-v",
           .generate = families::dualpipe_v,
           .stages = Stages::Two,
           .microbatches = Rule::TwoP,
           .made_for = Rule::TwoPLess1,
           .backwards = Backwards::Split},
    Family{.name = "chimera",
           .generate = families::chimera,
           .microbatches = Rule::P,
           .ranks = Ranks::Even,
           .sums = Sums::InAnOrderOfItsOwn},
    Family{.name = "pipedream", .generate = families::pipedream, .steps = Steps::Own},
    Family{.name = "pipedream-2bw",
           .generate = families::pipedream_2bw,
           .microbatches = Rule::PLess1,
           .steps = Steps::Own},
};

// Searched, not written down: plan/generation.
constexpr std::array kSearchedNames = {"zb-auto", "v-auto"};

// --- the rule about microbatches

int64_t least_microbatches(Rule rule, int64_t ranks) {
  switch (rule) {
    case Rule::Any:
      return 1;
    case Rule::P:
      return ranks;
    case Rule::TwoP:
      return 2 * ranks;
    case Rule::TwoPLess1:
      return 2 * ranks - 1;
    case Rule::PLess1:
      return std::max<int64_t>(ranks - 1, 1);
  }
  return 1;
}

const char* text_of(Rule rule) {
  switch (rule) {
    case Rule::Any:
      return "1";
    case Rule::P:
      return "P";
    case Rule::TwoP:
      return "2P";
    case Rule::TwoPLess1:
      return "2P-1";
    case Rule::PLess1:
      return "P-1";
  }
  return "";
}

std::string note_on(const Family& family, const ScheduleRequest& request) {
  const int64_t least = least_microbatches(family.microbatches, request.ranks);
  std::string note;
  if (request.microbatches < least) {
    note = fmt::format(
        "{} has its published figures from m = {} = {} on; with m = {} its ranks idle for a larger part",
        family.name, text_of(family.microbatches), least, request.microbatches);
  }
  if (family.ranks == Ranks::Even && request.microbatches % 2 != 0) {
    note += fmt::format("{}an odd m: one direction runs one microbatch more than the other",
                        note.empty() ? "" : "; ");
  }
  return note;
}

// --- checks

Status check_range(const char* field, int value, int maximum) {
  if (value >= 1 && value <= maximum) return ok_status();
  return invalid_argument("{}: expected 1 to {}, found {}", field, maximum, value);
}

Status check_stages(const Family& family, int stages_per_rank) {
  const int own = family.stages == Stages::Two ? 2 : 1;
  if (family.stages == Stages::Any || stages_per_rank == own) return ok_status();
  const char* advice = own == 1 ? "'interleaved-1f1b' takes any" : "its stages go down the ranks and back";
  return invalid_argument("stages_per_rank: schedule '{}' takes {}, found {}; {}", family.name, own,
                          stages_per_rank, advice);
}

Status check_extra_forwards(const Family& family, const ScheduleRequest& request) {
  const auto& extra = request.extra_warm_up_forwards;
  if (extra.empty()) return ok_status();
  if (family.generate != families::one_f_one_b_v) {
    return invalid_argument("extra_warm_up_forwards: schedule '{}' takes none; '1f1b-v' does", family.name);
  }
  if (extra.size() != 1 && extra.size() != static_cast<size_t>(request.ranks)) {
    return invalid_argument("extra_warm_up_forwards: expected 1 entry or {}, one per rank, found {}",
                            request.ranks, extra.size());
  }
  for (const int forwards : extra) {
    if (forwards >= 0 && forwards <= limits::kExtraForwards) continue;
    return invalid_argument("extra_warm_up_forwards: expected 0 to {}, found {}", limits::kExtraForwards,
                            forwards);
  }
  return ok_status();
}

Status check_size(const Family& family, const ScheduleRequest& request) {
  const int64_t made_for = least_microbatches(family.made_for, request.ranks);
  const int64_t microbatches = std::max<int64_t>(request.microbatches, made_for);
  const int64_t in_all = int64_t{request.microbatches} * request.updates;
  if (in_all > limits::kMicrobatchesInAll) {
    return invalid_argument("updates: {} updates x {} microbatches are {} microbatches in all, at most {}",
                            request.updates, request.microbatches, in_all, limits::kMicrobatchesInAll);
  }
  const int64_t stages = int64_t{request.ranks} * request.stages_per_rank;
  if (stages > limits::kStages) {
    return invalid_argument("stages_per_rank: {} ranks x {} stages_per_rank are {} stages, at most {}",
                            request.ranks, request.stages_per_rank, stages, limits::kStages);
  }
  const int parts = family.backwards == Backwards::Split ? 3 : 2;
  const double actions = static_cast<double>(stages) * static_cast<double>(microbatches) * parts *
                         static_cast<double>(request.updates);
  if (actions <= static_cast<double>(limits::kActions)) return ok_status();
  return invalid_argument(
      "microbatches: {} ranks x {} microbatches x {} stages_per_rank x {} updates are {:.0f} actions, at most "
      "{}",
      request.ranks, microbatches, request.stages_per_rank, request.updates, actions, limits::kActions);
}

Status check(const Family& family, const ScheduleRequest& request) {
  PENSTOCK_RETURN_IF_ERROR(check_range("ranks", request.ranks, limits::kRanks));
  PENSTOCK_RETURN_IF_ERROR(check_range("microbatches", request.microbatches, limits::kMicrobatches));
  PENSTOCK_RETURN_IF_ERROR(check_range("stages_per_rank", request.stages_per_rank, limits::kStagesPerRank));
  PENSTOCK_RETURN_IF_ERROR(check_range("updates", request.updates, limits::kUpdates));
  PENSTOCK_RETURN_IF_ERROR(check_stages(family, request.stages_per_rank));
  if (family.ranks == Ranks::Even && request.ranks % 2 != 0) {
    return invalid_argument(
        "ranks: schedule '{}' takes an even number, found {}; its two directions would meet on the middle "
        "rank",
        family.name, request.ranks);
  }
  PENSTOCK_RETURN_IF_ERROR(check_extra_forwards(family, request));
  return check_size(family, request);
}

Status unknown_schedule(const std::string& name) {
  std::vector<std::string> known = schedule_names();
  if (known_schedule(name) == Known::Designed) {
    return invalid_argument(
        "schedule: '{}' is searched for, with costs and a memory limit, not generated from a shape; generated "
        "are {}",
        name, join(known));
  }
  std::vector<std::string> all = known;
  all.insert(all.end(), kSearchedNames.begin(), kSearchedNames.end());
  const std::string nearest = nearest_name(name, all);
  return invalid_argument("schedule: '{}' is unknown{}; built are {}", name,
                          nearest.empty() ? "" : ", did you mean '" + nearest + "'?", join(known));
}

// --- shapes

ComputeProgram empty_program(const ScheduleRequest& request, std::vector<std::vector<RankIndex>> placement) {
  ComputeProgram program;
  program.schedule = request.name;
  program.ranks = request.ranks;
  program.microbatches = request.microbatches;
  program.stages_per_rank = request.stages_per_rank;
  program.placement = std::move(placement);
  program.actions.resize(request.ranks);
  for (auto& actions : program.actions)
    actions.reserve(size_t{2} * request.microbatches * request.stages_per_rank);
  return program;
}

// One step after the other: a synchronous program ends every step with its weights updated.
void repeat_update(ComputeProgram& program, int updates) {
  program.updates = updates;
  for (auto& actions : program.actions) {
    const size_t of_one = actions.size();
    actions.reserve(of_one * updates);
    for (int update = 1; update < updates; ++update) {
      for (size_t at = 0; at < of_one; ++at) {
        Action action = actions[at];
        const int offset = update * program.microbatches;
        action.work.microbatch.value += offset;
        if (action.overlapped) action.overlapped->microbatch.value += offset;
        actions.push_back(action);
      }
    }
  }
  const std::vector<int> routes = program.replica_of;
  for (int update = 1; update < updates; ++update)
    program.replica_of.insert(program.replica_of.end(), routes.begin(), routes.end());
}

}  // namespace

ComputeProgram families::loop_program(const ScheduleRequest& request) {
  return empty_program(request, loop_placement(request.ranks, request.stages_per_rank));
}

ComputeProgram families::v_program(const ScheduleRequest& request) {
  return empty_program(request, v_placement(request.ranks));
}

ComputeProgram families::two_way_program(const ScheduleRequest& request) {
  ComputeProgram program = empty_program(request, {});
  for (int stage = 0; stage < request.ranks; ++stage)
    program.placement.push_back({RankIndex(stage), RankIndex(request.ranks - 1 - stage)});
  program.replica_of.assign(request.microbatches, 0);
  std::fill(program.replica_of.begin() + (request.microbatches + 1) / 2, program.replica_of.end(), 1);
  return program;
}

StatusOr<ComputeProgram> generate(const ScheduleRequest& request) {
  for (const Family& family : kFamilies) {
    if (request.name != family.name) continue;
    ScheduleRequest filled = request;
    if (filled.stages_per_rank == 0) filled.stages_per_rank = family.stages == Stages::One ? 1 : 2;
    PENSTOCK_RETURN_IF_ERROR(check(family, filled));
    ComputeProgram program = family.generate(filled);
    if (family.steps == Steps::Repeated && filled.updates > 1) repeat_update(program, filled.updates);
    program.note = note_on(family, filled);
    return program;
  }
  return unknown_schedule(request.name);
}

Known known_schedule(const std::string& name) {
  const auto is_named = [&](const Family& family) { return family.name == name; };
  if (std::any_of(kFamilies.begin(), kFamilies.end(), is_named)) return Known::Built;
  return is_searched_schedule(name) ? Known::Designed : Known::Unknown;
}

std::vector<std::string> searched_schedule_names() {
  return {kSearchedNames.begin(), kSearchedNames.end()};
}

bool is_searched_schedule(const std::string& name) {
  return std::find(kSearchedNames.begin(), kSearchedNames.end(), name) != kSearchedNames.end();
}

int stages_of_searched(const std::string& name) {
  return name == "v-auto" ? 2 : 1;
}

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const Family& family : kFamilies) names.emplace_back(family.name);
  return names;
}

bool adds_in_an_order_of_its_own(const std::string& name) {
  return std::any_of(kFamilies.begin(), kFamilies.end(), [&](const Family& family) {
    return family.name == name && family.sums == Sums::InAnOrderOfItsOwn;
  });
}

}  // namespace penstock::plan
