#include "plan/spec/job_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "base/text.h"
#include "plan/schedule/limits.h"
#include "plan/spec/internal/byte_count.h"
#include "plan/spec/internal/flushes.h"
#include "plan/spec/internal/sections.h"
#include "plan/spec/limits.h"
#include "plan/spec/network_widths.h"
#include "plan/spec/parameters.h"

namespace penstock::plan {
namespace {

using Names = std::vector<std::string>;

constexpr size_t kLongestPath = 4000;                            // of a folder in which others are made
constexpr int64_t kMostSamples = 10'000'000 * int64_t{1 << 20};  // of the largest batch in the most steps
constexpr int64_t kMostTokensPerMicrobatch = 1 << 20;
constexpr double kMostParameters = 4398046511104.0;             // 2^42
constexpr double kMostActivationBytes = 1152921504606846976.0;  // 2^60

// Reads the sections one after the other into `spec_`; what a check needs from an earlier section is 0 where
// that could not be read, and the check then stays silent: one mistake is reported once.
class JobReader {
 public:
  JobReader(JobSpec& spec, Problems& problems) : spec_(spec), problems_(problems) {}

  void read(const YamlNode& root) {
    Section file(root, "", root.line, problems_);
    if (!file.present()) return;
    read_name(file);
    read_model(file.section("model", Need::Required), spec_.model, problems_);
    read_data(file.section("data", Need::Required), spec_.model, spec_.data, problems_);
    read_train(file.section("train", Need::Required), spec_.train, problems_);
    check_no_decay(root);
    read_parallel(file.section("parallel"), spec_.model, spec_.parallel, problems_);
    check_batch(root);
    check_size(root);
    read_device(file.section("device"), spec_, problems_);
    read_memory_budget(file);
    read_checkpoint(file.section("checkpoint"));
    read_restart(file.section("restart"));
    check_restart_from(root);
    read_validation(file.section("validation"), spec_, spec_.validation, problems_);
    read_trace(file.section("trace"));
    leave_out_validation();
    read_recompute(file);
    read_two_batch_overlap(file);
    read_rebalance(file);
    file.finish();
  }

 private:
  void read_name(Section& file) {
    if (!file.text("name", spec_.name, Need::Required)) return;
    const auto allowed = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; };
    const bool good = !spec_.name.empty() && spec_.name.size() <= 63 &&
                      std::all_of(spec_.name.begin(), spec_.name.end(), allowed);
    if (!good) {
      problems_.expected(file.line_of("name"), "name", "1 to 63 of the characters a-z, 0-9 and -",
                         fmt::format("\"{}\"", shown_value(spec_.name)));
    }
  }

  void read_rebalance(Section& file) {
    std::string name = "off";
    if (!file.choice("rebalance", name, Names{"off", "propose", "apply"})) return;
    if (name == "propose") spec_.rebalance = Rebalance::Propose;
    if (name == "apply") spec_.rebalance = Rebalance::Apply;
  }

  void read_trace(Section section) {
    section.integer("every", spec_.trace.every, {0, 10'000'000});
    section.finish();
  }

  // The line of a key of a section, for checks that reach over several sections.
  static int line_in(const YamlNode& root, const std::string& section, const std::string& key) {
    const YamlNode::Entry* found = root.find(section);
    if (found == nullptr) return root.line;
    const YamlNode::Entry* inner = found->value.find(key);
    return inner == nullptr ? found->line : inner->line;
  }

  // A pattern that fits no parameter is a typing mistake, and the weights would decay unnoticed.
  void check_no_decay(const YamlNode& root) {
    const ModelSpec& model = spec_.model;
    if (model.vocab_size == 0 || model.hidden_size == 0 || model.num_hidden_layers == 0 ||
        model.num_attention_heads == 0) {
      return;
    }
    const YamlNode::Entry* train = root.find("train");
    const YamlNode::Entry* optimizer = train == nullptr ? nullptr : train->value.find("optimizer");
    if (optimizer == nullptr || optimizer->value.find("no_decay") == nullptr) return;
    const std::vector<ParameterSpec> parameters = model_parameters(model);
    for (const std::string& pattern : spec_.train.optimizer.no_decay) {
      const bool fits = std::any_of(parameters.begin(), parameters.end(), [&](const ParameterSpec& each) {
        return matches_pattern(each.name, pattern);
      });
      if (fits) continue;
      problems_.expected(optimizer->value.find("no_decay")->line, "train.optimizer.no_decay",
                         fmt::format("patterns of parameters' names, as {}", parameters[2].name),
                         shown_value(pattern));
    }
  }

