#include <fmt/format.h>

#include "base/text.h"
#include "plan/schedule/families.h"
#include "plan/schedule/limits.h"
#include "plan/spec/internal/sections.h"
#include "plan/spec/internal/split_reader.h"

namespace penstock::plan {
namespace {

using Names = std::vector<std::string>;

void check_schedule(const Section& section, const ParallelSpec& parallel, bool stages_read,
                    Problems& problems) {
  const int line = section.line_of("schedule");
  // One microbatch, then the smallest program: the catalogue says at next to no cost whether the name and the
  // stages go together, and whether workers can train with it.
  const ScheduleRequest request{parallel.schedule, stages_read ? parallel.pipeline : 2, 1,
                                stages_read ? parallel.stages_per_rank : 0};
  const Status shape = generate(request).status();
  const StatusOr<ComputeProgram> smallest =
      generate({.name = parallel.schedule, .ranks = 2, .microbatches = 2});
  const std::string obstacle = smallest.ok() ? why_not_trainable(*smallest) : "";
  if (shape.ok() && obstacle.empty()) return;
  const Known known = known_schedule(parallel.schedule);
  if (known == Known::Built && obstacle.empty()) {
    return problems.add(line, "parallel.schedule", message(shape));
  }
  const Names names = trainable_schedule_names();
  const std::string expectation = alternatives(names);
  const std::string found = shown_value(parallel.schedule);
  if (known != Known::Unknown || found.starts_with("file:")) {
    return problems.not_built_yet(line, "parallel.schedule",
                                  fmt::format("expected {}, found {}{}", expectation, found,
                                              obstacle.empty() ? "" : ", which " + obstacle));
  }
  problems.expected(line, "parallel.schedule", expectation, found, nearest_name(parallel.schedule, names));
}

void read_p2p(Section section) {
  section.only("mode", "two-sided", Names{"one-sided"});
  section.later("min_ctas");
  section.later("max_ctas");
  section.finish();
}

}  // namespace

void read_parallel(Section section, const ModelSpec& model, ParallelSpec& parallel, Problems& problems) {
  const size_t before = problems.count();
  section.integer("pipeline", parallel.pipeline, {1, 4096});
  section.integer("stages_per_rank", parallel.stages_per_rank, {1, limits::kStagesPerRank});
  const bool stages_read = problems.count() == before;
  section.text("schedule", parallel.schedule);
  for (const char* key : {"expert", "data"}) section.only(key, 1, {1, 65536});
  read_p2p(section.section("p2p"));
  section.only("optimizer_step", "barrier", Names{"overlapped", "local", "deferred"});
  section.later("schedule_options");
  section.later("flush_every");
  const YamlNode::Entry* split = section.entry("split");
  section.finish();

  check_schedule(section, parallel, stages_read, problems);
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
