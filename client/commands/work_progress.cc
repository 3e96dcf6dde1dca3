#include "client/commands/work_progress.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "client/commands/terminal.h"
#include "plan/render/human.h"

namespace penstock::client {
namespace {

constexpr const char* kWipeLine = "\r\x1b[K";
constexpr Duration kEvery = 1s;

}  // namespace

ProgressScreen ProgressScreen::of_stderr() {
  static const SystemClock clock;
  if (!is_terminal(stderr)) return {clock, {}};
  return {clock, [](const std::string& text) { print_on(stderr, text); }};
}

WorkProgress WorkProgress::of_bytes(std::string verb, int64_t total, ProgressScreen screen) {
  const auto text = [verb = std::move(verb), total](int64_t done) {
    const double share = total == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(total);
    return fmt::format("{}: {:.0f}% of {}", verb, 100.0 * share, plan::human_bytes(total));
  };
  return {text, std::move(screen)};
}

WorkProgress WorkProgress::of_things(std::string verb, int64_t total, std::string things,
                                     ProgressScreen screen) {
  const auto text = [verb = std::move(verb), total, things = std::move(things)](int64_t done) {
    return fmt::format("{}: {} of {} {}", verb, done, total, things);
  };
  return {text, std::move(screen)};
}

WorkProgress::WorkProgress(Text text, ProgressScreen screen)
    : text_(std::move(text)), screen_(std::move(screen)), next_(screen_.clock.now() + kEvery) {}

WorkProgress::~WorkProgress() {
  if (drawn_) screen_.draw(kWipeLine);
}

void WorkProgress::add(int64_t amount) {
  done_ += amount;
  if (!screen_.draw) return;
  const TimePoint now = screen_.clock.now();
  if (now < next_) return;
  next_ = now + kEvery;
  screen_.draw(kWipeLine + text_(done_));
  drawn_ = true;
}

}  // namespace penstock::client
