#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/text.h"
#include "plan/schedule/families.h"
#include "plan/spec/internal/byte_count.h"
#include "plan/spec/internal/sections.h"
#include "plan/spec/limits.h"

namespace penstock::plan {
namespace {

using Names = std::vector<std::string>;

constexpr int64_t kLongestNs = 3'600'000'000'000;  // an action or a transfer, time_factor applied
constexpr double kNsPerSecond = 1e9;

// "5" (milliseconds), "5ms", "0.3us", "2s": whole nanoseconds, at most an hour. Nothing when it is not.
std::optional<int64_t> nanoseconds_of(const std::string& text) {
  static const std::vector<std::pair<std::string, int>> kUnits = {
      {"ms", 6}, {"us", 3}, {"ns", 0}, {"s", 9}};  // power of ten
  std::string_view digits = text;
  int decimals = 6;
  for (const auto& [name, power] : kUnits) {
    if (!digits.ends_with(name)) continue;
    digits = trim(digits.substr(0, digits.size() - name.size()));
    decimals = power;
    break;
  }
  const size_t point = std::min(digits.find('.'), digits.size());
  const std::string_view fraction = digits.substr(std::min(point + 1, digits.size()));
  constexpr size_t kMostDigits = 13;
  if (point > kMostDigits || fraction.size() > static_cast<size_t>(decimals)) return std::nullopt;
  std::string whole(digits.substr(0, point));
  whole += std::string(fraction) + std::string(static_cast<size_t>(decimals) - fraction.size(), '0');
  int64_t ns = 0;
  const auto [end, failure] = std::from_chars(whole.data(), whole.data() + whole.size(), ns);
  const bool has_digits = point > 0 || !fraction.empty();
  const bool is_read = has_digits && failure == std::errc() && end == whole.data() + whole.size();
  return is_read && !whole.starts_with('-') && ns <= kLongestNs ? std::optional(ns) : std::nullopt;
}

// What the schedule's actions ask the costs for.
struct KindsUsed {
  bool fused = false;
  bool split = false;

  void add(const std::vector<std::vector<Action>>& actions) {
    for (const auto& of_rank : actions) {
      for (const Action& action : of_rank) {
        add(action.work);
        if (action.overlapped) add(*action.overlapped);
      }
    }
  }
  void add(const Work& work) {
    fused = fused || work.kind == ActionKind::Backward;
    split = split || work.kind == ActionKind::InputGradient || work.kind == ActionKind::WeightGradient;
  }
};

// Of a schedule by name those of its smallest program: a family uses the same kinds at every size.
KindsUsed kinds_used(const JobSpec& job) {
  KindsUsed used;
  if (!job.parallel.program.empty()) {
    used.add(job.parallel.program);
  } else if (const auto smallest = generate({.name = job.parallel.schedule, .ranks = 2, .microbatches = 4});
             smallest.ok()) {
    used.add(smallest->actions);
  }
  return used;
}

class CostReader {
 public:
  CostReader(const JobSpec& job, double factor, Problems& problems)
      : job_(job), factor_(factor), used_(kinds_used(job)), problems_(problems) {}

  // `costs` is the map; what it says goes into `result`.
  void read(Section costs, EmulatedCosts& result) {
    std::string file;
    costs.text("file", file);  // where they were read, for people
    const YamlNode::Entry* layers = costs.entry("layers");
    const YamlNode::Entry* stages =
        costs.entry("stages", layers == nullptr ? Need::Required : Need::Optional);
    time(costs, "overlapped_pair", result.overlapped_pair_ns);
    time(costs, "latency", result.latency_ns);
    read_bandwidth(costs, result);
    costs.finish();
    if (stages != nullptr && layers != nullptr) {
      problems_.expected(stages->line, "device.costs.stages", "it or device.costs.layers", "both");
    } else if (layers != nullptr) {
      read_layers(*layers, result);
    } else if (stages != nullptr) {
      read_stages(*stages, result);
    }
  }

 private:
  // Leaves `ns` as it is and returns false when the key is absent or its value refused.
  bool time(Section& section, const std::string& key, int64_t& ns, Need need = Need::Optional) {
    std::string text;
    if (!section.text(key, text, need)) return false;
    const std::optional<int64_t> found = nanoseconds_of(text);
    const double scaled = found ? std::round(static_cast<double>(*found) * factor_) : 0;
    if (!found || scaled > static_cast<double>(kLongestNs)) {
      problems_.expected(section.line_of(key), section.field(key),
                         "milliseconds, or a time such as 0.3us, 5ms or 2s, of at most an hour x time_factor",
                         shown_value(text));
      return false;
    }
    ns = static_cast<int64_t>(scaled);
    return true;
  }