  void check_batch(const YamlNode& root) {
    const TrainSpec& train = spec_.train;
    if (train.microbatch_size == 0 || train.global_batch_size == 0) return;
    const int line = line_in(root, "train", "global_batch_size");
    if (train.microbatch_size > train.global_batch_size) {
      problems_.expected(line_in(root, "train", "microbatch_size"), "train.microbatch_size",
                         fmt::format("at most global_batch_size ({})", train.global_batch_size),
                         fmt::format("{}", train.microbatch_size));
    } else if (train.microbatch_size * spec_.parallel.pipelines() > train.global_batch_size) {
      problems_.expected(
          line, "train.global_batch_size",
          fmt::format("at least a microbatch of {} for each of parallel.expert x data = {} pipelines",
                      train.microbatch_size, spec_.parallel.pipelines()),
          fmt::format("{}", train.global_batch_size));
    } else if (spec_.microbatches() > limits::kMicrobatches) {
      problems_.expected(
          line, "train.global_batch_size",
          fmt::format("at most {} microbatches (global_batch_size / microbatch_size)", limits::kMicrobatches),
          fmt::format("{}", spec_.microbatches()));
    }
    if (spec_.tokens_per_microbatch() > kMostTokensPerMicrobatch) {
      problems_.expected(line_in(root, "train", "microbatch_size"), "train.microbatch_size",
                         fmt::format("at most {} tokens in a microbatch (microbatch_size x sequence_length)",
                                     kMostTokensPerMicrobatch),
                         fmt::format("{}", spec_.tokens_per_microbatch()));
    }
  }

  // Sizes whose products later rooms compute in int64 and allocate.
  void check_size(const YamlNode& root) {
    const ModelSpec& model = spec_.model;
    if (model.hidden_size == 0 || model.num_hidden_layers == 0 || model.num_attention_heads == 0) return;
    const auto hidden = static_cast<double>(model.hidden_size);
    const auto inner = static_cast<double>(model.intermediate_size);
    const auto layers = static_cast<double>(model.num_hidden_layers);
    const auto heads = static_cast<double>(model.num_attention_heads);
    const double attention = heads * static_cast<double>(model.head_size());  // of a query of all heads
    const auto of_experts = static_cast<double>(model.moe.layers.size());
    const auto shared = static_cast<double>(shared_intermediate_size(model));
    const double all_experts =
        static_cast<double>(model.moe.num_experts) * static_cast<double>(model.moe.moe_intermediate_size) +
        shared;
    const double parameters = layers * (4 * hidden * attention + 3 * hidden * inner) +
                              of_experts * 3 * hidden * (all_experts + 1) +
                              2 * hidden * static_cast<double>(model.vocab_size);
    if (parameters > kMostParameters) {
      problems_.expected(line_in(root, "model", "hidden_size"), "model",
                         fmt::format("at most {:.0f} parameters", kMostParameters),
                         fmt::format("{:.3g}", parameters));
    }
    const TrainSpec& train = spec_.train;
    if (train.microbatch_size == 0 || train.global_batch_size == 0 || spec_.data.sequence_length == 0) return;
    const double tokens = static_cast<double>(spec_.microbatches() * spec_.tokens_per_microbatch());
    const double of_rows = static_cast<double>(model.moe.num_experts_per_tok) *
                           (3 * hidden + 3 * static_cast<double>(model.moe.moe_intermediate_size) + 64);
    const double activations =
        4 * tokens * (layers + 1) * (4 * hidden + 4 * attention + 2 * inner + heads + 64) +
        4 * tokens * of_experts * (of_rows + 3 * shared + static_cast<double>(model.moe.num_experts));
    if (activations > kMostActivationBytes) {
      problems_.expected(line_in(root, "train", "global_batch_size"), "train.global_batch_size",
                         fmt::format("at most {:.3g} bytes of activations in a step", kMostActivationBytes),
                         fmt::format("{:.3g}", activations));
    }
    check_program_size(root);
  }

  void check_program_size(const YamlNode& root) {
    if (spec_.microbatches() > limits::kMicrobatches) return;  // said already
    const int64_t of_a_rank = spec_.parallel.stages_per_rank * spec_.microbatches();
    const int64_t of_the_job = of_a_rank * spec_.parallel.pipeline;
    if (of_a_rank <= kMostMicrobatchesOfARank && of_the_job <= kMostMicrobatchesOfAJob) return;
    problems_.expected(line_in(root, "parallel", "stages_per_rank"), "parallel.stages_per_rank",
                       fmt::format("at most {} forwards a rank and {} a step (stages x microbatches)",
                                   kMostMicrobatchesOfARank, kMostMicrobatchesOfAJob),
                       fmt::format("{} and {}", of_a_rank, of_the_job));
  }

