#include "coordinator/controller/internal/waits.h"

#include <optional>

namespace penstock::coordinator {
namespace {

// What the wait is answered with now, or nothing yet.
std::optional<StatusOr<JobView>> ask_job(const JobWait& wait, const State& state, int64_t unix_ms) {
  auto job = state.jobs.find(wait.name);
  // An ended job changes no more: whoever waits for its next version would wait for ever.
  const bool unchanged = job != state.jobs.end() && job->second.admitted && !job->second.ended() &&
                         job->second.version <= wait.after_version;
  if (unchanged) return std::nullopt;
  return view_job(state, wait.name, wait.include_losses, unix_ms);
}

std::optional<StatusOr<LogPage>> ask_log(const LogWait& wait, const State& state, size_t limit) {
  StatusOr<LogPage> page = read_log(state, wait.name, wait.rank, wait.cursor, limit);
  if (wait.follow && page.ok() && page->lines.empty() && !page->ended) return std::nullopt;
  return page;
}

Status full(size_t bound) {
  return resource_exhausted("{} calls wait for jobs to change, at most that many may", bound);
}

}  // namespace

void Waits::add(WaitId id, JobWait wait, OnJob done, const State& state, int64_t unix_ms) {
  if (auto answer = ask_job(wait, state, unix_ms)) return done(*std::move(answer));
  if (size() >= bound_) return done(full(bound_));
  names_[id] = wait.name;
  jobs_[wait.name].emplace(id, Pending<JobWait, OnJob>{std::move(wait), std::move(done)});
}

void Waits::add(WaitId id, LogWait wait, OnLog done, const State& state) {
  if (auto answer = ask_log(wait, state, log_lines_per_page_)) return done(*std::move(answer));
  if (size() >= bound_) return done(full(bound_));
  names_[id] = wait.name;
  logs_[wait.name].emplace(id, Pending<LogWait, OnLog>{std::move(wait), std::move(done)});
}

template <typename Wait, typename Done, typename Ask>
void Waits::answer(ByJob<Wait, Done>& waits, const std::string& job, Ask ask) {
  auto found = waits.find(job);
  if (found == waits.end()) return;
  for (auto it = found->second.begin(); it != found->second.end();) {
    auto answer = ask(it->second.wait);
    if (!answer) {
      ++it;
      continue;
    }
    names_.erase(it->first);
    const Done done = std::move(it->second.done);
    it = found->second.erase(it);
    done(*std::move(answer));
  }
  if (found->second.empty()) waits.erase(found);
}

void Waits::job_changed(const std::string& job, const State& state, int64_t unix_ms) {
  answer(jobs_, job, [&](const JobWait& wait) { return ask_job(wait, state, unix_ms); });
}

void Waits::log_grew(const std::string& job, const State& state) {
  answer(logs_, job, [&](const LogWait& wait) { return ask_log(wait, state, log_lines_per_page_); });
}

bool Waits::abandon(WaitId id, const Status& why) {
  auto name = names_.find(id);
  if (name == names_.end()) return false;
  const std::string job = name->second;
  names_.erase(name);
  const auto take = [&](auto& waits) {
    auto found = waits.find(job);
    if (found == waits.end()) return;
    auto pending = found->second.extract(id);
    if (found->second.empty()) waits.erase(found);
    if (pending) pending.mapped().done(why);
  };
  take(jobs_);
  take(logs_);
  return true;
}

void Waits::abandon_all(const Status& why) {
  while (!names_.empty()) abandon(names_.begin()->first, why);
}

}  // namespace penstock::coordinator
