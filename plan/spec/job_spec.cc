#include "plan/spec/job_spec.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "plan/schedule/families.h"
#include "plan/schedule/limits.h"
#include "plan/spec/internal/section.h"
#include "plan/spec/internal/split_reader.h"
#include "plan/spec/limits.h"
#include "plan/spec/parameters.h"

namespace penstock::plan {
namespace {

using Names = std::vector<std::string>;

constexpr int64_t kByteVocabulary = 256;
constexpr int64_t kMostTokensPerMicrobatch = 1 << 20;
constexpr int64_t kMostMicrobatchesOfARank = 1 << 17;           // stages_per_rank x microbatches
constexpr int64_t kMostMicrobatchesOfAJob = 1 << 20;            // stages x microbatches
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
    read_model(file.section("model", Need::Required));
    read_data(file.section("data", Need::Required));
    read_train(file.section("train", Need::Required));
    check_batch(root);
    read_parallel(file.section("parallel"));
    check_size(root);
    read_device(file.section("device"));
    read_memory_budget(file);
    read_restart(file.section("restart"));
    file.later("validation");
    file.later("checkpoint");
    file.only("recompute", "none", Names{"full"});
    refuse_true(file, "two_batch_overlap");
    file.only("rebalance", "off", Names{"propose", "apply"});
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

  void read_model(Section section) {
    ModelSpec& model = spec_.model;
    section.integer("vocab_size", model.vocab_size, {1, 1 << 22}, Need::Required);
    section.integer("hidden_size", model.hidden_size, {1, 1 << 17}, Need::Required);
    section.integer("num_hidden_layers", model.num_hidden_layers, {1, 4096}, Need::Required);
    section.integer("num_attention_heads", model.num_attention_heads, {1, 4096}, Need::Required);
    section.integer("intermediate_size", model.intermediate_size, {1, 1 << 19}, Need::Required);
    section.integer("max_position_embeddings", model.max_position_embeddings, {1, 1 << 20}, Need::Required);
    model.num_key_value_heads = model.num_attention_heads;
    section.integer("num_key_value_heads", model.num_key_value_heads, {1, 4096});
    section.number("rope_theta", model.rope_theta, {.least = 1, .most = 1e12, .above_least = true});
    section.number("rms_norm_eps", model.rms_norm_eps, {.least = 0, .most = 1, .above_least = true});
    section.number("initializer_range", model.initializer_range,
                   {.least = 0, .most = 1e3, .above_least = true});
    refuse_true(section, "tie_word_embeddings");
    section.later("moe");
    section.finish();
    check_heads(section);
  }

  void check_heads(const Section& section) {
    const ModelSpec& model = spec_.model;
    if (model.num_attention_heads == 0) return;
    if (model.hidden_size % model.num_attention_heads != 0) {
      problems_.expected(section.line_of("num_attention_heads"), "model.num_attention_heads",
                         fmt::format("a divisor of hidden_size ({})", model.hidden_size),
                         fmt::format("{}", model.num_attention_heads));
    } else if (model.head_size() % 2 != 0) {
      problems_.expected(
          section.line_of("num_attention_heads"), "model.num_attention_heads",
          "an even head size (hidden_size / num_attention_heads), as rotary embeddings need",
          fmt::format("{} / {} = {}", model.hidden_size, model.num_attention_heads, model.head_size()));
    }
    if (model.num_attention_heads % model.num_key_value_heads != 0) {
      problems_.expected(section.line_of("num_key_value_heads"), "model.num_key_value_heads",
                         fmt::format("a divisor of num_attention_heads ({})", model.num_attention_heads),
                         fmt::format("{}", model.num_key_value_heads));
    }
  }

