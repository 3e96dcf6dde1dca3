#include "client/present/progress.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/utf8.h"
#include "client/present/job_words.h"
#include "plan/render/bars.h"
#include "plan/render/human.h"

namespace penstock::client {
namespace {

constexpr Duration kDrawingInterval = 100ms;
constexpr Duration kLineInterval = 1s;

// No line wraps, and none ends inside a character.
std::string cut(const std::string& line, int width) {
  return std::string(utf8_first(line, static_cast<size_t>(std::max(width, 0))));
}

double fraction_done(const v1::Job& job) {
  return job.steps() > 0 ? static_cast<double>(job.step()) / static_cast<double>(job.steps()) : 0;
}

std::string state_line(const v1::Job& job) {
  const std::string reason = plan::printable(job.reason());
  return fmt::format("{}  {}{}", plan::printable(job.name()), name_of(job.state()),
                     reason.empty() ? "" : ": " + reason);
}

std::string stage_line(const v1::StageStatus& stage, const ProgressStyle& style) {
  const int bar = std::clamp(style.width - 46, 6, 42);
  std::string line = fmt::format("stage {:>3} rank {:>3} {} {:>3}% busy", stage.stage(), stage.rank(),
                                 plan::busy_bar(stage.busy_fraction(), bar, style.glyphs),
                                 plan::bounded_decimal(100 * stage.busy_fraction(), 0));
  if (stage.has_forward_ms()) line += "  F " + plan::human_duration(stage.forward_ms() / 1000);
  if (stage.has_backward_ms()) line += "  B " + plan::human_duration(stage.backward_ms() / 1000);
  return line;
}

}  // namespace

std::string progress_line(const v1::Job& job) {
  std::string line = fmt::format("step {}/{}", job.step(), job.steps());
  if (job.has_loss()) line += "  loss " + loss_text(job);
  if (!job.validation().empty()) line += "  validation " + validation_text(job);
  if (job.has_tokens_per_second()) line += fmt::format("  {} tokens/s", tokens_per_second_text(job));
  if (has_ended(job.state())) return line + "  in " + plan::human_duration(job.seconds());
  const double left = seconds_left(job);
  return left <= 0 ? line : line + "  ETA " + plan::human_duration(left);
}

std::string progress_block(const v1::Job& job, const ProgressStyle& style) {
  std::string block = cut(state_line(job), style.width) + "\n";
  const std::string line = progress_line(job);
  const int bar = std::clamp(style.width - plan::display_width(line) - 1, 0, 42);
  const std::string drawn = plan::progress_bar(fraction_done(job), bar, style.glyphs);
  block += cut(drawn.empty() ? line : drawn + " " + line, style.width) + "\n";

  int shown = 0;
  int measured = 0;
  for (const v1::StageStatus& stage : job.stages()) {
    if (!stage.has_busy_fraction()) continue;
    ++measured;
    if (shown >= style.stages_max) continue;
    ++shown;
    block += cut(stage_line(stage, style), style.width) + "\n";
  }
  if (measured > shown) {
    const std::string more = plan::counted(measured - shown, "more stage");
    block += cut(fmt::format("({}: penstock describe job {})", more, job.name()), style.width) + "\n";
  }
  return block;
}

std::string ProgressPrinter::next(const v1::Job& job, TimePoint now) {
  const bool state_changed = !shown_before_ || job.state() != state_ || job.reason() != reason_;
  const Duration interval = style_.terminal ? kDrawingInterval : kLineInterval;
  const bool due = !shown_before_ || now - shown_at_ >= interval;
  // A reason that changes without pause must not flood a log: only a new state passes the bound.
  const bool must = !shown_before_ || job.state() != state_;
  if (!must && !due) return "";

  std::string text = style_.terminal ? drawing(job) : plain(job, state_changed);
  if (text.empty()) return "";
  shown_before_ = true;
  shown_at_ = now;
  state_ = job.state();
  reason_ = job.reason();
  step_ = job.step();
  return text;
}

std::string ProgressPrinter::drawing(const v1::Job& job) {
  const std::string block = progress_block(job, style_);
  const std::string wipe = lines_drawn_ > 0 ? fmt::format("\x1b[{}A\x1b[J", lines_drawn_) : "";
  lines_drawn_ = static_cast<int>(std::count(block.begin(), block.end(), '\n'));
  return wipe + block;
}

std::string ProgressPrinter::plain(const v1::Job& job, bool state_changed) {
  const bool ended = has_ended(job.state());
  std::string text;
  if (state_changed && !ended) text += state_line(job) + "\n";
  if (job.step() > 0 && (job.step() != step_ || ended)) text += progress_line(job) + "\n";
  if (ended) text += state_line(job) + "\n";
  return text;
}

}  // namespace penstock::client
