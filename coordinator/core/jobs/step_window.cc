#include "coordinator/core/jobs/step_window.h"

#include <utility>

namespace penstock::coordinator {

StepWindow::Added StepWindow::add(StepReport report, int64_t steps_ahead) {
  if (report.step < committed_) return Added::Duplicate;
  const int64_t ahead = report.step - committed_;
  if (ahead >= steps_ahead) return Added::OutOfWindow;
  if (static_cast<int64_t>(steps_.size()) <= ahead) steps_.resize(static_cast<size_t>(ahead) + 1);
  Slot& slot = steps_[static_cast<size_t>(ahead)];
  slot.reports.resize(static_cast<size_t>(ranks_));
  std::optional<StepReport>& place = slot.reports[static_cast<size_t>(report.rank.value)];
  if (place) return Added::Duplicate;
  place = std::move(report);
  ++slot.count;
  return Added::Taken;
}

std::optional<std::vector<StepReport>> StepWindow::take_committed() {
  if (steps_.empty() || steps_.front().count < ranks_) return std::nullopt;
  std::vector<StepReport> reports;
  reports.reserve(static_cast<size_t>(ranks_));
  for (std::optional<StepReport>& report : steps_.front().reports) reports.push_back(*std::move(report));
  steps_.pop_front();
  ++committed_;
  return reports;
}

int64_t StepWindow::next_of(RankIndex rank) const {
  int64_t step = committed_;
  for (const Slot& slot : steps_) {
    if (slot.count == 0 || !slot.reports[static_cast<size_t>(rank.value)]) break;
    ++step;
  }
  return step;
}

}  // namespace penstock::coordinator
