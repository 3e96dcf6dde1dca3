#include "plan/spec/auto_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>

#include "base/text.h"
#include "plan/schedule/families.h"
#include "plan/spec/internal/value_in_text.h"
#include "plan/spec/internal/yaml_tree.h"
#include "plan/spec/split_source.h"

namespace penstock::plan {
namespace {

constexpr size_t kSizesMax = 16;
constexpr int64_t kBatchMax = 1 << 20;
constexpr KeyInSection kScheduleOptions = {"parallel", "schedule_options"};
constexpr KeyInSection kStagesPerRank = {"parallel", "stages_per_rank"};

const YamlNode::Entry* find(const YamlNode& root, const KeyInSection& place) {
  const YamlNode::Entry* section = root.find(place.section);
  return section == nullptr ? nullptr : section->value.find(place.key);
}

bool says_auto(const YamlNode::Entry* entry) {
  return entry != nullptr && entry->value.is(YamlNode::Kind::Scalar) && entry->value.text == "auto";
}

// What is no whole number within the bounds is told by parse_job_spec.
int64_t number_of(const YamlNode& root, const KeyInSection& place) {
  const YamlNode::Entry* entry = find(root, place);
  if (entry == nullptr || !entry->value.is(YamlNode::Kind::Scalar)) return 1;
  const std::string& text = entry->value.text;
  int64_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_read = failure == std::errc() && end == text.data() + text.size();
  return is_read && number >= 1 && number <= kBatchMax ? number : 1;
}

// At most kSizesMax of them, ascending, those whose ratios are the most even; the least and the largest among them.
std::vector<int64_t> evenly_spaced(const std::vector<int64_t>& sizes) {
  if (sizes.size() <= kSizesMax) return sizes;
  std::vector<int64_t> kept;
  for (size_t i = 0; i < kSizesMax; ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(kSizesMax - 1);
    const double wanted = share * std::log(static_cast<double>(sizes.back()));
    const int64_t size = *std::min_element(sizes.begin(), sizes.end(), [&](int64_t a, int64_t b) {
      return std::abs(std::log(static_cast<double>(a)) - wanted) <
             std::abs(std::log(static_cast<double>(b)) - wanted);
    });
    if (kept.empty() || kept.back() != size) kept.push_back(size);
  }
  return kept;
}

std::vector<int64_t> microbatch_sizes(const YamlNode& root) {
  const int64_t pipelines = number_of(root, {"parallel", "expert"}) * number_of(root, {"parallel", "data"});
  const int64_t sequences = std::max<int64_t>(1, number_of(root, {"train", "global_batch_size"}) / pipelines);
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size <= sequences; ++size) {
    if (sequences % size == 0) sizes.push_back(size);
  }
  return evenly_spaced(sizes);
}

StatusOr<std::string> written(const std::string& yaml, const KeyInSection& place, const std::string& value) {
  PENSTOCK_ASSIGN_OR_RETURN(std::optional<std::string> text, with_value(yaml, place, value));
  if (text) return *std::move(text);
  return failed_precondition("{}: expected a section in which {} can be written; write it there: {}: {}",
                             place.section, place.key, place.key, value);
}

StatusOr<bool> has_schedule_options(const std::string& yaml) {
  Problems problems;
  const YamlNode root = parse_yaml(yaml, problems);
  PENSTOCK_RETURN_IF_ERROR(problems.status());
  return find(root, kScheduleOptions) != nullptr;
}

// Options of a search are of no use to a schedule that needs none.
StatusOr<std::string> with_schedule(std::string text, const std::string& schedule) {
  PENSTOCK_ASSIGN_OR_RETURN(text, written(text, {"parallel", "schedule"}, schedule));
  PENSTOCK_ASSIGN_OR_RETURN(const bool has_options, has_schedule_options(text));
  if (!has_options || is_searched_schedule(schedule)) return text;
  return written(text, kScheduleOptions, "{}");
}

// Nothing is checked.
StatusOr<std::string> with_numbers(std::string text, const PlannedFields& fields) {
  if (fields.schedule) {
    PENSTOCK_ASSIGN_OR_RETURN(text, with_schedule(std::move(text), *fields.schedule));
  }
  if (fields.stages_per_rank) {
    PENSTOCK_ASSIGN_OR_RETURN(text,
                              written(text, kStagesPerRank, fmt::format("{}", *fields.stages_per_rank)));
  }
  if (fields.microbatch_size) {
    PENSTOCK_ASSIGN_OR_RETURN(
        text, written(text, {"train", "microbatch_size"}, fmt::format("{}", *fields.microbatch_size)));
  }
  return text;
}

// For a schedule that is still to be planned.
StatusOr<std::string> stand_in(const YamlNode& root) {
  const int64_t stages = number_of(root, kStagesPerRank);
  if (find(root, kScheduleOptions) == nullptr) return stages > 1 ? "interleaved-1f1b" : "1f1b";
  if (stages <= 2) return stages == 2 ? "v-auto" : "zb-auto";
  return invalid_argument(
      "line {}: parallel.stages_per_rank: expected 1 or 2, of which a schedule can be searched for, found {}; without "
      "parallel.schedule_options nothing is searched for, and `schedule: auto` takes {} too",
      find(root, kStagesPerRank)->line, stages, stages);
}

// They stand behind all sections, in lines of their own.
std::string with_notes(std::string text, const std::vector<std::string>& notes) {
  if (!text.empty() && text.back() != '\n') text += '\n';
  for (std::string note : notes) {
    std::replace_if(
        note.begin(), note.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
    text += "# " + note + "\n";
  }
  return text;
}

bool says(const JobSpec& job, const PlannedFields& fields) {
  return (!fields.schedule || job.parallel.schedule == *fields.schedule) &&
         (!fields.stages_per_rank || job.parallel.stages_per_rank == *fields.stages_per_rank) &&
         (!fields.microbatch_size || job.train.microbatch_size == *fields.microbatch_size) &&
         (!fields.split || job.parallel.split == *fields.split) &&
         (fields.recompute.empty() || job.recompute == fields.recompute);
}

std::string words_of(const PlannedFields& fields) {
  std::vector<std::string> words;
  if (fields.schedule) words.push_back("schedule: " + *fields.schedule);
  if (fields.stages_per_rank) words.push_back(fmt::format("stages_per_rank: {}", *fields.stages_per_rank));
  if (fields.microbatch_size) words.push_back(fmt::format("microbatch_size: {}", *fields.microbatch_size));
  if (fields.split) words.push_back("split: " + to_text(*fields.split));
  if (!fields.recompute.empty())
    words.push_back(fmt::format("recompute: [{}]", fmt::join(fields.recompute, ", ")));
  return join(words);
}

Status not_in_place(const PlannedFields& fields) {
  return failed_precondition("the job file cannot be written in place; write it there: {}", words_of(fields));
}

bool is_same(const YamlNode& a, const YamlNode& b);

// Whether both have the same entries, in any order, but for those that `is_free`.
bool have_same_entries(const YamlNode& a, const YamlNode& b,
                       const std::function<bool(const std::string&)>& is_free) {
  const auto is_in = [&](const YamlNode& other) {
    return [&](const YamlNode::Entry& entry) {
      if (is_free(entry.key)) return true;
      const YamlNode::Entry* found = other.find(entry.key);
      return found != nullptr && is_same(entry.value, found->value);
    };
  };
  return std::all_of(a.entries.begin(), a.entries.end(), is_in(b)) &&
         std::all_of(b.entries.begin(), b.entries.end(), is_in(a));
}

bool is_same(const YamlNode& a, const YamlNode& b) {
  return a.kind == b.kind && a.text == b.text &&
         std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), is_same) &&
         have_same_entries(a, b, [](const std::string&) { return false; });
}

