#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/checkpoint/directory.h"
#include "base/text.h"
#include "client/commands/checkpoint_source.h"
#include "client/commands/commands.h"
#include "client/commands/follow.h"
#include "client/commands/model_folder.h"
#include "client/commands/terminal.h"
#include "client/commands/whole_checkpoint.h"
#include "client/commands/work_progress.h"
#include "client/present/job_json.h"
#include "client/present/job_words.h"
#include "plan/interop/hugging_face.h"
#include "plan/render/human.h"
#include "plan/render/table.h"
#include "plan/spec/model_source.h"
#include "plan/spec/weights_digest.h"

namespace penstock::client {
namespace {

Json folder_json(const ModelFolder& folder) {
  Json json;
  json["directory"] = folder.path;
  json["tensors"] = folder.parameters.size();
  json["parameters"] = folder.elements();
  json["bytes"] = folder.stored_bytes();
  json["files"] = folder.tensors.files().size();
  return json;
}

std::string folder_text(const ModelFolder& folder) {
  using plan::counted;
  return fmt::format(
      "{}, {} parameters, {} in {}", counted(static_cast<int64_t>(folder.parameters.size()), "tensor"),
      plan::human_count(static_cast<double>(folder.elements())), plan::human_bytes(folder.stored_bytes()),
      counted(static_cast<int64_t>(folder.tensors.files().size()), "file"));
}

// Reads every value: finite, and hashed.
StatusOr<std::string> digest_of(const ModelFolder& folder) {
  WorkProgress progress = WorkProgress::of_bytes("verify", folder.elements() * 4);
  plan::TensorDigester digester;
  std::vector<plan::TensorDigest> digests;
  for (const plan::ParameterSpec& parameter : folder.parameters) {
    PENSTOCK_RETURN_IF_ERROR(read_parameter(folder, parameter, [&](std::span<float> values) {
      digester.add(values);
      progress.add(static_cast<int64_t>(values.size_bytes()));
      return ok_status();
    }));
    digests.push_back(digester.finish());
  }
  return plan::weights_digest(folder.model, digests);
}

// Of a folder that is a checkpoint: optimizer state and all, each byte as it was written. The step, or -1: it is none.
StatusOr<int64_t> verify_checkpoint(const ModelFolder& folder) {
  std::error_code ignored;
  if (!std::filesystem::exists(folder.path + "/" + kManifestFile, ignored)) return int64_t{-1};
  PENSTOCK_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(folder.path));
  std::vector<ExpectedTensor> weights;
  for (const plan::ParameterSpec& parameter : folder.parameters)
    weights.push_back({parameter.stored_name, parameter.shape});
  PENSTOCK_RETURN_IF_ERROR(checkpoint.check(checkpoint_tensors(weights)));
  WorkProgress progress = WorkProgress::of_bytes("verify checkpoint", checkpoint.data_bytes());
  PENSTOCK_RETURN_IF_ERROR(checkpoint.verify([&](int64_t bytes) { progress.add(bytes); }));
  return checkpoint.manifest().step;
}

// What is wrong with a folder is the answer of `verify`, and an error of the others. One that has gone is not wrong.
int report_invalid(const CheckpointOptions& options, const std::string& path, const Status& status) {
  if (is_gone(path)) return report_error(explained(status, path));
  if (options.output != "json") {
    say(fmt::format("penstock: {}: invalid\n  {}", path, message(status)));
  } else {
    print(compact(Json{{"directory", path}, {"valid", false}, {"reason", message(status)}}) + "\n");
  }
  return kExitFailed;
}

// Those of a job that can be seen from this machine, oldest first.
std::vector<ListedCheckpoint> checkpoints_here(const v1::Job& job) {
  if (job.checkpoints_directory().empty()) return {};
  StatusOr<std::vector<ListedCheckpoint>> found = list_checkpoints(job.checkpoints_directory());
  if (!found.ok()) return {};
  std::reverse(found->begin(), found->end());
  return *std::move(found);
}

struct ListRow {
  std::string job;
  int64_t step = 0;
  std::string weights_digest;
  std::string directory;
};

// Of all jobs: checkpoints, each by its manifest, and final weights.
std::vector<ListRow> list_rows(const std::vector<v1::Job>& jobs) {
  std::vector<std::vector<ListedCheckpoint>> listed;
  int64_t total = 0;
  for (const v1::Job& job : jobs) {
    listed.push_back(checkpoints_here(job));
    total += static_cast<int64_t>(listed.back().size());
  }
  WorkProgress progress = WorkProgress::of_things("list", total, "checkpoints");
  std::vector<ListRow> rows;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const v1::Job& job = jobs[i];
    for (const ListedCheckpoint& one : listed[i]) {
      const StatusOr<Checkpoint> checkpoint = Checkpoint::open(one.path);
      rows.push_back({job.name(), one.step,
                      checkpoint.ok() ? checkpoint->manifest().weights_digest : "damaged", one.path});
      progress.add(1);
    }
    if (!job.weights_directory().empty())
      rows.push_back({job.name(), job.step(), job.weights_digest(), job.weights_directory()});
  }
  return rows;
}