  void read_bandwidth(Section& costs, EmulatedCosts& result) {
    std::string text;
    if (!costs.text("bytes_per_second", text)) return;
    const std::optional<int64_t> bandwidth = byte_count(text);
    const double ns = bandwidth ? std::ceil(static_cast<double>(job_.boundary_bytes()) * kNsPerSecond /
                                            static_cast<double>(*bandwidth)) *
                                      factor_
                                : 0;
    if (!bandwidth || ns > static_cast<double>(kLongestNs)) {
      return problems_.expected(
          costs.line_of("bytes_per_second"), costs.field("bytes_per_second"),
          fmt::format("bytes a second that pass a tensor of {} bytes within an hour, as 25GB",
                      job_.boundary_bytes()),
          shown_value(text));
    }
    result.message_ns = static_cast<int64_t>(std::round(ns));
  }

  // One map for all stages, or a list of one a stage.
  void read_stages(const YamlNode::Entry& entry, EmulatedCosts& result) {
    const std::string field = "device.costs.stages";
    const auto stages = static_cast<size_t>(job_.stages());
    if (entry.value.is(YamlNode::Kind::Map)) {
      result.stages.assign(stages, read_stage(entry.value, field, entry.line));
      return;
    }
    if (!entry.value.is(YamlNode::Kind::List) || entry.value.items.size() != stages) {
      return problems_.expected(entry.line, field,
                                fmt::format("a section for all stages, or a list of {}, one a stage", stages),
                                entry.value.shown());
    }
    for (size_t stage = 0; stage < stages; ++stage) {
      const YamlNode& node = entry.value.items[stage];
      result.stages.push_back(read_stage(node, fmt::format("{}[{}]", field, stage), node.line));
    }
  }

  // {embedding: ..., block: ..., head: ...}, each as a stage's; block may be a list of one a block. A stage takes what its
  // items take, however the model is split.
  void read_layers(const YamlNode::Entry& entry, EmulatedCosts& result) {
    const std::string field = "device.costs.layers";
    Section section(entry.value, field, entry.line, problems_);
    if (!section.present()) return;
    const YamlNode::Entry* embedding = section.entry("embedding", Need::Required);
    const YamlNode::Entry* block = section.entry("block", Need::Required);
    const YamlNode::Entry* head = section.entry("head", Need::Required);
    section.finish();
    if (embedding == nullptr || block == nullptr || head == nullptr) return;
    const std::vector<EmulatedCosts::Stage> blocks = read_blocks(*block, field + ".block");
    if (blocks.empty()) return;
    const EmulatedCosts::Stage first = read_stage(embedding->value, field + ".embedding", embedding->line);
    const EmulatedCosts::Stage last = read_stage(head->value, field + ".head", head->line);
    for (const std::vector<Item>& items : job_.parallel.split) {
      EmulatedCosts::Stage& stage = result.stages.emplace_back();
      for (const Item& item : items) {
        add(stage, item.kind == ItemKind::Embedding ? first
                   : item.kind == ItemKind::Head    ? last
                                                    : blocks[static_cast<size_t>(item.layer.value)]);
      }
    }
    check_sums(entry.line, result);
  }

  std::vector<EmulatedCosts::Stage> read_blocks(const YamlNode::Entry& entry, const std::string& field) {
    const auto count = static_cast<size_t>(job_.model.num_hidden_layers);
    if (entry.value.is(YamlNode::Kind::Map))
      return std::vector<EmulatedCosts::Stage>(count, read_stage(entry.value, field, entry.line));
    std::vector<EmulatedCosts::Stage> blocks;
    if (!entry.value.is(YamlNode::Kind::List) || entry.value.items.size() != count) {
      problems_.expected(entry.line, field, fmt::format("a section for all blocks, or a list of {}", count),
                         entry.value.shown());
      return blocks;
    }
    for (size_t i = 0; i < count; ++i) {
      const YamlNode& node = entry.value.items[i];
      blocks.push_back(read_stage(node, fmt::format("{}[{}]", field, i), node.line));
    }
    return blocks;
  }

  static void add(EmulatedCosts::Stage& stage, const EmulatedCosts::Stage& item) {
    stage.forward_ns += item.forward_ns;
    stage.backward_ns += item.backward_ns;
    stage.input_gradient_ns += item.input_gradient_ns;
    stage.weight_gradient_ns += item.weight_gradient_ns;
  }