// Whether a text was written well: everything but what was planned is as it was.
bool says_the_same_beside(const std::string& before, const std::string& after, const PlannedFields& fields) {
  Problems problems;
  const YamlNode a = parse_yaml(before, problems), b = parse_yaml(after, problems);
  if (!problems.status().ok()) return false;
  const auto is_root_free = [&](const std::string& key) {
    return key == "parallel" || key == "train" || (key == "recompute" && !fields.recompute.empty());
  };
  const auto is_parallel_free = [&](const std::string& key) {
    return (key == "schedule" && fields.schedule) || (key == "schedule_options" && fields.schedule) ||
           (key == "stages_per_rank" && fields.stages_per_rank) || (key == "split" && fields.split);
  };
  const auto is_train_free = [&](const std::string& key) {
    return key == "microbatch_size" && fields.microbatch_size;
  };
  const auto section = [](const YamlNode& root, const char* name) {
    const YamlNode::Entry* entry = root.find(name);
    return entry == nullptr ? YamlNode{} : entry->value;
  };
  return have_same_entries(a, b, is_root_free) &&
         have_same_entries(section(a, "parallel"), section(b, "parallel"), is_parallel_free) &&
         have_same_entries(section(a, "train"), section(b, "train"), is_train_free);
}

}  // namespace

