#include "coordinator/core/records.h"

#include <algorithm>

namespace penstock::coordinator {
namespace {

struct Applier {
  std::map<std::string, StoredJob>& jobs;
  std::map<std::string, Cordon>& cordons;

  StoredJob* find(const std::string& name) {
    auto found = jobs.find(name);
    return found == jobs.end() ? nullptr : &found->second;
  }

  void operator()(const CreateJob& write) {
    StoredJob job;
    job.definition = write.definition;
    job.status = write.status;
    jobs.insert_or_assign(write.definition.name, std::move(job));
  }
  void operator()(const PutDefinition& write) {
    if (StoredJob* job = find(write.definition.name)) job->definition = write.definition;
  }
  void operator()(const PutStatus& write) {
    if (StoredJob* job = find(write.job)) job->status = write.status;
  }
  void operator()(const AddEvent& write) {
    StoredJob* job = find(write.job);
    if (!job) return;
    if (!job->events.empty() && write.sequence + 1 == job->next_event) job->events.pop_back();
    job->events.push_back(write.event);
    job->next_event = write.sequence + 1;
    const auto extra = static_cast<int64_t>(job->events.size()) - write.kept;
    if (extra > 0) job->events.erase(job->events.begin(), job->events.begin() + extra);
  }
  void operator()(const AddLosses& write) {
    StoredJob* job = find(write.job);
    if (!job) return;
    job->losses.resize(static_cast<size_t>(write.first_step));
    job->losses.insert(job->losses.end(), write.losses.begin(), write.losses.end());
  }
  void operator()(const AddValidation& write) {
    StoredJob* job = find(write.job);
    if (!job) return;
    std::vector<ValidationView>& all = job->validation;
    all.insert(all.end(), write.losses.begin(), write.losses.end());
    if (all.size() > kValidationsKept) all.erase(all.begin(), all.end() - kValidationsKept);
  }
  void operator()(const DropValidation& write) {
    if (StoredJob* job = find(write.job))
      std::erase_if(job->validation, [&](const ValidationView& each) { return each.step > write.beyond; });
  }
  void operator()(const PutStages& write) {
    if (StoredJob* job = find(write.job)) job->stages = write.stages;
  }
  void operator()(const PutMemory& write) {
    if (StoredJob* job = find(write.job)) job->memory = write.ranks;
  }
  void operator()(const PutTrace& write) {
    if (StoredJob* job = find(write.job)) job->traces[write.step] = write.ranks;
  }
  void operator()(const DropTrace& write) {
    if (StoredJob* job = find(write.job)) job->traces.erase(write.step);
  }
  void operator()(const PutMeasurements& write) {
    if (StoredJob* job = find(write.job)) job->measurements[write.measurements.attempt] = write.measurements;
  }
  void operator()(const DropMeasurements& write) {
    StoredJob* job = find(write.job);
    if (!job) return;
    job->measurements.erase(job->measurements.begin(), job->measurements.lower_bound(write.below));
  }
  void operator()(const PutAttempt& write) {
    StoredJob* job = find(write.job);
    if (!job) return;
    job->placed_attempt = write.attempt;
    job->placed_order = write.order;
    job->placed = write.ranks;
  }
  void operator()(const ForgetAttempt& write) {
    StoredJob* job = find(write.job);
    if (!job) return;
    job->placed_attempt = 0;
    job->placed_order = 0;
    job->placed.clear();
  }
  void operator()(const DropJob& write) { jobs.erase(write.job); }
  void operator()(const PutCordon& write) { cordons[write.worker] = write.cordon; }
  void operator()(const DropCordon& write) { cordons.erase(write.worker); }
};

}  // namespace

void Archive::apply(const Write& write) {
  std::visit(Applier{jobs_, cordons_}, write);
}

const StoredJob* Archive::find(const std::string& job) const {
  auto found = jobs_.find(job);
  return found == jobs_.end() ? nullptr : &found->second;
}

std::vector<StoredJob> Archive::jobs() const {
  std::vector<StoredJob> all;
  all.reserve(jobs_.size());
  for (const auto& [name, job] : jobs_) {
    all.push_back(job);
    if (!has_ended(job.status.state)) continue;
    all.back().losses_in_store = job.losses.size();
    all.back().losses.clear();
  }
  std::sort(all.begin(), all.end(), [](const StoredJob& a, const StoredJob& b) {
    return a.definition.sequence < b.definition.sequence;
  });
  return all;
}

}  // namespace penstock::coordinator
