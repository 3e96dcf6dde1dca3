#include <bit>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/safetensors/values.h"
#include "base/safetensors/writer.h"
#include "client/commands/checkpoint_source.h"
#include "client/commands/commands.h"
#include "client/commands/model_folder.h"
#include "client/commands/tensor_files.h"
#include "client/commands/terminal.h"
#include "client/commands/whole_checkpoint.h"
#include "client/commands/work_progress.h"
#include "client/present/job_json.h"
#include "client/present/job_words.h"
#include "plan/interop/hugging_face.h"
#include "plan/render/human.h"
#include "plan/spec/weights_digest.h"

namespace penstock::client {
namespace {

using Parameters = std::vector<plan::ParameterSpec>;

class Export {
 public:
  Export(const ModelFolder& source, const CheckpointExportOptions& options)
      : source_(source),
        options_(options),
        rounds_(options.dtype == "bfloat16"),
        files_(cut_into_files(source.parameters, rounds_ ? 2 : 4, options.shard_bytes)),
        progress_(WorkProgress::of_bytes("export", source.elements() * (rounds_ ? 2 : 4))) {}

  // The index, or the only file, comes last: until then it is no folder of a model.
  Status run() {
    PENSTOCK_RETURN_IF_ERROR(make_target(options_.target));
    PENSTOCK_RETURN_IF_ERROR(write_atomically(path(plan::kHuggingFaceConfigFile),
                                              plan::model_to_hugging_face(source_.model, options_.dtype)));
    for (size_t i = 0; i < files_.size(); ++i)
      PENSTOCK_RETURN_IF_ERROR(write_file(name_of_file(i), files_[i]));
    if (files_.size() == 1) return ok_status();
    return write_atomically(path(kTensorIndexFile), format_tensor_index(weight_map_, data_bytes_));
  }

  size_t files() const { return files_.size(); }
  int64_t data_bytes() const { return data_bytes_; }
  // Of what was written.
  std::string digest() const { return plan::weights_digest(source_.model, digests_); }

 private:
  std::string path(const std::string& name) const { return options_.target + "/" + name; }

  std::string name_of_file(size_t file) const {
    if (files_.size() == 1) return kSingleTensorFile;
    return tensor_file_name("model", static_cast<int64_t>(file) + 1, static_cast<int64_t>(files_.size()));
  }

  Status write_file(const std::string& name, const Parameters& parameters) {
    std::vector<TensorEntry> tensors;
    for (const plan::ParameterSpec& parameter : parameters) {
      tensors.push_back(tensor_to_write(parameter.stored_name, parameter.shape, rounds_ ? "BF16" : "F32"));
      weight_map_[parameter.stored_name] = name;
    }
    // "format" is what transformers asks of a file before it reads it.
    PENSTOCK_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                              SafetensorsWriter::create(path(name), std::move(tensors), {{"format", "pt"}}));
    for (const plan::ParameterSpec& parameter : parameters)
      PENSTOCK_RETURN_IF_ERROR(write_parameter(writer, parameter));
    data_bytes_ += writer.data_bytes();
    return writer.commit();
  }

  Status write_parameter(SafetensorsWriter& writer, const plan::ParameterSpec& parameter) {
    PENSTOCK_RETURN_IF_ERROR(read_parameter(source_, parameter, [&](std::span<float> values) {
      if (rounds_) {
        for (float& value : values) value = std::bit_cast<float>(uint32_t{narrowed_to_bfloat16(value)} << 16);
      }
      digester_.add(values);
      progress_.add(static_cast<int64_t>(values.size()) * (rounds_ ? 2 : 4));
      return writer.append(values);
    }));
    digests_.push_back(digester_.finish());
    return ok_status();
  }

  const ModelFolder& source_;
  const CheckpointExportOptions& options_;
  const bool rounds_;
  const std::vector<Parameters> files_;
  WorkProgress progress_;
  plan::TensorDigester digester_;
  std::vector<plan::TensorDigest> digests_;
  std::map<std::string, std::string> weight_map_;
  int64_t data_bytes_ = 0;
};

std::string exported_text(const CheckpointExportOptions& options, const ModelFolder& source,
                          const Export& done) {
  if (options.output == "json") {
    return compact(Json{{"source", source.path},
                        {"directory", options.target},
                        {"tensors", source.parameters.size()},
                        {"dtype", options.dtype},
                        {"bytes", done.data_bytes()},
                        {"files", done.files()},
                        {"weights_digest", done.digest()}}) +
           "\n";
  }
  return fmt::format("{}: {} in {}, {} in {}\nweights_digest {}\n", options.target,
                     plan::counted(static_cast<int64_t>(source.parameters.size()), "tensor"), options.dtype,
                     plan::human_bytes(done.data_bytes()),
                     plan::counted(static_cast<int64_t>(done.files()), "file"), done.digest());
}

// With the optimizer's state, which only a checkpoint has.
int export_whole(const CheckpointExportOptions& options, const ModelFolder& source) {
  std::error_code ignored;
  if (!std::filesystem::exists(source.path + "/" + kManifestFile, ignored)) {
    return report_error(explained(
        failed_precondition("--optimizer: {}: expected a checkpoint, found weights alone, without an "
                            "optimizer's state",
                            source.path),
        source.path));
  }
  if (options.dtype != "float32")
    return report_error(invalid_argument("--optimizer: expected --dtype float32, found {}", options.dtype));
  const StatusOr<Checkpoint> written =
      write_whole_checkpoint(source, options.target, options.shard_bytes, "export");
  if (!written.ok()) return report_error(explained(written.status(), source.path));
  print(checkpoint_text(*written, source, options.output));
  return kExitSucceeded;
}

}  // namespace

int checkpoint_export(const CheckpointExportOptions& options) {
  const StatusOr<OpenedSource> opened = open_source(options.source, options.connection);
  if (!opened.ok()) return report_error(opened.status());
  const StatusOr<ModelFolder>& source = opened->folder;
  if (!source.ok()) return report_error(explained(source.status(), opened->path));
  if (options.optimizer) return export_whole(options, *source);
  Export work(*source, options);
  if (const Status done = work.run(); !done.ok()) return report_error(explained(done, source->path));
  print(exported_text(options, *source, work));
  return kExitSucceeded;
}

}  // namespace penstock::client
