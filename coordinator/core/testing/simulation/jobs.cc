#include "coordinator/core/testing/simulation/jobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <vector>

#include "coordinator/core/testing/world.h"
#include "plan/spec/split_source.h"

namespace penstock::coordinator::testing {
namespace {

struct Kind {
  std::string lines{};  // of the job file
  bool is_rebalanced = false;
  bool begins_with_another = false;
};
const std::array<Kind, 7> kKinds = {
    {{},
     {"restart: {max: 2, no_progress_limit: 2}\n"},
     {"checkpoint: {every: 1}\nrestart: {max: 4, no_progress_limit: 2}\n"},
     {"checkpoint: {every: 2, directory: /elsewhere}\n"},
     {.lines = "checkpoint: {every: 1}\nrebalance: apply\n", .is_rebalanced = true},
     {.lines = "restart: {max: 2, no_progress_limit: 2, "
               "from: {path: /other/step-000000002, step: 2, samples: 8}}\n",
      .begins_with_another = true},
     {.lines = "checkpoint: {every: 1}\nrestart: {max: 4, no_progress_limit: 2, "
               "from: {path: /other/step-000000002, step: 2, samples: 8}}\n",
      .begins_with_another = true}}};

// How a job is cut. There are six devices.
struct Cut {
  int pipeline, expert, data;
  auto operator<=>(const Cut&) const = default;
};
constexpr std::array<Cut, 7> kCuts = {
    {{1, 1, 1}, {2, 1, 1}, {3, 1, 1}, {1, 2, 1}, {2, 2, 1}, {3, 1, 2}, {1, 2, 2}}};

const Cut& any_cut(Scene& scene) {
  return kCuts[static_cast<size_t>(scene.below(scene.one_in(2) ? 3 : kCuts.size()))];
}

const Spec& spec_of(const Cut& cut, int steps, const Kind& kind) {
  static std::map<std::tuple<Cut, int, const Kind*>, Spec> cache;
  Spec& spec = cache[{cut, steps, &kind}];
  if (!spec) {
    spec = job_spec({.name = cut == kCuts[0] ? "solo" : "crew",
                     .pipeline = cut.pipeline,
                     .expert = cut.expert,
                     .data = cut.data,
                     .has_experts = true,
                     .steps = steps,
                     .extra = kind.lines});
  }
  return spec;
}

// A stage ends anywhere, and each of the rest has an item. Fewer stages where items run out.
plan::Split any_split(const plan::JobSpec& spec, Scene& scene) {
  plan::Split split(1);
  const std::vector<plan::Item> items = plan::model_items(spec.model);
  const auto stages = static_cast<size_t>(spec.stages());
  for (size_t i = 0; i < items.size(); ++i) {
    const size_t more = stages - split.size(), left = items.size() - i;
    if (!split.back().empty() && more > 0 && (left == more || scene.one_in(2))) split.emplace_back();
    split.back().push_back(items[i]);
  }
  return split;
}

SplitAnswer any_move(const SplitQuestion& question, Scene& scene) {
  const plan::JobSpec& spec = *question.spec;
  const plan::Split split = any_split(spec, scene);
  if (split.size() < static_cast<size_t>(spec.stages())) return {.because = "it has too few stages"};
  const std::string text = plan::to_text(split);
  const std::vector<std::string>& undone = question.moves.undone;
  const bool was_undone = std::find(undone.begin(), undone.end(), text) != undone.end();
  if (was_undone || split == spec.parallel.split) return {.because = "there is no better one"};
  return {.advice = SplitAdvice::Move,
          .because = "it is better",
          .split = text,
          .gain = 0.1 * scene.below(10),
          .spec = parsed(*plan::with_split(spec.yaml, split))};
}

}  // namespace

Spec any_job(Scene& scene) {
  const Kind& kind = kKinds[static_cast<size_t>(scene.below(kKinds.size()))];
  const int steps = kind.is_rebalanced ? 8 + scene.below(8)  // the first two of an attempt do not count
                                       : 1 + scene.below(4) + (kind.begins_with_another ? 2 : 0);
  return spec_of(any_cut(scene), steps, kind);
}

Spec cut_anew(const plan::JobSpec& spec, Scene& scene) {
  const auto steps = static_cast<int>(spec.train.steps);
  const plan::ParallelSpec& now = spec.parallel;
  for (const Kind& kind : kKinds) {
    if (kind.begins_with_another && steps <= 2) continue;
    if (spec_of({now.pipeline, now.expert, now.data}, steps, kind)->yaml == spec.yaml)
      return spec_of(any_cut(scene), steps, kind);
  }
  return nullptr;
}

SplitAnswer any_answer(const SplitQuestion& question, Scene& scene) {
  EXPECT_EQ(question.spec->rebalance, plan::Rebalance::Apply);
  EXPECT_EQ(question.attempts.back().stages, stage_items(*question.spec));
  if (question.spec->stages() == 1) return {.advice = SplitAdvice::Fixed, .because = "one stage"};
  if (scene.one_in(4)) return {.because = "it is the best"};
  const std::string& file_before = question.moves.file_before;
  if (file_before.empty()) return any_move(question, scene);
  if (scene.one_in(4)) return {.advice = SplitAdvice::Keep, .because = "it has paid"};
  return {.advice = SplitAdvice::Undo, .because = "it has not", .spec = parsed(file_before)};
}

const Spec& parsed(const std::string& yaml) {
  static std::map<std::string, Spec> cache;
  Spec& spec = cache[yaml];
  if (!spec) spec = std::make_shared<const plan::JobSpec>(*plan::parse_job_spec(yaml));
  return spec;
}

const std::shared_ptr<const AttemptPlan>& plan_of(const plan::JobSpec& spec) {
  static std::map<std::string, std::shared_ptr<const AttemptPlan>> cache;
  std::shared_ptr<const AttemptPlan>& plan = cache[spec.yaml];
  if (!plan) plan = *plan_attempt(spec);
  return plan;
}

}  // namespace penstock::coordinator::testing
