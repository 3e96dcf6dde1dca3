#include "client/present/job_shape.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "plan/render/human.h"
#include "plan/spec/parameter_count.h"
#include "plan/spec/parameters.h"
#include "plan/spec/rank_groups.h"
#include "plan/spec/rank_place.h"

namespace penstock::client {
namespace {

using plan::Table;
constexpr auto kRight = Table::Align::Right;
constexpr int kPipelinesShown = 16;

std::vector<int> numbers_of(const std::vector<RankIndex>& ranks) {
  std::vector<int> numbers;
  for (const RankIndex rank : ranks) numbers.push_back(static_cast<int>(rank.value));
  return numbers;
}

// [rank]; empty before the stages are placed.
std::vector<int64_t> exact_parameters(const v1::Job& job, const plan::JobSpec& spec) {
  const std::vector<plan::ParameterCount> stages = plan::parameters_of_stages(spec);
  std::vector<int64_t> ranks(static_cast<size_t>(spec.ranks()));
  for (const v1::StageStatus& stage : job.stages()) {
    const bool is_of_file = stage.stage() >= 0 && stage.stage() < spec.stages() && stage.rank() >= 0 &&
                            stage.rank() < spec.ranks();
    if (!is_of_file) return {};  // of the job as it was cut before
    ranks[static_cast<size_t>(stage.rank())] += stages[static_cast<size_t>(stage.stage())].total();
  }
  return job.stages().empty() ? std::vector<int64_t>() : ranks;
}

std::string exact_text(const std::vector<int64_t>& ranks) {
  if (ranks.empty()) return "";
  const auto [least, most] = std::minmax_element(ranks.begin(), ranks.end());
  return *least == *most ? fmt::format(", exactly {}", *least)
                         : fmt::format(", exactly {} to {}", *least, *most);
}

// What a rank holds of one kind.
struct Use {
  std::string kind;
  std::optional<int64_t> predicted;
  std::optional<int64_t> measured;
  bool operator==(const Use&) const = default;
};

// With the sum at the end, whose measured side is known when that of every kind is.
std::vector<Use> uses_of(const v1::RankMemory& rank) {
  std::vector<Use> uses;
  Use sum{"all", 0, 0};
  for (const v1::MemoryUse& use : rank.kinds()) {
    Use& added = uses.emplace_back(Use{use.kind(), std::nullopt, std::nullopt});
    if (use.has_predicted_bytes()) added.predicted = use.predicted_bytes();
    if (use.has_peak_bytes()) added.measured = use.peak_bytes();
    *sum.predicted += use.predicted_bytes();
    if (!added.measured) sum.measured.reset();
    if (sum.measured) *sum.measured += use.peak_bytes();
  }
  if (!uses.empty()) uses.push_back(std::move(sum));
  return uses;
}

std::string bytes_text(const std::optional<int64_t>& bytes) {
  return bytes ? plan::human_bytes(*bytes) : "";
}

// "+1.50KiB (+0.4%)", "0B": measured against predicted.
std::string difference_text(const Use& use) {
  if (!use.predicted || !use.measured) return "";
  const int64_t difference = *use.measured - *use.predicted;
  if (difference == 0) return "0B";
  const std::string sign = difference < 0 ? "-" : "+";
  const std::string text = sign + plan::human_bytes(difference < 0 ? -difference : difference);
  if (*use.predicted == 0) return text;
  const double percent = 100.0 * static_cast<double>(difference) / static_cast<double>(*use.predicted);
  return fmt::format("{} ({}{}%)", text, difference > 0 ? "+" : "", plan::bounded_decimal(percent, 1));
}

}  // namespace

std::string ranks_text(const plan::ParallelSpec& parallel) {
  const int ranks = parallel.pipeline * parallel.pipelines();
  if (parallel.pipelines() == 1) return fmt::format("{}", ranks);
  return fmt::format("{}: pipeline {} x expert {} x data {}", ranks, parallel.pipeline, parallel.expert,
                     parallel.data);
}

std::string ranges_text(std::span<const int> numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const int first = numbers[i];
    while (i + 1 < numbers.size() && numbers[i + 1] == numbers[i] + 1) ++i;
    text += (text.empty() ? "" : ",") + fmt::format("{}", first);
    if (numbers[i] > first) text += fmt::format("..{}", numbers[i]);
  }
  return text;
}

