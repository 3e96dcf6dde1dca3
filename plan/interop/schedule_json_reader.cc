#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/text.h"
#include "plan/interop/schedule_json.h"
#include "plan/schedule/limits.h"

namespace penstock::plan {
namespace {

using Json = nlohmann::json;

constexpr size_t kTextBytesMax = size_t{64} << 20;

// A value as an error message shows it: short whatever it is.
std::string shown(const Json& value) {
  if (value.is_structured()) return fmt::format("{} of {}", value.type_name(), value.size());
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  constexpr size_t kShown = 40;
  return text.size() <= kShown ? text : text.substr(0, kShown) + "...";
}

StatusOr<int> integer(const Json& value, const std::string& where, int64_t lowest, int64_t highest) {
  const bool fits = value.is_number_unsigned() ? value.get<uint64_t>() <= static_cast<uint64_t>(highest) &&
                                                     static_cast<int64_t>(value.get<uint64_t>()) >= lowest
                    : value.is_number_integer()
                        ? value.get<int64_t>() >= lowest && value.get<int64_t>() <= highest
                        : false;
  if (!fits) {
    return invalid_argument("{}: expected an integer from {} to {}, found {}", where, lowest, highest,
                            shown(value));
  }
  return static_cast<int>(value.get<int64_t>());
}

StatusOr<int> field(const Json& json, const std::string& name, int64_t lowest, int64_t highest) {
  const auto found = json.find(name);
  if (found == json.end()) return invalid_argument("{}: missing", name);
  return integer(*found, name, lowest, highest);
}

StatusOr<int> field_or(const Json& json, const std::string& name, int fallback, int64_t lowest,
                       int64_t highest) {
  return json.contains(name) ? field(json, name, lowest, highest) : fallback;
}

StatusOr<const Json*> list_field(const Json& json, const std::string& name, size_t size, const char* unit) {
  const auto found = json.find(name);
  if (found == json.end()) return invalid_argument("{}: missing", name);
  if (!found->is_array() || found->size() != size) {
    return invalid_argument("{}: expected a list of {} entries, one a {}, found {}", name, size, unit,
                            shown(*found));
  }
  return &*found;
}

StatusOr<std::vector<RankIndex>> ranks_of_stage(const Json& entry, const std::string& where, int ranks) {
  if (!entry.is_array()) {
    PENSTOCK_ASSIGN_OR_RETURN(const int rank, integer(entry, where, 0, ranks - 1));
    return std::vector<RankIndex>{RankIndex(rank)};
  }
  if (entry.empty() || entry.size() > 2) {
    return invalid_argument("{}: expected a rank, or a list of one or two ranks, found {}", where,
                            shown(entry));
  }
  std::vector<RankIndex> list;
  for (const Json& value : entry) {
    PENSTOCK_ASSIGN_OR_RETURN(const int rank, integer(value, where, 0, ranks - 1));
    list.emplace_back(rank);
  }
  if (list.size() == 2 && list[0] == list[1]) {
    return invalid_argument("{}: expected two different ranks, found {} twice", where, list[0].value);
  }
  return list;
}

Status read_placement(const Json& json, ComputeProgram& program) {
  const int64_t stages = int64_t{program.ranks} * program.stages_per_rank;
  if (stages > limits::kStages) {
    return invalid_argument("ranks x stages_per_rank: expected at most {} stages, found {}", limits::kStages,
                            stages);
  }
  PENSTOCK_ASSIGN_OR_RETURN(const Json* placement,
                            list_field(json, "placement", static_cast<size_t>(stages), "stage"));
  program.placement.reserve(placement->size());
  for (size_t stage = 0; stage < placement->size(); ++stage) {
    PENSTOCK_ASSIGN_OR_RETURN(
        auto ranks, ranks_of_stage((*placement)[stage], fmt::format("placement[{}]", stage), program.ranks));
    program.placement.push_back(std::move(ranks));
  }
  return ok_status();
}

Status check_work(const Work& work, const ComputeProgram& program, const std::string& where) {
  if (work.stage.value >= program.stages()) {
    return invalid_argument("{}: {}: expected a stage below {}", where, to_string(work), program.stages());
  }
  if (work.microbatch.value >= program.total_microbatches()) {
    return invalid_argument("{}: {}: expected a microbatch below {}", where, to_string(work),
                            program.total_microbatches());
  }
  return ok_status();
}

StatusOr<Action> read_action(const Json& value, const ComputeProgram& program, const std::string& where) {
  if (!value.is_string())
    return invalid_argument("{}: expected text such as \"0F1\", found {}", where, shown(value));
  StatusOr<Action> action = parse_action(value.get_ref<const std::string&>());
  if (!action.ok()) return with_context(action.status(), where);
  PENSTOCK_RETURN_IF_ERROR(check_work(action->work, program, where));
  if (action->overlapped) PENSTOCK_RETURN_IF_ERROR(check_work(*action->overlapped, program, where));
  return action;
}

Status read_actions(const Json& json, ComputeProgram& program) {
  PENSTOCK_ASSIGN_OR_RETURN(const Json* lists,
                            list_field(json, "actions", static_cast<size_t>(program.ranks), "rank"));
  int64_t count = 0;
  for (size_t rank = 0; rank < lists->size(); ++rank) {
    const Json& list = (*lists)[rank];
    if (!list.is_array()) {
      return invalid_argument("actions[{}]: expected a list of actions, found {}", rank, shown(list));
    }
    count += static_cast<int64_t>(list.size());
    if (count > limits::kActions) {
      return invalid_argument("actions: expected at most {}, found more by rank {}", limits::kActions, rank);
    }
    std::vector<Action> row;
    row.reserve(list.size());
    for (size_t position = 0; position < list.size(); ++position) {
      PENSTOCK_ASSIGN_OR_RETURN(
          const Action action,
          read_action(list[position], program, fmt::format("actions[{}][{}]", rank, position)));
      row.push_back(action);
    }
    program.actions.push_back(std::move(row));
  }
  return ok_status();
}

// Where stages have two replicas, the rank that runs a microbatch's first action says which of them it uses;
// a program that changes its mind later is refused by verify() as a broken ownership.
std::vector<int> replicas_from_actions(const ComputeProgram& program) {
  if (!program.has_replicas()) return {};
  std::vector<int> replica_of(static_cast<size_t>(program.total_microbatches()), -1);
  const auto note = [&](const Work& work, RankIndex rank) {
    int& replica = replica_of[static_cast<size_t>(work.microbatch.value)];
    const auto& ranks = program.placement[static_cast<size_t>(work.stage.value)];
    const auto found = std::find(ranks.begin(), ranks.end(), rank);
    if (replica < 0 && ranks.size() > 1 && found != ranks.end())
      replica = static_cast<int>(found - ranks.begin());
  };
  for (size_t rank = 0; rank < program.actions.size(); ++rank) {
    for (const Action& action : program.actions[rank]) {
      note(action.work, RankIndex(static_cast<int64_t>(rank)));
      if (action.overlapped) note(*action.overlapped, RankIndex(static_cast<int64_t>(rank)));
    }
  }
  std::replace(replica_of.begin(), replica_of.end(), -1, 0);
  return replica_of;
}

StatusOr<Json> parse_object(const std::string& text) {
  if (text.size() > kTextBytesMax) {
    return invalid_argument("expected at most {} bytes, found {}", kTextBytesMax, text.size());
  }
  // JSON keeps the last of two equal keys in silence; a file that says two things is refused instead.
  std::set<std::string> seen;
  std::string twice;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::key && depth == 1 && !seen.insert(parsed.get<std::string>()).second) {
      twice = parsed.get<std::string>();
    }
    return true;
  };
  try {
    Json json = Json::parse(text, watch);
    if (!twice.empty()) return invalid_argument("{}: given twice", shown(Json(twice)));
    if (!json.is_object()) return invalid_argument("expected a JSON object, found {}", shown(json));
    return json;
  } catch (const Json::exception& failure) {
    return invalid_argument("not JSON: {}", failure.what());
  }
}

