#include <fmt/format.h>

#include <optional>

#include "base/text.h"
#include "plan/schedule/families.h"
#include "plan/schedule/limits.h"
#include "plan/schedule/post_validation.h"
#include "plan/spec/internal/schedule_options.h"
#include "plan/spec/internal/sections.h"
#include "plan/spec/internal/split_reader.h"

namespace penstock::plan {
namespace {

using Names = std::vector<std::string>;

constexpr std::string_view kFilePrefix = "file:";

// An action of rank `rank`, or nothing and a problem.
std::optional<Action> read_action(const std::string& text, size_t rank, const YamlNode& node,
                                  const ParallelSpec& parallel, Problems& problems) {
  const std::string field = fmt::format("parallel.schedule.program[{}]", rank);
  const StatusOr<Action> action = parse_action(text);
  if (!action.ok()) {
    problems.add(node.line, field, message(action.status()));
    return std::nullopt;
  }
  const int stages = parallel.pipeline * parallel.stages_per_rank;
  const bool is_below = action->work.stage.value < stages;
  if (!is_below || (action->overlapped && action->overlapped->stage.value >= stages)) {
    problems.expected(node.line, field,
                      fmt::format("a stage below {} x {}", parallel.pipeline, parallel.stages_per_rank),
                      to_string(*action));
    return std::nullopt;
  }
  return *action;
}

// A text a rank: "0F0 0F1 0B0 0B1". The first problem of a rank ends its reading.
void read_program(const YamlNode& list, ParallelSpec& parallel, Problems& problems) {
  const std::string field = "parallel.schedule.program";
  const auto ranks = static_cast<size_t>(parallel.pipeline);
  if (!list.is(YamlNode::Kind::List) || list.items.size() != ranks) {
    return problems.expected(list.line, field, fmt::format("a list of {} texts, one a rank", ranks),
                             list.shown());
  }
  for (size_t rank = 0; rank < ranks; ++rank) {
    const YamlNode& node = list.items[rank];
    if (!node.is(YamlNode::Kind::Scalar)) {
      problems.expected(node.line, fmt::format("{}[{}]", field, rank), "a text such as \"0F0 0B0\"",
                        node.shown());
      continue;
    }
    std::vector<Action>& actions = parallel.program.emplace_back();
    for (const std::string& text : split_on(node.text, ' ')) {
      const std::optional<Action> action = read_action(text, rank, node, parallel, problems);
      if (!action) break;
      actions.push_back(*action);
    }
  }
}

// A name, or {file: PATH, program: [...]} or {name: NAME, program: [...]} as whoever submits writes it.
void read_schedule(Section& section, ParallelSpec& parallel, bool stages_read, Problems& problems) {
  const YamlNode::Entry* entry = section.entry("schedule");
  if (entry == nullptr || !entry->value.is(YamlNode::Kind::Map)) {
    section.text("schedule", parallel.schedule);
    return;
  }
  Section written = section.section("schedule");
  std::string path;
  const bool is_searched = entry->value.find("name") != nullptr;
  if (is_searched) {
    written.choice("name", parallel.schedule, searched_schedule_names());
  } else if (written.text("file", path, Need::Required)) {
    parallel.schedule = std::string(kFilePrefix) + path;
  }
  const YamlNode::Entry* program = written.entry("program", Need::Required);
  written.finish();
  if (program != nullptr && stages_read) read_program(program->value, parallel, problems);
}

// A file has no family to ask; whoever plans the job verifies its program.
void check_file(const Section& section, const ParallelSpec& parallel, size_t problems_before,
                Problems& problems) {
  if (!parallel.program.empty() || problems.count() != problems_before) return;
  problems.expected(section.line_of("schedule"), "parallel.schedule",
                    "the file's program beside its name, as `penstock submit` writes it",
                    shown_value(parallel.schedule));
}

void check_schedule(const Section& section, const ParallelSpec& parallel, bool stages_read,
                    Problems& problems) {
  const int line = section.line_of("schedule");
  if (parallel.schedule == "auto") {
    return problems.expected(
        line, "parallel.schedule",
        "a schedule's name, which `penstock submit` and `penstock up --run` plan and write in its place",
        "auto");
  }
  if (is_searched_schedule(parallel.schedule)) {
    const int stages = stages_of_searched(parallel.schedule);
    if (!stages_read || parallel.stages_per_rank == stages) return;
    return problems.expected(section.line_of("stages_per_rank"), "parallel.stages_per_rank",
                             fmt::format("{} for schedule {}", stages, parallel.schedule),
                             fmt::format("{}", parallel.stages_per_rank));
  }
  // One microbatch: the catalogue says at next to no cost whether the name and the stages go together.
  const ScheduleRequest request{parallel.schedule, stages_read ? parallel.pipeline : 2, 1,
                                stages_read ? parallel.stages_per_rank : 0};
  const Status shape = generate(request).status();
  if (shape.ok()) return;
  if (known_schedule(parallel.schedule) == Known::Built) {
    return problems.add(line, "parallel.schedule", message(shape));
  }
  Names names = schedule_names();
  for (const std::string& searched : searched_schedule_names()) names.push_back(searched);
  problems.expected(line, "parallel.schedule", alternatives(names), shown_value(parallel.schedule),
                    nearest_name(parallel.schedule, names));
}

// Whoever plans the job lowers the program itself; here what the name, the stages and the model say already.
void check_optimizer_step(const Section& section, const ModelSpec& model, const ParallelSpec& parallel,
                          Problems& problems) {
  if (parallel.optimizer_step != "post-validated") return;
  std::string reason;
  if (model.tie_word_embeddings) {
    reason = "two ranks of tied embeddings meet in every step";
  } else if (parallel.shard_optimizer) {
    reason = "with shard_optimizer a weight comes from the rank that has its moments in every step";
  } else if (parallel.stages_per_rank > 1) {
    reason = fmt::format("only one stage a rank can do without it and schedule {} has {}",
                         shown_value(parallel.schedule), parallel.stages_per_rank);
  } else if (const StatusOr<ComputeProgram> smallest =
                 generate({.name = parallel.schedule, .ranks = 2, .microbatches = 2});
             smallest.ok()) {
    reason = why_not_post_validated(*smallest);
  }
  if (reason.empty()) return;
  problems.expected(section.line_of("optimizer_step"), "parallel.optimizer_step",
                    "barrier, because " + reason, "post-validated");
}

void read_p2p(Section section, P2pMode& mode) {
  std::string name = "two-sided";
  section.choice("mode", name, Names{"two-sided", "one-sided"});
  mode = name == "one-sided" ? P2pMode::OneSided : P2pMode::TwoSided;
  section.later("min_ctas");
  section.later("max_ctas");
  section.finish();
}

// How many ranks stand side by side in a stage.
void read_degrees(Section& section, const ModelSpec& model, ParallelSpec& parallel, Problems& problems) {
  constexpr int64_t kMostRanksOfAJob = 16'384;
  section.integer("expert", parallel.expert, {1, 1024});
  section.integer("data", parallel.data, {1, 4096});
  section.flag("shard_optimizer", parallel.shard_optimizer);
  const int64_t experts = model.moe.num_experts;
  if (parallel.expert > 1 && experts % parallel.expert != 0) {
    problems.expected(section.line_of("expert"), section.field("expert"),
                      fmt::format("a divisor of model.moe.num_experts ({})", experts),
                      fmt::format("{}", parallel.expert));
  } else if (parallel.expert > 1 && experts == 0 && model.num_hidden_layers > 0) {
    problems.expected(section.line_of("expert"), section.field("expert"),
                      "1 for a model without experts; parallel.data puts pipelines side by side",
                      fmt::format("{}", parallel.expert));
  }
  const int64_t ranks = int64_t{parallel.pipeline} * parallel.expert * parallel.data;
  if (ranks > kMostRanksOfAJob) {
    problems.expected(section.line_of("pipeline"), section.field("pipeline"),
                      fmt::format("at most {} ranks (pipeline x expert x data)", kMostRanksOfAJob),
                      fmt::format("{}", ranks));
  }
}

}  // namespace

void read_parallel(Section section, const ModelSpec& model, ParallelSpec& parallel, Problems& problems) {
  const size_t before = problems.count();
  section.integer("pipeline", parallel.pipeline, {1, 4096});
  section.integer("stages_per_rank", parallel.stages_per_rank, {1, limits::kStagesPerRank});
  const bool stages_read = problems.count() == before;
  read_schedule(section, parallel, stages_read, problems);
  read_degrees(section, model, parallel, problems);
  read_p2p(section.section("p2p"), parallel.p2p);
  section.choice("optimizer_step", parallel.optimizer_step, Names{"barrier", "post-validated"},
                 Names{"overlapped", "local", "deferred"});
  read_schedule_options(section.section("schedule_options"), parallel, problems);
  section.integer("flush_every", parallel.flush_every, {1, limits::kUpdates});
  const YamlNode::Entry* split = section.entry("split");
  section.finish();

  if (parallel.schedule.starts_with(kFilePrefix)) {
    check_file(section, parallel, before, problems);
  } else {
    check_schedule(section, parallel, stages_read, problems);
  }
  if (problems.count() == before) check_optimizer_step(section, model, parallel, problems);
  if (!stages_read || model.num_hidden_layers == 0) return;
  const int stages = parallel.pipeline * parallel.stages_per_rank;
  const int64_t items = model.num_hidden_layers + 2;
  if (stages > items) {
    return problems.expected(
        section.line_of("pipeline"), "parallel.pipeline",
        fmt::format("at most {} stages (embedding, {} blocks, head)", items, items - 2),
        fmt::format("{} x {} = {}", parallel.pipeline, parallel.stages_per_rank, stages));
  }
  parallel.split = read_split(split, model, stages, problems);
}

}  // namespace penstock::plan