std::string model_keys_text(const ModelFolder& folder) {
  std::string text;
  for (const std::string& key : plan::model_keys(folder.model)) text += "  " + key + "\n";
  return text;
}

// Of a job that starts at step 0 with the folder's weights alone.
std::string model_section(const ModelFolder& folder) {
  return fmt::format("model:\n  from: {}\n  # as its {} says:\n", compact(Json(folder.path)),
                     plan::kHuggingFaceConfigFile) +
         model_keys_text(folder);
}

// Of a job that goes on with the checkpoint.
std::string restart_sections(const ModelFolder& folder, const Checkpoint& checkpoint) {
  std::error_code ignored;
  const std::string path = std::filesystem::absolute(checkpoint.path(), ignored).lexically_normal().string();
  return "model:\n" + model_keys_text(folder) + fmt::format("restart:\n  from: {}\n", compact(Json(path)));
}

// Makes a checkpoint of the folder.
int import_to(const CheckpointImportOptions& options, const ModelFolder& folder) {
  const StatusOr<Checkpoint> written =
      write_whole_checkpoint(folder, options.target, kShardBytesByDefault, "import");
  if (!written.ok()) return report_error(explained(written.status(), folder.path));
  if (options.output == "json") {
    print(checkpoint_text(*written, folder, options.output));
  } else {
    say(checkpoint_text(*written, folder, options.output) + "this starts a job from it:");
    print(restart_sections(folder, *written));
  }
  return kExitSucceeded;
}

}  // namespace

int checkpoint_verify(const CheckpointOptions& options) {
  const StatusOr<OpenedSource> source = open_source(options.source, options.connection);
  if (!source.ok()) return report_error(source.status());
  const StatusOr<ModelFolder>& folder = source->folder;
  if (!folder.ok()) return report_invalid(options, source->path, folder.status());
  const StatusOr<int64_t> step = verify_checkpoint(*folder);
  if (!step.ok()) return report_invalid(options, source->path, step.status());
  const StatusOr<std::string> digest = digest_of(*folder);
  if (!digest.ok()) return report_invalid(options, source->path, digest.status());
  if (options.output == "json") {
    Json json = folder_json(*folder);
    json["valid"] = true;
    json["weights_digest"] = *digest;
    if (*step >= 0) json["step"] = *step;
    print(compact(json) + "\n");
  } else {
    const std::string what = *step < 0 ? "" : fmt::format("checkpoint of step {}, ", *step);
    print(fmt::format("{}: valid; {}{}\nweights_digest {}\n", folder->path, what, folder_text(*folder),
                      *digest));
  }
  return kExitSucceeded;
}

int checkpoint_import(const CheckpointImportOptions& options) {
  const StatusOr<OpenedSource> source = open_source(options.source, options.connection);
  if (!source.ok()) return report_error(source.status());
  const StatusOr<ModelFolder>& folder = source->folder;
  if (!folder.ok()) return report_error(explained(folder.status(), source->path));
  if (!options.target.empty()) return import_to(options, *folder);
  if (options.output == "json") {
    Json json = folder_json(*folder);
    json["model"] = model_section(*folder);
    print(compact(json) + "\n");
  } else {
    say(fmt::format("{}: {}; this starts a job from it:", folder->path, folder_text(*folder)));
    print(model_section(*folder));
  }
  return kExitSucceeded;
}

int checkpoint_list(const CheckpointListOptions& options) {
  StatusOr<std::unique_ptr<Coordinator>> coordinator = connect(options.connection.coordinator);
  if (!coordinator.ok()) return report_error(coordinator.status());
  const StatusOr<std::vector<v1::Job>> jobs = (*coordinator)->jobs();
  if (!jobs.ok()) return report_error(jobs.status());
  plan::Table table({{"JOB"}, {"STEP", plan::Table::Align::Right}, {"WEIGHTS DIGEST"}, {"DIRECTORY"}});
  Json list = Json::array();
  for (const ListRow& row : list_rows(*jobs)) {
    list.push_back({{"job", row.job},
                    {"step", row.step},
                    {"weights_digest", row.weights_digest},
                    {"directory", row.directory}});
    table.add_row({row.job, fmt::format("{}", row.step), row.weights_digest, row.directory});
  }
  if (options.output == "json") {
    print(compact(list) + "\n");
  } else if (list.empty()) {
    say(fmt::format("no checkpoints and no final weights at {}", (*coordinator)->address()));
  } else {
    print(table.text(is_terminal(stdout) ? columns_of(stdout) : 0));
  }
  return kExitSucceeded;
}

}  // namespace penstock::client