  void read_data(Section section) {
    read_sources(section.entry("source", Need::Required));
    section.choice("tokenizer", spec_.data.tokenizer, Names{"bytes"},
                   Names{"none", "bpe", "sentencepiece", "tiktoken", "huggingface"});
    const bool read =
        section.integer("sequence_length", spec_.data.sequence_length, {1, 1 << 20}, Need::Required);
    std::string format = "auto";
    section.choice("format", format, Names{"auto", "text"}, Names{"npy", "bin", "megatron"});
    if (format == "auto") refuse_later_files(section);
    section.finish();

    const ModelSpec& model = spec_.model;
    if (read && model.max_position_embeddings > 0 &&
        spec_.data.sequence_length > model.max_position_embeddings) {
      problems_.expected(
          section.line_of("sequence_length"), "data.sequence_length",
          fmt::format("at most model.max_position_embeddings ({})", model.max_position_embeddings),
          fmt::format("{}", spec_.data.sequence_length));
    }
    if (section.present() && model.vocab_size > 0 && model.vocab_size < kByteVocabulary) {
      problems_.expected(section.line_of("tokenizer"), "data.tokenizer",
                         fmt::format("a model.vocab_size of at least {}, which bytes need", kByteVocabulary),
                         fmt::format("{}", model.vocab_size));
    }
  }

  void read_sources(const YamlNode::Entry* source) {
    if (source == nullptr) return;
    if (!source->value.is(YamlNode::Kind::List)) return read_source(source->value, "data.source");
    const std::vector<YamlNode>& items = source->value.items;
    if (items.empty() || items.size() > 1024) {
      return problems_.expected(source->line, "data.source", "a path, or a list of 1 to 1024 paths",
                                source->value.shown());
    }
    for (size_t i = 0; i < items.size(); ++i) read_source(items[i], fmt::format("data.source[{}]", i));
  }

  void read_source(const YamlNode& node, const std::string& field) {
    if (node.is(YamlNode::Kind::Scalar) && !node.text.empty() && node.text.size() <= 4096) {
      spec_.data.sources.push_back(node.text);
      return;
    }
    problems_.expected(node.line, field, "a path of 1 to 4096 bytes", node.shown());
  }

  // `format: auto` goes by the file's name, and only text is built.
  void refuse_later_files(const Section& section) {
    for (const std::string& source : spec_.data.sources) {
      for (const char* ending : {".npy", ".bin", ".idx"}) {
        if (!source.ends_with(ending)) continue;
        problems_.not_built_yet(section.line_of("source"), "data.source",
                                fmt::format("expected text files, found {}", shown_value(source)));
        return;
      }
    }
  }

  void read_train(Section section) {
    TrainSpec& train = spec_.train;
    section.integer("steps", train.steps, {1, 10'000'000}, Need::Required);
    section.integer("global_batch_size", train.global_batch_size, {1, 1 << 20}, Need::Required);
    section.integer("microbatch_size", train.microbatch_size, {1, 1 << 20}, Need::Required);
    section.choice("dtype", train.dtype, Names{"float32"}, Names{"bfloat16", "mxfp8"});
    section.integer("seed", train.seed, {});
    read_optimizer(section.section("optimizer"));
    read_lr_schedule(section.section("lr_schedule"));
    section.finish();
  }

  void read_optimizer(Section section) {
    OptimizerSpec& optimizer = spec_.train.optimizer;
    section.choice("name", optimizer.name, Names{"adamw"});
    section.number("lr", optimizer.lr, {.least = 0, .most = 1e3});
    section.number("eps", optimizer.eps, {.least = 0, .most = 1, .above_least = true});
    section.number("weight_decay", optimizer.weight_decay, {.least = 0, .most = 1e3});
    section.number("clip_grad_norm", optimizer.clip_grad_norm, {.least = 0, .most = 1e12});
    if (const YamlNode::Entry* betas = section.entry("betas")) read_betas(*betas);
    section.finish();
  }

  void read_betas(const YamlNode::Entry& entry) {
    if (!entry.value.is(YamlNode::Kind::List) || entry.value.items.size() != 2) {
      return problems_.expected(entry.line, "train.optimizer.betas", "a list of two numbers",
                                entry.value.shown());
    }
    for (size_t i = 0; i < 2; ++i) {
      read_number(entry.value.items[i], fmt::format("train.optimizer.betas[{}]", i),
                  {.least = 0, .most = 1, .below_most = true}, spec_.train.optimizer.betas[i], problems_);
    }
  }

