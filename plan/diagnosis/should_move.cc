#include "plan/diagnosis/should_move.h"

#include <fmt/format.h>

namespace penstock::plan {
namespace {

constexpr double kGainKept = 0.5;  // of the predicted one

MoveAnswer stay(double gain, std::string because) {
  return {false, gain, std::move(because)};
}

}  // namespace

MoveAnswer should_move(const MoveQuestion& question) {
  if (!(question.current_step_seconds > 0) || !(question.best_step_seconds > 0))
    return stay(0, "nothing was measured");
  const double gain = 1 - question.best_step_seconds / question.current_step_seconds;
  if (question.samples < question.samples_min) {
    return stay(gain,
                fmt::format("{} samples of a stage; {} are needed", question.samples, question.samples_min));
  }
  const double sure = gain - question.model_error;
  if (sure <= 0) {
    return stay(gain,
                fmt::format("the best plan is {:.1f} % faster, which is within the model's error of {:.1f} %",
                            100 * gain, 100 * question.model_error));
  }
  const double saved = sure * question.current_step_seconds * static_cast<double>(question.steps_left);
  if (saved <= question.move_seconds) {
    return stay(gain, fmt::format("{} steps are left, which save {:.0f} s; the move takes {:.0f} s",
                                  question.steps_left, saved, question.move_seconds));
  }
  if (question.runs_that_agree < question.runs_min) {
    return stay(gain, fmt::format("{:.1f} % faster, by {} of {} runs that have to agree", 100 * gain,
                                  question.runs_that_agree, question.runs_min));
  }
  return {
      true, gain,
      fmt::format("{:.1f} % faster, {:.1f} % beyond the model's error; {:.0f} s saved, {:.0f} s for the move",
                  100 * gain, 100 * sure, saved, question.move_seconds)};
}

MoveAnswer should_keep(const MoveOutcome& outcome) {
  if (!(outcome.before_step_seconds > 0)) return stay(0, "nothing was measured before the move");
  const double gain = 1 - outcome.after_step_seconds / outcome.before_step_seconds;
  const bool keep = gain >= kGainKept * outcome.predicted_gain;
  return {keep, gain,
          fmt::format("{:.1f} % came of {:.1f} % predicted{}", 100 * gain, 100 * outcome.predicted_gain,
                      keep ? "" : ", less than half")};
}

}  // namespace penstock::plan
