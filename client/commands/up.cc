#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/clock.h"
#include "base/text.h"
#include "client/commands/commands.h"
#include "client/commands/follow.h"
#include "client/commands/job_file.h"
#include "client/commands/terminal.h"
#include "client/local_service/interrupt.h"
#include "client/local_service/local_service.h"
#include "client/present/job_json.h"
#include "client/present/job_words.h"

namespace penstock::client {
namespace {

constexpr int kWorkersByDefault = 4;
constexpr int kEmulatedDevices = 64;  // of a worker, where no job says how many it needs
constexpr int kMostDevices = 256;     // that a worker offers
constexpr Duration kRegisterMax = 30s;
constexpr Duration kCancelMax = 10s;
constexpr Duration kPoll = 50ms;
constexpr Duration kWatchChildren = 200ms;

StatusOr<std::string> folder_of_this_program() {
  std::error_code failure;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", failure);
  if (failure) return unavailable("/proc/self/exe: {}", failure.message());
  return self.parent_path().string();
}

// The daemons to start, and what each of them offers. Emulated devices cost next to nothing: one daemon offers many, and
// all of a job's must be on one host.
struct Fleet {
  int workers = kWorkersByDefault;
  std::string device = "cpu";
  int devices = 1;  // of each worker
};

Fleet fleet_of(const UpOptions& options, const std::optional<JobFile>& file) {
  Fleet fleet;
  if (file) fleet.device = file->spec.device.kind;
  if (!options.device.empty()) fleet.device = options.device;
  if (fleet.device != "emulated") {
    fleet.workers = options.workers.value_or(file ? file->spec.ranks() : kWorkersByDefault);
    return fleet;
  }
  fleet.workers = options.workers.value_or(1);
  const int ranks = file ? file->spec.ranks() : kEmulatedDevices * fleet.workers;
  fleet.devices = std::clamp((ranks + fleet.workers - 1) / fleet.workers, 1, kMostDevices);
  return fleet;
}

Status check(const UpOptions& options, const Fleet& fleet, const std::optional<JobFile>& file) {
  if (fleet.device == "cuda") return unimplemented("--device cuda: not built yet; this version runs on cpu");
  if (!file) return ok_status();
  if (file->spec.device.kind != fleet.device) {
    return invalid_argument("--device {}: {} asks for {} devices, and would wait for ever", fleet.device,
                            options.run, file->spec.device.kind);
  }
  if (fleet.workers * fleet.devices < file->spec.ranks()) {
    return invalid_argument("--workers {}: {} needs {}, one a rank, and would wait for ever", fleet.workers,
                            options.run, file->spec.ranks());
  }
  return ok_status();
}

// Waits until every worker of ours has registered.
Status wait_for_workers(LocalService& service, Coordinator& coordinator, const InterruptWatcher& interrupts) {
  const SystemClock clock;
  const TimePoint last = clock.now() + kRegisterMax;
  while (true) {
    for (const std::string& ended : service.newly_ended()) return unavailable("{}", ended);
    const StatusOr<std::vector<v1::Worker>> workers = coordinator.workers();
    if (!workers.ok() && workers.status().code() != StatusCode::kUnavailable) return workers.status();
    std::vector<std::string> missing = service.worker_names();
    if (workers.ok()) {
      std::erase_if(missing, [&](const std::string& name) {
        return std::any_of(workers->begin(), workers->end(), [&](const v1::Worker& worker) {
          return worker.name() == name && worker.state() != "lost";
        });
      });
      if (missing.empty()) return ok_status();
    }
    if (clock.now() > last) {
      return deadline_exceeded("{} did not register within {:.0f} s; see {}/worker-*.log", list_cut(missing),
                               to_seconds(kRegisterMax), service.state());
    }
    if (interrupts.wait_for(kPoll)) return cancelled("interrupted");
  }
}

std::string where_things_are(const LocalService& service, size_t workers) {
  std::string text = fmt::format("coordinator  {} (pid {})\n", service.address(), service.coordinator_pid());
  if (!service.metrics().empty()) text += fmt::format("metrics      http://{}/metrics\n", service.metrics());
  text += fmt::format("workers      {} registered\n", workers);
  text += fmt::format("logs         {0}/coordinator.log, {0}/worker-*.log\n", service.state());
  return text;
}

// Ctrl-C while the job runs: it is cancelled like any other and may end in good order.
StatusOr<v1::Job> cancel_and_wait(Coordinator& coordinator, const std::string& name) {
  say("penstock: interrupted; cancelling job " + name);
  const StatusOr<v1::JobState> cancelling = coordinator.cancel(name);
  if (!cancelling.ok()) say("penstock: " + message(cancelling.status()));
  const SystemClock clock;
  const TimePoint last = clock.now() + kCancelMax;
  while (true) {
    StatusOr<v1::Job> job = coordinator.job(name);
    if (!job.ok() || has_ended(job->state()) || clock.now() > last) return job;
    std::this_thread::sleep_for(kPoll);
  }
}

// Submits, follows and returns the job as it ended, losses included.
// `last_seen` has a name once the job is submitted.
StatusOr<v1::Job> run_job(const UpOptions& options, const JobFile& file, Coordinator& coordinator,
                          InterruptWatcher& interrupts, v1::Job& last_seen) {
  const StatusOr<v1::SubmitResponse> answer = coordinator.submit({.spec_yaml = file.yaml});
  if (!answer.ok()) return not_submitted(options.run, file, answer.status());
  const v1::SubmitResponse& submitted = *answer;
  last_seen.set_name(submitted.name());
  last_seen.set_state(v1::JOB_STATE_QUEUED);
  say(fmt::format("job/{} submitted", submitted.name()));
  for (const std::string& words : file.start) say("  " + words);
  for (const std::string& note : submitted.notes()) say("  note: " + note);

  interrupts.when_interrupted([&] { coordinator.stop(); });
  StatusOr<v1::Job> job = follow(coordinator, submitted.name(), stderr, &last_seen);
  interrupts.when_interrupted(nullptr);
  if (!job.ok() && interrupts.count() > 0) job = cancel_and_wait(coordinator, submitted.name());
  if (!job.ok()) return job;
  return coordinator.job(submitted.name(), Coordinator::Losses::Include);
}

void report_outcome(const UpOptions& options, const LocalService& service, const v1::Job& job) {
  if (options.output == "json") {
    print(compact(outcome_json(job)) + "\n");
    return;
  }
  std::string text = fmt::format("job/{} {}", job.name(), name_of(job.state()));
  if (!job.losses().empty()) {
    text += fmt::format(": loss {:.4f} at the first step, {:.4f} at the last", job.losses(0),
                        job.losses(job.losses_size() - 1));
  }
  if (job.state() != v1::JOB_STATE_SUCCEEDED && !job.reason().empty()) text += "\n  reason: " + job.reason();
  text += fmt::format("\n  state and logs: {}\n", service.state());
  print(text);
}

// A program that reads the one line of `--run -o json` gets one even where no job came to be.
int report_no_job(const UpOptions& options, const std::string& name, const Status& why) {
  const int result = report_error(why);
  if (!options.run.empty() && options.output == "json") {
    const char* state = result == kExitRefused ? "refused" : "failed";
    print(compact(no_outcome_json(name, state, message(why))) + "\n");
  }
  return result;
}

// Stays until interrupted, and says which child ended meanwhile.
int serve(LocalService& service, const InterruptWatcher& interrupts) {
  while (!interrupts.wait_for(kWatchChildren)) {
    for (const std::string& ended : service.newly_ended()) say("penstock: " + ended);
    if (service.coordinator_has_ended()) return kExitFailed;
  }
  return kExitSucceeded;
}

int run_and_report(const UpOptions& options, const JobFile& file, LocalService& service,
                   Coordinator& coordinator, InterruptWatcher& interrupts) {
  v1::Job last_seen;
  const StatusOr<v1::Job> job = run_job(options, file, coordinator, interrupts, last_seen);
  for (const std::string& ended : service.newly_ended()) say("penstock: " + ended);
  if (job.ok()) {
    report_outcome(options, service, *job);
    return exit_code_of(*job);
  }
  if (last_seen.name().empty()) return report_no_job(options, file.spec.name, job.status());
  if (options.output == "json") {
    last_seen.set_reason(message(job.status()));
    print(compact(outcome_json(last_seen)) + "\n");
  }
  return report_error(job.status());
}

int serve_or_run(const UpOptions& options, const std::optional<JobFile>& file, LocalService& service,
                 InterruptWatcher& interrupts) {
  // The coordinator does not come back by itself here: what it takes to answer is all the patience there is.
  StatusOr<std::unique_ptr<Coordinator>> coordinator = Coordinator::at(service.address(), {.away_max = 2s});
  const std::string name = file ? file->spec.name : "";
  if (!coordinator.ok()) return report_no_job(options, name, coordinator.status());
  if (const Status ready = wait_for_workers(service, **coordinator, interrupts); !ready.ok()) {
    return report_no_job(options, name, ready);
  }
  const std::string where = where_things_are(service, service.worker_names().size());
  if (file) {
    say(where);
    return run_and_report(options, *file, service, **coordinator, interrupts);
  }
  if (options.output == "json") {
    Json json;
    json["address"] = service.address();
    json["metrics"] = service.metrics();
    json["pid"] = service.coordinator_pid();
    json["workers"] = service.worker_names();
    json["state"] = service.state();
    print(compact(json) + "\n");
  } else {
    print(where +
          fmt::format("\nexport PENSTOCK_COORDINATOR={}\n\nCtrl-C stops everything.\n", service.address()));
  }
  return output_written() ? serve(service, interrupts) : kExitFailed;
}

}  // namespace

int up(const UpOptions& options) {
  std::optional<JobFile> file;
  if (!options.run.empty()) {
    StatusOr<JobFile> read = read_job_file(options.run);
    if (!read.ok()) return report_no_job(options, "", read.status());
    file = *std::move(read);
  }
  const std::string name = file ? file->spec.name : "";
  const Fleet fleet = fleet_of(options, file);
  if (const Status checked = check(options, fleet, file); !checked.ok())
    return report_no_job(options, name, checked);
  const StatusOr<std::string> binaries = folder_of_this_program();
  if (!binaries.ok()) return report_no_job(options, name, binaries.status());

  InterruptWatcher interrupts;
  StatusOr<LocalService> service = LocalService::start({.binaries = *binaries,
                                                        .state = options.state,
                                                        .workers = fleet.workers,
                                                        .device = fleet.device,
                                                        .devices = fleet.devices,
                                                        .coordinator_port = options.coordinator_port,
                                                        .threads = options.threads},
                                                       interrupts);
  if (!service.ok()) return report_no_job(options, name, service.status());
  const int result = serve_or_run(options, file, *service, interrupts);
  if (const Status stopped = service->stop(interrupts); !stopped.ok()) say("penstock: " + message(stopped));
  return result;
}

}  // namespace penstock::client
