#include <fmt/format.h>

#include <algorithm>

#include "plan/spec/internal/sections.h"

namespace penstock::plan {
namespace {

using Names = std::vector<std::string>;

void read_betas(const YamlNode::Entry& entry, OptimizerSpec& optimizer, Problems& problems) {
  if (!entry.value.is(YamlNode::Kind::List) || entry.value.items.size() != 2) {
    return problems.expected(entry.line, "train.optimizer.betas", "a list of two numbers",
                             entry.value.shown());
  }
  for (size_t i = 0; i < 2; ++i) {
    read_number(entry.value.items[i], fmt::format("train.optimizer.betas[{}]", i),
                {.least = 0, .most = 1, .below_most = true}, optimizer.betas[i], problems);
  }
}

void read_no_decay(const YamlNode::Entry& entry, OptimizerSpec& optimizer, Problems& problems) {
  constexpr size_t kMostPatterns = 64;
  const char* field = "train.optimizer.no_decay";
  if (!entry.value.is(YamlNode::Kind::List) || entry.value.items.size() > kMostPatterns) {
    return problems.expected(entry.line, field,
                             fmt::format("a list of at most {} patterns of parameter names", kMostPatterns),
                             entry.value.shown());
  }
  optimizer.no_decay.clear();
  for (const YamlNode& item : entry.value.items) {
    if (item.is(YamlNode::Kind::Scalar) && !item.text.empty() && item.text.size() <= 255) {
      optimizer.no_decay.push_back(item.text);
    } else {
      problems.expected(item.line, field, "patterns of 1 to 255 bytes, as \"*norm.weight\"", item.shown());
    }
  }
}

void read_optimizer(Section section, OptimizerSpec& optimizer, Problems& problems) {
  section.choice("name", optimizer.name, Names{"adamw"});
  section.number("lr", optimizer.lr, {.least = 0, .most = 1e3});
  section.number("eps", optimizer.eps, {.least = 0, .most = 1, .above_least = true});
  section.number("weight_decay", optimizer.weight_decay, {.least = 0, .most = 1e3});
  section.number("clip_grad_norm", optimizer.clip_grad_norm, {.least = 0, .most = 1e12});
  section.choice("nonfinite", optimizer.nonfinite, Names{"fail", "skip"});
  if (const YamlNode::Entry* betas = section.entry("betas")) read_betas(*betas, optimizer, problems);
  if (const YamlNode::Entry* no_decay = section.entry("no_decay")) {
    read_no_decay(*no_decay, optimizer, problems);
  }
  section.finish();
}

// `given`: decay_steps stands in the file.
void check_decay_steps(const Section& section, int64_t steps, const LearningRateSchedule& schedule,
                       bool given, Problems& problems) {
  const bool wsd = schedule.name == "wsd";
  if (given && !wsd) {
    problems.expected(
        section.line_of("decay_steps"), "train.lr_schedule.decay_steps",
        fmt::format("no such key with {}, which decays from the warm-up to the last step", schedule.name),
        fmt::format("{}", schedule.decay_steps));
  } else if (wsd && !given) {
    problems.expected(section.line_of("decay_steps"), "train.lr_schedule.decay_steps",
                      "a value, which wsd needs", "none that can be used");
  } else if (wsd && steps > 0 && schedule.decay_steps > steps - std::min(steps, schedule.warmup_steps)) {
    problems.expected(section.line_of("decay_steps"), "train.lr_schedule.decay_steps",
                      fmt::format("at most train.steps - warmup_steps ({})",
                                  steps - std::min(steps, schedule.warmup_steps)),
                      fmt::format("{}", schedule.decay_steps));
  }
}

void read_lr_schedule(Section section, int64_t steps, LearningRateSchedule& schedule, Problems& problems) {
  section.choice("name", schedule.name, Names{"constant", "linear", "cosine", "wsd"});
  section.integer("warmup_steps", schedule.warmup_steps, {0, 10'000'000});
  const bool decay_given = section.integer("decay_steps", schedule.decay_steps, {1, 10'000'000});
  section.number("min_ratio", schedule.min_ratio, {.least = 0, .most = 1});
  section.finish();
  if (steps > 0 && schedule.warmup_steps > steps) {
    problems.expected(section.line_of("warmup_steps"), "train.lr_schedule.warmup_steps",
                      fmt::format("at most train.steps ({})", steps),
                      fmt::format("{}", schedule.warmup_steps));
  }
  check_decay_steps(section, steps, schedule, decay_given, problems);
}

void read_microbatch_size(Section& section, int64_t& size, Problems& problems) {
  const YamlNode::Entry* entry = section.entry("microbatch_size");
  if (entry == nullptr || !entry->value.is(YamlNode::Kind::Scalar) || entry->value.text != "auto") {
    section.integer("microbatch_size", size, {1, 1 << 20}, Need::Required);
    return;
  }
  problems.expected(
      entry->line, "train.microbatch_size",
      "a whole number, which `penstock submit` and `penstock up --run` plan and write in its place", "auto");
}

}  // namespace

void read_train(Section section, TrainSpec& train, Problems& problems) {
  section.integer("steps", train.steps, {1, 10'000'000}, Need::Required);
  section.integer("global_batch_size", train.global_batch_size, {1, 1 << 20}, Need::Required);
  read_microbatch_size(section, train.microbatch_size, problems);
  section.choice("dtype", train.dtype, Names{"float32", "bfloat16"}, Names{"mxfp8"});
  section.integer("seed", train.seed, {});
  read_optimizer(section.section("optimizer"), train.optimizer, problems);
  read_lr_schedule(section.section("lr_schedule"), train.steps, train.lr_schedule, problems);
  section.finish();
}

}  // namespace penstock::plan