StatusOr<ComputeProgram> read_program(const std::string& text) {
  PENSTOCK_ASSIGN_OR_RETURN(const Json json, parse_object(text));
  ComputeProgram program;
  PENSTOCK_ASSIGN_OR_RETURN(program.ranks, field(json, "ranks", 1, limits::kRanks));
  PENSTOCK_ASSIGN_OR_RETURN(program.microbatches, field(json, "microbatches", 1, limits::kMicrobatches));
  PENSTOCK_ASSIGN_OR_RETURN(program.stages_per_rank,
                            field(json, "stages_per_rank", 1, limits::kStagesPerRank));
  PENSTOCK_ASSIGN_OR_RETURN(program.updates, field_or(json, "updates", 1, 1, limits::kUpdates));
  if (int64_t{program.microbatches} * program.updates > limits::kMicrobatchesInAll) {
    return invalid_argument("microbatches x updates: expected at most {}, found {}",
                            limits::kMicrobatchesInAll, int64_t{program.microbatches} * program.updates);
  }
  if (const auto found = json.find("forward_only"); found != json.end()) {
    if (!found->is_boolean())
      return invalid_argument("forward_only: expected true or false, found {}", shown(*found));
    program.forward_only = found->get<bool>();
  }
  PENSTOCK_RETURN_IF_ERROR(read_placement(json, program));
  PENSTOCK_RETURN_IF_ERROR(read_actions(json, program));
  program.replica_of = replicas_from_actions(program);
  return program;
}

}  // namespace

StatusOr<ComputeProgram> program_from_json(const std::string& text, const std::string& path) {
  StatusOr<ComputeProgram> program = read_program(text);
  if (!program.ok()) return with_context(program.status(), path);
  program->schedule = "file:" + path;
  return program;
}

}  // namespace penstock::plan