  // none, full, or a list of blocks.
  void read_recompute(Section& file) {
    const YamlNode::Entry* entry = file.entry("recompute");
    if (entry == nullptr || spec_.model.num_hidden_layers == 0) return;
    if (entry->value.is(YamlNode::Kind::Scalar) && entry->value.text == "none") return;
    if (entry->value.is(YamlNode::Kind::Scalar) && entry->value.text == "full") {
      for (int64_t layer = 0; layer < spec_.model.num_hidden_layers; ++layer)
        spec_.recompute.push_back(layer);
      return;
    }
    read_layers(file, "recompute", "none, full, or ", spec_.model, spec_.recompute, problems_);
  }

  void read_two_batch_overlap(Section& file) {
    if (!file.flag("two_batch_overlap", spec_.two_batch_overlap) || !spec_.two_batch_overlap) return;
    const int line = file.line_of("two_batch_overlap");
    const int64_t sequences = spec_.train.microbatch_size;
    if (spec_.model.moe.num_experts == 0) {
      problems_.expected(line, "two_batch_overlap", "false for a model without experts, which sends no rows",
                         "true");
    } else if (sequences != 0 && sequences % 2 != 0) {
      problems_.expected(line, "two_batch_overlap", "an even train.microbatch_size, to be halved",
                         fmt::format("{}", sequences));
    }
  }

  void read_memory_budget(Section& file) {
    std::string text;
    if (!file.text("memory_budget", text)) return;
    const std::optional<int64_t> bytes = byte_count(text);
    if (!bytes) {
      return problems_.expected(file.line_of("memory_budget"), "memory_budget",
                                "whole bytes with an optional unit, as 80GB or 512MiB", shown_value(text));
    }
    spec_.memory_budget_bytes = *bytes;
  }

  void leave_out_validation() {
    if (!spec_.device.emulated() || spec_.validation.every == 0) return;
    spec_.notes.push_back("validation: without effect on emulated devices, which have no loss");
    spec_.validation = {};
  }

  void read_checkpoint(Section section) {
    CheckpointSpec& checkpoint = spec_.checkpoint;
    const bool wanted = section.present();
    section.text("directory", checkpoint.directory);
    section.integer("every", checkpoint.every, {1, 10'000'000}, wanted ? Need::Required : Need::Optional);
    section.integer("keep", checkpoint.keep, {1, 1'000'000});
    section.finish();
    if (wanted && spec_.device.emulated()) {
      problems_.not_built_yet(section.line_of("every"), "checkpoint.every",
                              "expected no checkpoints of emulated devices, which hold no weights");
    }
    if (checkpoint.directory.size() > kLongestPath) {
      problems_.expected(section.line_of("directory"), "checkpoint.directory",
                         fmt::format("at most {} bytes", kLongestPath),
                         fmt::format("{}", checkpoint.directory.size()));
    }
  }

  void read_restart(Section section) {
    constexpr int64_t kRestartsWithCheckpoints = 5;
    if (spec_.checkpoint.every > 0) spec_.restart.max = kRestartsWithCheckpoints;
    section.integer("max", spec_.restart.max, {0, 1'000'000});
    section.integer("no_progress_limit", spec_.restart.no_progress_limit, {1, 1'000'000});
    read_restart_from(section);
    section.finish();
  }

  // As restart_source.h puts it into the text.
  void read_restart_from(Section& section) {
    StartSpec& from = spec_.restart.from;
    const YamlNode::Entry* entry = section.entry("from");
    if (entry == nullptr) return;
    if (!entry->value.is(YamlNode::Kind::Map)) {
      return problems_.expected(
          entry->line, "restart.from",
          "{path: FOLDER, step: N, samples: M}, which `penstock submit` makes of a checkpoint's "
          "folder and of a job's name",
          entry->value.shown());
    }
    Section start = section.section("from");
    bool whole = start.text("path", from.path, Need::Required);
    whole &= start.integer("step", from.step, {0, 10'000'000}, Need::Required);
    whole &= start.integer("samples", from.samples, {0, kMostSamples}, Need::Required);
    start.finish();
    if (!whole) {
      from = {};
    } else if (from.path.empty() || from.path.size() > kLongestPath) {
      problems_.expected(entry->line, "restart.from.path", fmt::format("1 to {} bytes", kLongestPath),
                         fmt::format("{}", from.path.size()));
    }
  }