Table pipeline_table(const plan::JobSpec& spec) {
  Table table({{"PIPELINE", kRight}, {"EXPERT", kRight}, {"DATA", kRight}, {"EXPERTS"}, {"RANKS"}});
  const plan::ParallelSpec& parallel = spec.parallel;
  const int shown = std::min(parallel.pipelines(), kPipelinesShown);
  for (int pipeline = 0; pipeline < shown; ++pipeline) {
    const plan::RankGroup group = plan::pipeline_group(parallel, pipeline);
    const plan::RankPlace place = plan::place_of_rank(parallel, group.ranks.front());
    const plan::ExpertRange experts = plan::experts_at(spec, place);
    const std::string held = spec.model.moe.num_experts == 0 ? ""
                             : experts.first + 1 == experts.end
                                 ? fmt::format("{}", experts.first)
                                 : fmt::format("{}..{}", experts.first, experts.end - 1);
    table.add_row({fmt::format("{}", pipeline), fmt::format("{}", place.expert_rank),
                   fmt::format("{}", place.data_rank), held, ranges_text(numbers_of(group.ranks))});
  }
  if (const int more = parallel.pipelines() - shown; more > 0)
    table.add_row({fmt::format("{} more", more), "", "", "", ""});
  return table;
}

std::string parameters_text(const v1::Job& job, const plan::JobSpec& spec) {
  const plan::ParameterCount model = plan::count_parameters(spec.model);
  const auto count = [](int64_t parameters) { return plan::human_count(static_cast<double>(parameters)); };
  const std::string formula = model.experts == 0 ? fmt::format("all / {}", spec.parallel.pipeline)
                                                 : fmt::format("(dense + experts / {}) / {}",
                                                               spec.parallel.expert, spec.parallel.pipeline);
  return fmt::format("{}{}; a rank about {}, {}{}", count(model.dense),
                     model.experts == 0 ? "" : fmt::format(" dense and {} of experts", count(model.experts)),
                     plan::human_count(plan::rough_parameters_of_rank(spec)), formula,
                     exact_text(exact_parameters(job, spec)));
}

Json parameters_json(const v1::Job& job, const plan::JobSpec& spec) {
  const plan::ParameterCount model = plan::count_parameters(spec.model);
  Json json;
  json["dense"] = model.dense;
  json["experts"] = model.experts;
  json["rank_roughly"] = plan::rough_parameters_of_rank(spec);
  json["ranks"] = Json::array();
  for (const int64_t count : exact_parameters(job, spec)) json["ranks"].push_back(count);
  return json;
}

Table memory_table(const v1::Job& job) {
  Table table({{"RANKS"}, {"KIND"}, {"PREDICTED", kRight}, {"MEASURED", kRight}, {"DIFFERENCE", kRight}});
  std::vector<std::pair<std::vector<Use>, std::vector<int>>> alike;  // in the order of their first ranks
  for (const v1::RankMemory& rank : job.memory()) {
    std::vector<Use> uses = uses_of(rank);
    auto found =
        std::find_if(alike.begin(), alike.end(), [&](const auto& each) { return each.first == uses; });
    if (found == alike.end()) found = alike.insert(alike.end(), {std::move(uses), {}});
    found->second.push_back(rank.rank());
  }
  for (const auto& [uses, ranks] : alike) {
    for (const Use& use : uses) {
      table.add_row({ranges_text(ranks), use.kind, bytes_text(use.predicted), bytes_text(use.measured),
                     difference_text(use)});
    }
  }
  return table;
}

Json memory_json(const v1::Job& job) {
  Json ranks = Json::array();
  for (const v1::RankMemory& rank : job.memory()) {
    Json kinds = Json::array();
    for (const v1::MemoryUse& use : rank.kinds()) {
      Json each;
      each["kind"] = use.kind();
      if (use.has_predicted_bytes()) each["predicted_bytes"] = use.predicted_bytes();
      if (use.has_peak_bytes()) each["peak_bytes"] = use.peak_bytes();
      kinds.push_back(std::move(each));
    }
    Json json;
    json["rank"] = rank.rank();
    json["kinds"] = std::move(kinds);
    ranks.push_back(std::move(json));
  }
  return ranks;
}

}  // namespace penstock::client
