#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "base/clock.h"
#include "client/commands/commands.h"
#include "client/commands/follow.h"
#include "client/commands/terminal.h"
#include "client/present/job_json.h"
#include "client/present/job_tables.h"
#include "client/present/job_words.h"

namespace penstock::client {
namespace {

constexpr Duration kWatchInterval = 1s;

// What was asked for, in every form in which it can be shown.
struct Found {
  std::vector<std::string> names;  // "job/quickstart"
  std::vector<Json> objects;
  plan::Table table;
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

// One object where one was named, else a list.
Json whole(const Found& found, const GetOptions& options) {
  if (!options.name.empty()) return found.objects.front();
  return Json(found.objects);
}

std::string text_of(const Found& found, const GetOptions& options) {
  if (options.output == "json") return indented(whole(found, options));
  if (options.output == "yaml") return yaml(whole(found, options));
  if (options.output != "name") return found.table.text();
  std::string text;
  for (const std::string& name : found.names) text += name + "\n";
  return text;
}

// What changed since the last look: whole documents for programs, lines for people.
std::string change_of(const Found& found, const GetOptions& options, std::set<std::string>& before) {
  std::vector<std::string> pieces;
  if (options.output == "json") {
    pieces = {compact(whole(found, options))};
  } else if (options.output == "yaml") {
    pieces = {"---\n" + yaml(whole(found, options))};
  } else {
    pieces = options.output == "name" ? found.names : found.table.lines();
  }
  std::string text;
  for (const std::string& piece : pieces) {
    if (!before.contains(piece)) text += piece + (piece.ends_with('\n') ? "" : "\n");
  }
  before = {pieces.begin(), pieces.end()};
  return text;
}

int get_and_watch(Coordinator& coordinator, const GetOptions& options) {
  std::set<std::string> before;
  while (true) {
    const StatusOr<Found> found = find(coordinator, options);
    if (!found.ok()) return report_error(found.status());
    print(change_of(*found, options, before));
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