  void read_lr_schedule(Section section) {
    LearningRateSchedule& schedule = spec_.train.lr_schedule;
    section.choice("name", schedule.name, Names{"constant", "cosine"});
    section.integer("warmup_steps", schedule.warmup_steps, {0, 10'000'000});
    section.number("min_ratio", schedule.min_ratio, {.least = 0, .most = 1});
    section.finish();
    if (spec_.train.steps > 0 && schedule.warmup_steps > spec_.train.steps) {
      problems_.expected(section.line_of("warmup_steps"), "train.lr_schedule.warmup_steps",
                         fmt::format("at most train.steps ({})", spec_.train.steps),
                         fmt::format("{}", schedule.warmup_steps));
    }
  }

  // The line of a key of a section, for checks that reach over several sections.
  static int line_in(const YamlNode& root, const std::string& section, const std::string& key) {
    const YamlNode::Entry* found = root.find(section);
    if (found == nullptr) return root.line;
    const YamlNode::Entry* inner = found->value.find(key);
    return inner == nullptr ? found->line : inner->line;
  }

  void check_batch(const YamlNode& root) {
    const TrainSpec& train = spec_.train;
    if (train.microbatch_size == 0 || train.global_batch_size == 0) return;
    const int line = line_in(root, "train", "global_batch_size");
    if (train.global_batch_size % train.microbatch_size != 0) {
      problems_.expected(
          line, "train.global_batch_size",
          fmt::format("a multiple of microbatch_size ({}); uneven last microbatches are not built yet",
                      train.microbatch_size),
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

  void read_parallel(Section section) {
    ParallelSpec& parallel = spec_.parallel;
    const size_t before = problems_.count();
    section.integer("pipeline", parallel.pipeline, {1, 4096});
    section.integer("stages_per_rank", parallel.stages_per_rank, {1, limits::kStagesPerRank});
    const bool stages_read = problems_.count() == before;
    section.text("schedule", parallel.schedule);
    for (const char* key : {"expert", "data"}) refuse_above_one(section, key);
    read_p2p(section.section("p2p"));
    section.only("optimizer_step", "barrier", Names{"overlapped", "local", "deferred"});
    section.later("schedule_options");
    section.later("flush_every");
    const YamlNode::Entry* split = section.entry("split");
    section.finish();

    check_schedule(section, stages_read);
    if (!stages_read || spec_.model.num_hidden_layers == 0) return;
    const int64_t items = spec_.model.num_hidden_layers + 2;
    if (spec_.stages() > items) {
      return problems_.expected(
          section.line_of("pipeline"), "parallel.pipeline",
          fmt::format("at most {} stages (embedding, {} blocks, head)", items, items - 2),
          fmt::format("{} x {} = {}", parallel.pipeline, parallel.stages_per_rank, spec_.stages()));
    }
    parallel.split = read_split(split, spec_.model, spec_.stages(), problems_);
  }

  void check_schedule(const Section& section, bool stages_read) {
    const ParallelSpec& parallel = spec_.parallel;
    const int line = section.line_of("schedule");
    // One microbatch: the catalogue then says whether the name and the stages go together, at next to no
    // cost.
    const ScheduleRequest request{parallel.schedule, stages_read ? parallel.pipeline : 1, 1,
                                  stages_read ? parallel.stages_per_rank : 1};
    const Status verdict = generate(request).status();
    if (verdict.ok()) return;
    const Known known = known_schedule(parallel.schedule);
    if (known == Known::Built) return problems_.add(line, "parallel.schedule", message(verdict));
    const Names names = schedule_names();
    const std::string expectation = alternatives(names);
    const std::string found = shown_value(parallel.schedule);
    if (known == Known::Designed || found.starts_with("file:")) {
      return problems_.not_built_yet(line, "parallel.schedule",
                                     fmt::format("expected {}, found {}", expectation, found));
    }
    problems_.expected(line, "parallel.schedule", expectation, found, nearest_name(parallel.schedule, names));
  }

  void refuse_above_one(Section& section, const std::string& key) {
    int64_t value = 1;
    section.integer(key, value, {1, 65536});
    if (value == 1) return;
    problems_.not_built_yet(section.line_of(key), section.field(key),
                            fmt::format("expected 1, found {}", value));
  }

  void read_p2p(Section section) {
    section.only("mode", "two-sided", Names{"one-sided"});
    section.later("min_ctas");
    section.later("max_ctas");
    section.finish();
  }

  // Sizes whose products later rooms compute in int64 and allocate.
  void check_size(const YamlNode& root) {
    const ModelSpec& model = spec_.model;
    if (model.hidden_size == 0 || model.num_hidden_layers == 0 || model.num_attention_heads == 0) return;
    const auto hidden = static_cast<double>(model.hidden_size);
    const auto inner = static_cast<double>(model.intermediate_size);
    const auto layers = static_cast<double>(model.num_hidden_layers);
    const double parameters = layers * (4 * hidden * hidden + 3 * hidden * inner) +
                              2 * hidden * static_cast<double>(model.vocab_size);
    if (parameters > kMostParameters) {
      problems_.expected(line_in(root, "model", "hidden_size"), "model",
                         fmt::format("at most {:.0f} parameters", kMostParameters),
                         fmt::format("{:.3g}", parameters));
    }
    const TrainSpec& train = spec_.train;
    if (train.microbatch_size == 0 || train.global_batch_size == 0 || spec_.data.sequence_length == 0) return;
    const double activations = 4 * static_cast<double>(spec_.tokens_per_step()) * (layers + 1) *
                               (8 * hidden + 2 * inner + static_cast<double>(model.num_attention_heads) + 64);
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

  void read_device(Section section) {
    section.choice("kind", spec_.device.kind, Names{"cpu"}, Names{"cuda", "emulated"});
    section.integer("threads", spec_.device.threads, {1, kMostThreads});
    section.later("costs");
    section.later("time_factor");
    section.finish();
  }

  void read_memory_budget(Section& file) {
    std::string text;
    if (!file.text("memory_budget", text)) return;
    static const std::vector<std::pair<std::string, int64_t>> kUnits = {{"TiB", 1LL << 40},
                                                                        {"GiB", 1LL << 30},
                                                                        {"MiB", 1LL << 20},
                                                                        {"KiB", 1LL << 10},
                                                                        {"TB", 1'000'000'000'000},
                                                                        {"GB", 1'000'000'000},
                                                                        {"MB", 1'000'000},
                                                                        {"KB", 1'000},
                                                                        {"B", 1}};
    int64_t unit = 1;
    std::string digits = text;
    for (const auto& [name, bytes] : kUnits) {
      if (!digits.ends_with(name)) continue;
      digits = std::string(trim(digits.substr(0, digits.size() - name.size())));
      unit = bytes;
      break;
    }
    constexpr int64_t kMostBytes = 1LL << 60;
    const bool number =
        !digits.empty() && digits.size() <= 19 &&
        std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
    const int64_t count =
        number ? std::min(std::stoull(digits), static_cast<unsigned long long>(kMostBytes)) : 0;
    if (count < 1 || count > kMostBytes / unit) {
      return problems_.expected(file.line_of("memory_budget"), "memory_budget",
                                "whole bytes with an optional unit, as 80GB or 512MiB", shown_value(text));
    }
    spec_.memory_budget_bytes = count * unit;
  }

  void read_restart(Section section) {
    int& most = spec_.restart_max;
    if (section.integer("max", most, {0, 1'000'000}) && most > 0) {
      spec_.notes.push_back(fmt::format(
          "restart.max: {} counts as 0 until recovery is built: a rank that fails ends the job", most));
    }
    int64_t limit = 0;
    if (section.integer("no_progress_limit", limit, {1, 1'000'000})) {
      spec_.notes.push_back("restart.no_progress_limit: without effect until recovery is built");
    }
    section.finish();
  }

  void refuse_true(Section& section, const std::string& key) {
    bool value = false;
    if (!section.flag(key, value) || !value) return;
    problems_.not_built_yet(section.line_of(key), section.field(key), "expected false, found true");
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
  return spec;
}

std::string place_of(const JobSpec& spec, const std::string& field) {
  const auto found = spec.lines.find(field);
  return found == spec.lines.end() ? field : fmt::format("line {}: {}", found->second, field);
}

}  // namespace penstock::plan
