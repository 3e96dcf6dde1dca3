#include <fmt/format.h>

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

void read_optimizer(Section section, OptimizerSpec& optimizer, Problems& problems) {
  section.choice("name", optimizer.name, Names{"adamw"});
  section.number("lr", optimizer.lr, {.least = 0, .most = 1e3});
  section.number("eps", optimizer.eps, {.least = 0, .most = 1, .above_least = true});
  section.number("weight_decay", optimizer.weight_decay, {.least = 0, .most = 1e3});
  section.number("clip_grad_norm", optimizer.clip_grad_norm, {.least = 0, .most = 1e12});
  if (const YamlNode::Entry* betas = section.entry("betas")) read_betas(*betas, optimizer, problems);
  section.finish();
}

void read_lr_schedule(Section section, int64_t steps, LearningRateSchedule& schedule, Problems& problems) {
  section.choice("name", schedule.name, Names{"constant", "cosine"});
  section.integer("warmup_steps", schedule.warmup_steps, {0, 10'000'000});
  section.number("min_ratio", schedule.min_ratio, {.least = 0, .most = 1});
  section.finish();
  if (steps > 0 && schedule.warmup_steps > steps) {
    problems.expected(section.line_of("warmup_steps"), "train.lr_schedule.warmup_steps",
                      fmt::format("at most train.steps ({})", steps),
                      fmt::format("{}", schedule.warmup_steps));
  }
}

}  // namespace

void read_train(Section section, TrainSpec& train, Problems& problems) {
  section.integer("steps", train.steps, {1, 10'000'000}, Need::Required);
  section.integer("global_batch_size", train.global_batch_size, {1, 1 << 20}, Need::Required);
  section.integer("microbatch_size", train.microbatch_size, {1, 1 << 20}, Need::Required);
  section.choice("dtype", train.dtype, Names{"float32"}, Names{"bfloat16", "mxfp8"});
  section.integer("seed", train.seed, {});
  read_optimizer(section.section("optimizer"), train.optimizer, problems);
  read_lr_schedule(section.section("lr_schedule"), train.steps, train.lr_schedule, problems);
  section.finish();
}

}  // namespace penstock::plan
