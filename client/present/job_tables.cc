#include "client/present/job_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "client/present/job_shape.h"
#include "client/present/job_words.h"
#include "plan/render/glyphs.h"
#include "plan/render/human.h"

namespace penstock::client {
namespace {

using plan::Table;
constexpr auto kRight = Table::Align::Right;
constexpr int kReasonMax = 80;  // in a table; the description has all of it

std::string age(int64_t unix_ms, int64_t now_unix_ms) {
  return unix_ms <= 0 ? "" : plan::human_duration(std::floor(seconds_since(unix_ms, now_unix_ms)));
}

std::string step_text(const v1::Job& job) {
  return fmt::format("{}/{}", job.step(), job.steps());
}

std::string milliseconds(bool known, double value) {
  return known ? plan::bounded_decimal(value, 2) : "";
}
std::string bytes(bool known, int64_t value) {
  return known ? plan::human_bytes(value) : "";
}

std::string slots(const v1::StageStatus& stage) {
  if (!stage.has_activation_slots()) return "";
  const std::string peak =
      stage.has_activation_slots_peak() ? fmt::format("{}", stage.activation_slots_peak()) : "-";
  return fmt::format("{}/{}", peak, stage.activation_slots());
}

// Most held and all, of the slots for rows of experts.
std::string payload(const v1::StageStatus& stage) {
  if (!stage.has_payload_slots()) return "";
  const std::string peak =
      stage.has_payload_slots_peak() ? fmt::format("{}", stage.payload_slots_peak()) : "-";
  return fmt::format("{}/{}", peak, stage.payload_slots());
}

bool has_payloads(const v1::Job& job) {
  return std::any_of(job.stages().begin(), job.stages().end(),
                     [](const v1::StageStatus& stage) { return stage.has_payload_slots(); });
}

// "embedding,0..3" stays short however many blocks a stage holds.
std::string layers_text(const v1::StageStatus& stage) {
  const auto& layers = stage.layers();
  const auto is_block = [&](int i) {
    return !layers[i].empty() && layers[i].find_first_not_of("0123456789") == std::string::npos;
  };
  std::string text;
  for (int i = 0; i < layers.size(); ++i) {
    int last = i;
    while (is_block(i) && last + 1 < layers.size() && is_block(last + 1)) ++last;
    text += (text.empty() ? "" : ",") + layers[i] + (last > i ? ".." + layers[last] : "");
    i = last;
  }
  return text;
}

Table stage_table(const v1::Job& job) {
  std::vector<Table::Column> columns = {{"STAGE", kRight},   {"RANK", kRight},     {"WORKER"},
                                        {"LAYERS"},          {"F-MS", kRight},     {"B-MS", kRight},
                                        {"WAIT-MS", kRight}, {"BUSY", kRight},     {"SLOTS", kRight},
                                        {"PEAK", kRight},    {"PREDICTED", kRight}};
  const bool payloads = has_payloads(job);
  if (payloads) columns.insert(columns.begin() + 9, {"PAYLOADS", kRight});
  Table table(std::move(columns));
  for (const v1::StageStatus& stage : job.stages()) {
    std::vector<std::string> cells = {
        fmt::format("{}", stage.stage()),
        fmt::format("{}", stage.rank()),
        stage.worker(),
        layers_text(stage),
        milliseconds(stage.has_forward_ms(), stage.forward_ms()),
        milliseconds(stage.has_backward_ms(), stage.backward_ms()),
        milliseconds(stage.has_wait_ms(), stage.wait_ms()),
        stage.has_busy_fraction() ? plan::bounded_decimal(100 * stage.busy_fraction(), 0) + "%" : "",
        slots(stage),
        bytes(stage.has_memory_peak_bytes(), stage.memory_peak_bytes()),
        bytes(stage.has_memory_predicted_bytes(), stage.memory_predicted_bytes())};
    if (payloads) cells.insert(cells.begin() + 9, payload(stage));
    table.add_row(std::move(cells));
  }
  return table;
}

Table event_table(const v1::Job& job, int64_t now_unix_ms) {
  Table table({{"AGE", kRight}, {"STATE"}, {"BY"}, {"REASON"}});
  for (const v1::JobEvent& event : job.events()) {
    table.add_row({age(event.unix_ms(), now_unix_ms), name_of(event.state()), event.by(), event.reason()});
  }
  return table;
}

// Rank and job of a worker's device; both empty when it is free.
std::string rank_text(const v1::Worker& device) {
  return device.job().empty() ? "" : fmt::format("{}", device.rank());
}

std::string executor_text(const v1::Worker& device) {
  return device.executor_pid() > 0 ? fmt::format("{}", device.executor_pid()) : "";
}

Table device_table(std::span<const v1::Worker> devices, int64_t now_unix_ms) {
  Table table(
      {{"DEVICE"}, {"STATE"}, {"JOB"}, {"RANK", kRight}, {"EXECUTOR", kRight}, {"AGE", kRight, true}});
  for (const v1::Worker& device : devices) {
    table.add_row({device.device(), device.state(), device.job(), rank_text(device), executor_text(device),
                   age(device.since_unix_ms(), now_unix_ms)});
  }
  return table;
}

// "Name:        value", values in one column; lines without a value are left out.
class Facts {
 public:
  void add(const std::string& name, const std::string& value) {
    if (!value.empty()) text_ += fmt::format("{:<15} {}\n", name + ":", plan::printable(value));
  }
  void section(const std::string& title, const Table& table) {
    text_ += "\n" + title + "\n";
    for (const std::string& line : table.lines()) text_ += "  " + line + "\n";
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace

Table job_table(const std::vector<v1::Job>& jobs, int64_t now_unix_ms, TableWidth width) {
  std::vector<Table::Column> columns = {
      {"NAME"}, {"STATE"}, {"STEP", kRight}, {"LOSS", kRight}, {"TOKENS/S", kRight, true}};
  const bool wide = width == TableWidth::Wide;
  if (wide) columns.insert(columns.end(), {{"SCHEDULE"}, {"RANKS", kRight}, {"ATTEMPT", kRight}});
  columns.push_back({"AGE", kRight, true});
  if (wide) columns.push_back({"REASON"});

  Table table(std::move(columns));
  for (const v1::Job& job : jobs) {
    std::vector<std::string> cells = {job.name(), name_of(job.state()), step_text(job), loss_text(job),
                                      tokens_per_second_text(job)};
    if (wide) {
      cells.insert(cells.end(),
                   {job.schedule(), fmt::format("{}", job.ranks()), fmt::format("{}", job.attempt())});
    }
    cells.push_back(age(job.submitted_unix_ms(), now_unix_ms));
    if (wide) cells.push_back(plan::shortened(plan::printable(job.reason()), kReasonMax));
    table.add_row(std::move(cells));
  }
  return table;
}

Table worker_table(const std::vector<v1::Worker>& workers, int64_t now_unix_ms, TableWidth width) {
  std::vector<Table::Column> columns = {{"NAME"}, {"STATE"}, {"DEVICE"}, {"JOB"}, {"RANK", kRight}};
  const bool wide = width == TableWidth::Wide;
  if (wide) columns.insert(columns.end(), {{"PID", kRight}, {"EXECUTOR", kRight}, {"HOST"}, {"METRICS"}});
  columns.push_back({"AGE", kRight, true});

  Table table(std::move(columns));
  for (const v1::Worker& worker : workers) {
    std::vector<std::string> cells = {worker.name(), worker.state(), worker.device(), worker.job(),
                                      rank_text(worker)};
    if (wide) {
      cells.insert(cells.end(), {fmt::format("{}", worker.pid()), executor_text(worker), worker.host(),
                                 worker.metrics_address()});
    }
    cells.push_back(age(worker.since_unix_ms(), now_unix_ms));
    table.add_row(std::move(cells));
  }
  return table;
}

std::string describe_job(const v1::Job& job, int64_t now_unix_ms) {
  const StatusOr<plan::JobSpec> spec = plan::parse_job_spec(job.spec_yaml());
  Facts facts;
  facts.add("Name", job.name());
  const std::string by = job.by().empty() ? "" : ", by " + job.by();
  facts.add("State",
            fmt::format("{} for {}{}", name_of(job.state()), age(job.since_unix_ms(), now_unix_ms), by));
  facts.add("Reason", job.reason());
  facts.add("Submitted", age(job.submitted_unix_ms(), now_unix_ms) + " ago");
  facts.add("Schedule", job.schedule());
  facts.add("Ranks", spec.ok() ? ranks_text(spec->parallel) : fmt::format("{}", job.ranks()));
  if (spec.ok()) facts.add("Parameters", parameters_text(job, *spec));
  facts.add("Attempt", fmt::format("{}", job.attempt()));
  if (!job.started_from().empty())
    facts.add("Began with", fmt::format("step {} of {}", job.first_step(), job.started_from()));
  facts.add("Step", step_text(job));
  facts.add("Loss", loss_text(job));
  if (!job.validation().empty()) facts.add("Validation loss", validation_text(job));
  facts.add("Tokens/s", tokens_per_second_text(job));
  if (job.has_step_seconds()) facts.add("Step time", plan::human_duration(job.step_seconds()));
  facts.add("Run time", plan::human_duration(job.seconds()));
  facts.add("Weights digest", job.weights_digest());
  facts.add("Weights", job.weights_directory());
  if (job.durable_step() > 0)
    facts.add("Checkpoint", fmt::format("of step {} in {}", job.durable_step(), job.checkpoints_directory()));
  if (has_ended(job.state())) facts.add("Exit code", fmt::format("{}", exit_code_of(job)));
  if (spec.ok() && spec->parallel.pipelines() > 1)
    facts.section(fmt::format("Pipelines (rank = {} x place in it + pipeline)", spec->parallel.pipelines()),
                  pipeline_table(*spec));
  if (!job.stages().empty())
    facts.section("Stages (times: median of the last step; memory: of the rank)", stage_table(job));
  if (!job.memory().empty())
    facts.section("Memory of ranks (predicted before the attempt, highest measured)", memory_table(job));
  if (!job.events().empty()) facts.section("Events", event_table(job, now_unix_ms));
  return facts.text();
}

std::string describe_worker(std::span<const v1::Worker> devices, int64_t now_unix_ms) {
  PENSTOCK_CHECK(!devices.empty(), "a worker has at least one device");
  const v1::Worker& worker = devices.front();
  Facts facts;
  facts.add("Name", worker.name());
  facts.add("Host", worker.host());
  facts.add("Pid", fmt::format("{}", worker.pid()));
  facts.add("Incarnation", fmt::format("{}", worker.incarnation()));
  facts.add("Metrics", worker.metrics_address());
  if (!worker.drained_by().empty())
    facts.add("Drained by",
              worker.drained_by() + " (no new ranks; a job leaves it when it is paused and resumed)");
  facts.section("Devices", device_table(devices, now_unix_ms));
  return facts.text();
}

}  // namespace penstock::client