  // What a job that goes on with another one's checkpoint cannot be.
  void check_restart_from(const YamlNode& root) {
    const StartSpec& from = spec_.restart.from;
    const TrainSpec& train = spec_.train;
    if (from.path.empty()) return;
    const std::string steps = fmt::format("{} steps", from.step);
    if (!spec_.model.from.empty()) {
      problems_.expected(
          line_in(root, "model", "from"), "model.from",
          "no such key beside restart.from, whose checkpoint brings the weights: give the model's keys "
          "(`penstock checkpoint import` prints them), or leave out restart.from to begin at step 0 "
          "with the weights alone",
          spec_.model.from);
    }
    if (train.steps > 0 && train.steps <= from.step) {
      problems_.expected(line_in(root, "train", "steps"), "train.steps",
                         fmt::format("more than the {} of the checkpoint that restart.from names", steps),
                         fmt::format("{}", train.steps));
    }
    if (train.global_batch_size > 0 && from.step > 0 && from.samples != from.step * train.global_batch_size) {
      problems_.expected(
          line_in(root, "train", "global_batch_size"), "train.global_batch_size",
          fmt::format("{:g}, since the checkpoint that restart.from names has consumed {} sequences in "
                      "{} (model.from begins at step 0 with its weights alone, and any batch)",
                      static_cast<double>(from.samples) / static_cast<double>(from.step), from.samples,
                      steps),
          fmt::format("{}", train.global_batch_size));
    }
    if (spec_.device.emulated()) {
      problems_.expected(line_in(root, "restart", "from"), "restart.from",
                         "no such key with emulated devices, which hold no weights", from.path);
    }
    const auto normal = [](const std::filesystem::path& path) { return (path / "").lexically_normal(); };
    const std::string& directory = spec_.checkpoint.directory;
    if (!directory.empty() && normal(directory) == normal(from.path).parent_path().parent_path() / "") {
      problems_.expected(line_in(root, "checkpoint", "directory"), "checkpoint.directory",
                         "a folder of the job's own: that of restart.from is only read", directory);
    }
  }

  JobSpec& spec_;
  Problems& problems_;
};

void note_lines(const YamlNode& node, const std::string& prefix, std::map<std::string, int>& lines) {
  for (const YamlNode::Entry& entry : node.entries) {
    const std::string field = prefix.empty() ? entry.key : prefix + "." + entry.key;
    lines[field] = entry.line;
    note_lines(entry.value, field, lines);
  }
}

}  // namespace

StatusOr<JobSpec> parse_job_spec(const std::string& yaml) {
  Problems problems;
  const YamlNode root = parse_yaml(yaml, problems);
  if (root.is(YamlNode::Kind::Null)) {
    if (problems.empty()) problems.expected(1, "job file", "a section of keys and values", "nothing");
    return problems.status();
  }
  JobSpec spec;
  JobReader(spec, problems).read(root);
  PENSTOCK_RETURN_IF_ERROR(problems.status());
  spec.yaml = yaml;
  note_lines(root, "", spec.lines);
  settle_flushes(spec, problems);
  PENSTOCK_RETURN_IF_ERROR(problems.status());
  return spec;
}

bool ModelSpec::has_experts(LayerIndex layer) const {
  return std::binary_search(moe.layers.begin(), moe.layers.end(), layer.value);
}

int64_t JobSpec::expert_capacity() const {
  const MoeSpec& moe = model.moe;
  if (moe.capacity_factor == 0 || moe.num_experts == 0) return 0;
  const auto tokens = static_cast<double>(tokens_per_part());
  const double even =
      tokens * static_cast<double>(moe.num_experts_per_tok) / static_cast<double>(moe.num_experts);
  // A token's choices are different experts: no expert gets more rows than there are tokens.
  return static_cast<int64_t>(std::clamp(std::ceil(moe.capacity_factor * even), 1.0, tokens));
}

int64_t JobSpec::expert_rows() const {
  const int64_t all = tokens_per_part() * model.moe.num_experts_per_tok;
  return expert_capacity() == 0 ? all : std::min(all, expert_capacity() * model.moe.num_experts);
}

// A token's choices are different experts, so that it sends a rank no more rows than that has experts.
int64_t JobSpec::local_expert_rows() const {
  if (model.moe.num_experts == 0) return 0;
  const int64_t choices = std::min(model.moe.num_experts_per_tok, local_experts());
  const int64_t all = tokens_per_part() * choices;
  const int64_t of_a_rank = expert_capacity() == 0 ? all : std::min(all, expert_capacity() * local_experts());
  return of_a_rank * parallel.expert;
}

bool JobSpec::recomputes(LayerIndex layer) const {
  return std::binary_search(recompute.begin(), recompute.end(), layer.value);
}

std::string place_of(const JobSpec& spec, const std::string& field) {
  const auto found = spec.lines.find(field);
  return found == spec.lines.end() ? field : fmt::format("line {}: {}", found->second, field);
}

}  // namespace penstock::plan
