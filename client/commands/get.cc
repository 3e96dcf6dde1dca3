#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "client/commands/commands.h"
#include "client/commands/follow.h"
#include "client/commands/terminal.h"
#include "client/present/job_json.h"
#include "client/present/job_tables.h"
#include "client/present/job_words.h"
#include "client/present/news.h"

namespace penstock::client {
namespace {

constexpr Duration kWatchInterval = 1s;

// What was asked for, in every form in which it can be shown: an entry a job, or a device of a worker.
struct Found {
  std::vector<std::string> names;  // "job/quickstart"
  std::vector<Json> objects;
  plan::Table table;

  // The devices of a worker stand together, and share its name.
  std::vector<std::string> distinct_names() const {
    std::vector<std::string> distinct = names;
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    return distinct;
  }
};

TableWidth width_of(const GetOptions& options) {
  return options.output == "wide" ? TableWidth::Wide : TableWidth::Narrow;
}

StatusOr<Found> get_jobs(Coordinator& coordinator, const GetOptions& options) {
  std::vector<v1::Job> jobs;
  if (options.name.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(jobs, coordinator.jobs());
  } else {
    PENSTOCK_ASSIGN_OR_RETURN(v1::Job job, coordinator.job(options.name));
    jobs.push_back(std::move(job));
  }
  Found found{{}, {}, job_table(jobs, SystemClock().unix_milliseconds(), width_of(options))};
  for (const v1::Job& job : jobs) {
    found.names.push_back("job/" + job.name());
    found.objects.push_back(job_json(job));
  }
  return found;
}

StatusOr<Found> get_workers(Coordinator& coordinator, const GetOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<v1::Worker> workers, coordinator.workers());
  if (!options.name.empty()) {
    std::erase_if(workers, [&](const v1::Worker& worker) { return worker.name() != options.name; });
    if (workers.empty()) {
      return not_found("worker {}: the coordinator knows no such worker; see `penstock get workers`",
                       options.name);
    }
  }
  Found found{{}, {}, worker_table(workers, SystemClock().unix_milliseconds(), width_of(options))};
  for (const v1::Worker& worker : workers) {
    found.names.push_back("worker/" + worker.name());
    found.objects.push_back(worker_json(worker));
  }
  return found;
}

StatusOr<Found> find(Coordinator& coordinator, const GetOptions& options) {
  const bool jobs = options.kind == "job" || options.kind == "jobs";
  return jobs ? get_jobs(coordinator, options) : get_workers(coordinator, options);
}

// One object where one was named, else a list; a list too for a named worker of several devices.
Json whole(const Found& found, const GetOptions& options) {
  if (!options.name.empty() && found.objects.size() == 1) return found.objects.front();
  return Json(found.objects);
}

// A line that wraps is no table any more; a file, and what reads a pipe, take lines of any length.
int table_width() {
  return is_terminal(stdout) ? columns_of(stdout) : 0;
}

std::string text_of(const Found& found, const GetOptions& options) {
  if (options.output == "json") return indented(whole(found, options));
  if (options.output == "yaml") return yaml(whole(found, options));
  if (options.output != "name") return found.table.text(table_width());
  std::string text;
  for (const std::string& name : found.distinct_names()) text += name + "\n";
  return text;
}

// The entries to compare from look to look: whole documents for programs, lines for people.
std::vector<Entry> entries_of(const Found& found, const GetOptions& options) {
  if (options.output == "json" || options.output == "yaml") {
    const bool json = options.output == "json";
    const Json document = whole(found, options);
    const std::string text = json ? compact(document) : "---\n" + yaml(document);
    return {{"", text, text}};
  }
  std::vector<Entry> entries;
  if (options.output == "name") {
    for (const std::string& name : found.distinct_names()) entries.push_back({name, "", name});
    return entries;
  }
  const std::vector<std::string> lines = found.table.lines(table_width());
  const std::vector<std::string> news = found.table.news();
  for (size_t row = 0; row < news.size(); ++row) {
    // A worker's devices share its name, and keep their order.
    const auto twin =
        std::count(found.names.begin(), found.names.begin() + static_cast<ptrdiff_t>(row), found.names[row]);
    entries.push_back({fmt::format("{} {}", found.names[row], twin), news[row], lines[row + 1]});
  }
  return entries;
}

std::string heading_of(const Found& found, const GetOptions& options) {
  const bool table = options.output == "table" || options.output == "wide";
  return table ? found.table.lines(table_width()).front() : "";
}

// Survives a coordinator that restarts, as `watch` does.
int get_and_watch(Coordinator& coordinator, const GetOptions& options) {
  const SystemClock clock;
  News news;
  std::optional<TimePoint> last_answer;
  bool away_told = false;
  while (true) {
    const StatusOr<Found> found = find(coordinator, options);
    if (found.ok()) {
      if (!print(news.next(heading_of(*found, options), entries_of(*found, options)))) return kExitFailed;
      last_answer = clock.now();
      away_told = false;
    } else {
      const bool patient = last_answer && clock.now() - *last_answer <= StreamPolicy().away_max;
      if (!patient || !may_come_back(found.status().code())) return report_error(found.status());
      if (!std::exchange(away_told, true)) say("penstock: " + message(found.status()) + "; trying again");
    }
    std::this_thread::sleep_for(kWatchInterval);
  }
}

}  // namespace

int get(const GetOptions& options) {
  StatusOr<std::unique_ptr<Coordinator>> coordinator = connect(options.connection.coordinator);
  if (!coordinator.ok()) return report_error(coordinator.status());
  if (options.watch) return get_and_watch(**coordinator, options);
  const StatusOr<Found> found = find(**coordinator, options);
  if (!found.ok()) return report_error(found.status());
  const bool table = options.output == "table" || options.output == "wide";
  if (table && found->objects.empty()) {
    say(fmt::format("no {} at {}", options.kind, (*coordinator)->address()));
    return kExitSucceeded;
  }
  print(text_of(*found, options));
  return kExitSucceeded;
}

}  // namespace penstock::client
