#include "client/commands/model_shape.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/text.h"
#include "client/commands/terminal.h"
#include "plan/interop/hugging_face.h"
#include "plan/spec/model_source.h"

namespace penstock::client {
namespace {

Status check(const ModelShapeOptions& shape) {
  const auto missing = [](const char* option) {
    return invalid_argument("{}: missing; a model's config does not say it", option);
  };
  if (shape.pipeline == 0) return missing("--pipeline");
  if (shape.global_batch_size == 0) return missing("--global-batch-size");
  if (shape.sequence_length == 0) return missing("--sequence-length");
  return ok_status();
}

// The file, or that of a folder.
std::string config_path(const std::string& given) {
  std::error_code ignored;
  const bool is_folder = std::filesystem::is_directory(given, ignored);
  return is_folder ? given + "/" + plan::kHuggingFaceConfigFile : given;
}

}  // namespace

StatusOr<std::string> job_text_of(const ModelShapeOptions& shape) {
  PENSTOCK_RETURN_IF_ERROR(check(shape));
  const std::string path = config_path(shape.config);
  PENSTOCK_ASSIGN_OR_RETURN(const std::string config, read_file(path, plan::kLargestHuggingFaceConfig));
  const StatusOr<plan::ModelSpec> model = plan::model_from_hugging_face(config);
  if (!model.ok()) return with_context(model.status(), path);
  return fmt::format(
      "name: planned\n"
      "model: {{{}}}\n"
      "data: {{source: tokens, tokenizer: none, format: npy, sequence_length: {}}}\n"
      "train: {{steps: 1, global_batch_size: {}, microbatch_size: {}, dtype: {}}}\n"
      "parallel: {{pipeline: {}, expert: {}, data: {}}}\n",
      join(plan::model_keys(*model)), shape.sequence_length, shape.global_batch_size, shape.microbatch_size,
      shape.dtype, shape.pipeline, shape.expert, shape.data);
}

}  // namespace penstock::client
