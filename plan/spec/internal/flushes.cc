#include "plan/spec/internal/flushes.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/text.h"
#include "plan/schedule/families.h"
#include "plan/schedule/limits.h"
#include "plan/spec/limits.h"

namespace penstock::plan {
namespace {

constexpr const char* kField = "parallel.flush_every";
constexpr int64_t kUsual = 50;
constexpr int64_t kMostByDefault = 400;  // a program grows with its updates

int line_of(const JobSpec& spec, const std::string& field) {
  const auto found = spec.lines.find(field);
  return found != spec.lines.end() ? found->second : spec.lines.at("parallel.schedule");
}

// What every rank would have to wait for in every update.
void refuse_what_meets_in_every_update(const JobSpec& spec, Problems& problems) {
  const std::string& schedule = spec.parallel.schedule;
  if (const double limit = spec.train.optimizer.clip_grad_norm; limit != 0) {
    const std::string field = "train.optimizer.clip_grad_norm";
    problems.add(
        line_of(spec, field), field,
        fmt::format("expected 0 with schedule {}, found {}{}: clipping takes the norm of the whole model, "
                    "and these ranks do not wait for each other between updates; write clip_grad_norm: 0",
                    schedule, limit, spec.lines.contains(field) ? "" : " (the default)"));
  }
  if (spec.train.optimizer.nonfinite == "skip") {
    const std::string field = "train.optimizer.nonfinite";
    problems.add(
        line_of(spec, field), field,
        fmt::format("expected fail with schedule {}, found skip: all ranks skip a step or none, and these "
                    "do not ask each other between updates",
                    schedule));
  }
  if (spec.model.tie_word_embeddings) {
    const std::string field = "model.tie_word_embeddings";
    problems.add(
        line_of(spec, field), field,
        fmt::format("expected false with schedule {}, found true: the ranks of the embedding and of the "
                    "head would meet in every update; untie them, or take a schedule that flushes, as 1f1b",
                    schedule));
  }
}

// Where the pipeline must be drained: at the end, before each validation and for each checkpoint.
struct Drains {
  int64_t every = 0;  // a program's updates divide it
  std::string text;   // "train.steps (100) and validation.every (20)"
};

Drains drains_of(const JobSpec& spec) {
  Drains drains{spec.train.steps, fmt::format("train.steps ({})", spec.train.steps)};
  const auto add = [&](const char* field, int64_t every) {
    if (every == 0) return;
    drains.every = std::gcd(drains.every, every);
    drains.text += fmt::format(" and {} ({})", field, every);
  };
  add("validation.every", spec.validation.every);
  add("checkpoint.every", spec.checkpoint.every);
  add("restart.from.step", spec.restart.from.step);
  return drains;
}

// Updates that a program may span, so that it is no larger than that of a synchronous step may be.
int64_t most_updates(const JobSpec& spec) {
  const int64_t of_a_rank = spec.microbatches() * spec.parallel.stages_per_rank;
  return std::max<int64_t>(1, std::min({int64_t{limits::kUpdates}, kMostMicrobatchesOfARank / of_a_rank,
                                        kMostMicrobatchesOfAJob / (of_a_rank * spec.parallel.pipeline)}));
}

std::vector<int64_t> divisors_up_to(int64_t most, int64_t number) {
  std::vector<int64_t> divisors;
  for (int64_t divisor = 1; divisor <= std::min(most, number); ++divisor) {
    if (number % divisor == 0) divisors.push_back(divisor);
  }
  return divisors;
}

void choose(JobSpec& spec, const Drains& drains) {
  const auto away_from_usual = [](int64_t updates) {
    const double ratio = static_cast<double>(updates) / static_cast<double>(kUsual);
    return std::max(ratio, 1 / ratio);
  };
  const std::vector<int64_t> divisors =
      divisors_up_to(std::min(kMostByDefault, most_updates(spec)), drains.every);
  const int64_t chosen = *std::min_element(divisors.begin(), divisors.end(), [&](int64_t a, int64_t b) {
    return away_from_usual(a) < away_from_usual(b);
  });
  spec.parallel.flush_every = static_cast<int>(chosen);
  spec.notes.push_back(
      fmt::format("{}: {}, the divisor of {} that is nearest to {}: the pipeline drains after every "
                  "{} updates{}",
                  kField, chosen, drains.text, kUsual, chosen,
                  chosen == 1 ? ", which makes the training synchronous" : ""));
}

void check(const JobSpec& spec, const Drains& drains, Problems& problems) {
  const int64_t said = spec.parallel.flush_every, most = most_updates(spec);
  const std::string found = fmt::format("{}", said);
  if (drains.every % said == 0 && said <= most) return;
  std::string nearest;
  for (const int64_t divisor : divisors_up_to(most, drains.every)) {
    if (divisor < said) nearest = fmt::format("{}", divisor);
    if (divisor > said) {
      nearest += fmt::format(" or {}", divisor);
      break;
    }
  }
  if (said > most) {
    return problems.expected(
        line_of(spec, kField), kField,
        fmt::format("at most {} updates between drains for {} microbatches of {} stages, as {}", most,
                    spec.microbatches(), spec.stages(), nearest),
        found);
  }
  problems.expected(
      line_of(spec, kField), kField,
      fmt::format("a divisor of {}, where the pipeline must be drained, as {}", drains.text, nearest), found);
}

WeightVersionRule version_rule(const std::string& schedule) {
  const StatusOr<ComputeProgram> smallest = generate({.name = schedule, .ranks = 1, .microbatches = 1});
  return smallest.ok() ? smallest->version_rule : WeightVersionRule::Synchronous;
}

}  // namespace

bool versions_differ_by_stage(const std::string& schedule) {
  return version_rule(schedule) == WeightVersionRule::Stashed;
}

void settle_flushes(JobSpec& spec, Problems& problems) {
  const bool is_said = spec.lines.contains(kField);
  if (version_rule(spec.parallel.schedule) == WeightVersionRule::Synchronous) {
    if (!is_said) return;
    return problems.expected(
        line_of(spec, kField), kField,
        fmt::format("no such key with {}, which drains the pipeline in every update", spec.parallel.schedule),
        fmt::format("{}", spec.parallel.flush_every));
  }
  refuse_what_meets_in_every_update(spec, problems);
  const Drains drains = drains_of(spec);
  if (is_said) return check(spec, drains, problems);
  choose(spec, drains);
}

}  // namespace penstock::plan