StatusOr<AutoFields> auto_fields(const std::string& yaml) {
  Problems problems;
  const YamlNode root = parse_yaml(yaml, problems);
  PENSTOCK_RETURN_IF_ERROR(problems.status());
  const YamlNode::Entry* split = find(root, {"parallel", "split"});
  return AutoFields{.schedule = says_auto(find(root, {"parallel", "schedule"})),
                    .split = split == nullptr || says_auto(split),
                    .microbatch_size = says_auto(find(root, {"train", "microbatch_size"}))};
}

StatusOr<std::vector<JobSpec>> jobs_to_plan(const std::string& yaml) {
  PENSTOCK_ASSIGN_OR_RETURN(const AutoFields fields, auto_fields(yaml));
  Problems problems;
  const YamlNode root = parse_yaml(yaml, problems);
  PENSTOCK_RETURN_IF_ERROR(problems.status());
  PlannedFields stand_ins;
  if (fields.schedule) {
    PENSTOCK_ASSIGN_OR_RETURN(stand_ins.schedule, stand_in(root));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, with_numbers(yaml, stand_ins));
  std::vector<JobSpec> jobs;
  if (!fields.microbatch_size) {
    PENSTOCK_ASSIGN_OR_RETURN(jobs.emplace_back(), parse_job_spec(text));
    return jobs;
  }
  Status refusal;
  for (const int64_t size : microbatch_sizes(root)) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::string sized, with_numbers(text, {.microbatch_size = size}));
    StatusOr<JobSpec> job = parse_job_spec(sized);
    if (job.ok())
      jobs.push_back(*std::move(job));
    else
      refusal = job.status();
  }
  if (jobs.empty()) return refusal;
  return jobs;
}

StatusOr<std::string> with_microbatch_size(const std::string& yaml, int64_t size) {
  return with_numbers(yaml, {.microbatch_size = size});
}

StatusOr<std::string> with_planned_fields(const std::string& yaml, const PlannedFields& fields,
                                          const std::vector<std::string>& notes) {
  PENSTOCK_ASSIGN_OR_RETURN(std::string text, with_numbers(yaml, fields));
  if (fields.split) {
    PENSTOCK_ASSIGN_OR_RETURN(text, written(text, {"parallel", "split"}, to_text(*fields.split)));
  }
  if (!fields.recompute.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(
        text, with_first_key(text, "recompute", fmt::format("[{}]", fmt::join(fields.recompute, ", "))));
  }
  text = with_notes(std::move(text), notes);
  if (!says_the_same_beside(yaml, text, fields)) return not_in_place(fields);
  PENSTOCK_ASSIGN_OR_RETURN(const JobSpec job, parse_job_spec(text));
  if (says(job, fields)) return text;
  return not_in_place(fields);
}

}  // namespace penstock::plan
