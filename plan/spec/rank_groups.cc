#include "plan/spec/rank_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "plan/spec/rank_place.h"

namespace penstock::plan {
namespace {

// `count` ranks of the job from `first` on, `apart` from each other.
std::vector<RankIndex> ranks_from(RankIndex first, int count, int apart) {
  std::vector<RankIndex> ranks;
  for (int i = 0; i < count; ++i) ranks.push_back(RankIndex(first.value + i * apart));
  return ranks;
}

// The whole of `text` as a number below `bound`.
std::optional<int> index_below(std::string_view text, int bound) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value >= bound)
    return std::nullopt;
  return value;
}

std::optional<RankGroup> find_group(const ParallelSpec& parallel, const std::string& name) {
  if (name == "pipeline" && parallel.pipelines() == 1) return pipeline_group(parallel, 0);
  const size_t blank = name.find(' ');
  if (blank == std::string::npos) return std::nullopt;
  const std::string_view kind = std::string_view(name).substr(0, blank);
  const std::string_view which = std::string_view(name).substr(blank + 1);
  if (kind == "pipeline") {
    const auto pipeline = index_below(which, parallel.pipelines());
    return pipeline ? std::optional(pipeline_group(parallel, *pipeline)) : std::nullopt;
  }
  const size_t dot = which.find('.');
  const auto place = index_below(which.substr(0, dot), parallel.pipeline);
  if (!place) return std::nullopt;
  const RankIndex pipeline_rank(*place);
  if (kind == "data" && dot == std::string_view::npos) return data_group(parallel, pipeline_rank);
  if (dot == std::string_view::npos) return std::nullopt;
  const bool is_model = kind == "expert-model";
  const auto of = index_below(which.substr(dot + 1), is_model ? parallel.data : parallel.expert);
  if (!of || (!is_model && kind != "expert-data")) return std::nullopt;
  return is_model ? expert_model_group(parallel, pipeline_rank, *of)
                  : expert_data_group(parallel, pipeline_rank, *of);
}

}  // namespace

RankIndex RankGroup::member(RankIndex rank) const {
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  return found == ranks.end() ? RankIndex() : RankIndex(found - ranks.begin());
}

RankGroup pipeline_group(const ParallelSpec& parallel, int pipeline) {
  return {fmt::format("pipeline {}", pipeline),
          ranks_from(rank_at(parallel, RankIndex(0), pipeline), parallel.pipeline, parallel.pipelines())};
}

RankGroup data_group(const ParallelSpec& parallel, RankIndex pipeline_rank) {
  return {fmt::format("data {}", pipeline_rank.value),
          ranks_from(rank_at(parallel, pipeline_rank, 0), parallel.pipelines(), 1)};
}

RankGroup expert_model_group(const ParallelSpec& parallel, RankIndex pipeline_rank, int data_rank) {
  return {fmt::format("expert-model {}.{}", pipeline_rank.value, data_rank),
          ranks_from(rank_at(parallel, pipeline_rank, data_rank * parallel.expert), parallel.expert, 1)};
}

RankGroup expert_data_group(const ParallelSpec& parallel, RankIndex pipeline_rank, int expert_rank) {
  return {fmt::format("expert-data {}.{}", pipeline_rank.value, expert_rank),
          ranks_from(rank_at(parallel, pipeline_rank, expert_rank), parallel.data, parallel.expert)};
}

StatusOr<RankGroup> group_named(const ParallelSpec& parallel, const std::string& name) {
  if (std::optional<RankGroup> group = find_group(parallel, name)) return *std::move(group);
  return invalid_argument(
      "communicator: expected pipeline N, data P, expert-model P.D or expert-data P.E of {} x {} x {} ranks (pipeline x "
      "expert x data), found \"{}\"",
      parallel.pipeline, parallel.expert, parallel.data, name);
}

}  // namespace penstock::plan