  // No action may take longer than one of a stage that is written down, a backward of two halves above all.
  void check_sums(int line, EmulatedCosts& result) {
    for (const EmulatedCosts::Stage& stage : result.stages) {
      const int64_t longest =
          std::max({stage.forward_ns, stage.backward_ns, stage.input_gradient_ns, stage.weight_gradient_ns});
      if (longest <= 2 * kLongestNs) continue;
      return problems_.expected(line, "device.costs.layers", "actions of a stage of at most two hours",
                                fmt::format("{} s", longest / 1'000'000'000));
    }
  }

  EmulatedCosts::Stage read_stage(const YamlNode& node, const std::string& field, int line) {
    EmulatedCosts::Stage stage;
    Section section(node, field, line, problems_);
    if (!section.present()) return stage;
    const bool has_backward = node.find("backward") != nullptr;
    const Need parts = used_.split || !has_backward ? Need::Required : Need::Optional;
    time(section, "forward", stage.forward_ns, Need::Required);
    time(section, "input_gradient", stage.input_gradient_ns, parts);
    time(section, "weight_gradient", stage.weight_gradient_ns, parts);
    stage.backward_ns = stage.input_gradient_ns + stage.weight_gradient_ns;
    time(section, "backward", stage.backward_ns);
    section.finish();
    return stage;
  }

  const JobSpec& job_;
  double factor_;
  KindsUsed used_;
  Problems& problems_;
};

// Whether every value that the costs are read with could be: stages, and the bytes of their tensors.
bool is_readable(const JobSpec& job) {
  return !job.parallel.split.empty() && job.model.hidden_size > 0 && job.data.sequence_length > 0 &&
         job.train.microbatch_size > 0;
}

// A path is refused: whoever submits has read it into the text (cost_source.h).
void read_costs(Section& section, double factor, JobSpec& job, Problems& problems) {
  const YamlNode::Entry* costs = section.entry("costs", Need::Required);
  if (costs == nullptr || !is_readable(job)) return;
  if (costs->value.is(YamlNode::Kind::Scalar)) {
    return problems.expected(costs->line, "device.costs",
                             "the file's costs in the place of its name, as `penstock submit` writes them",
                             costs->value.shown());
  }
  CostReader(job, factor, problems).read(section.section("costs"), job.device.costs);
}

void read_emulated(Section& section, JobSpec& job, Problems& problems) {
  constexpr NumberRange kFactors = {.least = 0, .most = 1e6, .above_least = true};
  const size_t before = problems.count();
  double factor = 1;
  section.number("time_factor", factor, kFactors);
  if (problems.count() != before) factor = 1;  // said already
  std::string posting = "early";
  section.choice("posting", posting, Names{"early", "at-consumer"});
  job.device.posts_at_consumer = posting == "at-consumer";
  read_costs(section, factor, job, problems);
  if (const int pipelines = job.parallel.pipelines(); pipelines > 1) {
    problems.expected(
        section.line_of("kind"), section.field("kind"),
        fmt::format("cpu with {} pipelines side by side (parallel.expert x data), since nothing models "
                    "what passes between them",
                    pipelines),
        "emulated");
  }
  if (job.device.threads > 0) {
    job.notes.push_back("device.threads: without effect on emulated devices, which compute nothing");
  }
  if (job.parallel.optimizer_step != "barrier") {
    job.notes.push_back("parallel.optimizer_step: ranks on emulated devices meet at the end of every step");
  }
}

void refuse_emulated_keys(Section& section, const std::string& kind, Problems& problems) {
  for (const char* key : {"costs", "time_factor", "posting"}) {
    const YamlNode::Entry* entry = section.entry(key);
    if (entry == nullptr) continue;
    problems.expected(entry->line, section.field(key), "it beside kind: emulated only", "kind: " + kind);
  }
}

}  // namespace

void read_device(Section section, JobSpec& job, Problems& problems) {
  DeviceSpec& device = job.device;
  const size_t before = problems.count();
  section.choice("kind", device.kind, Names{"cpu", "emulated"}, Names{"cuda"});
  const bool has_kind = problems.count() == before;
  section.integer("threads", device.threads, {1, kMostThreads});
  if (!has_kind) return;  // the other keys are those of a kind
  device.emulated() ? read_emulated(section, job, problems)
                    : refuse_emulated_keys(section, device.kind, problems);
  section.finish();
}

}  // namespace penstock::plan
