#include "client/commands/whole_checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/atomic_file.h"
#include "base/checkpoint/shard.h"
#include "base/text.h"
#include "client/commands/tensor_files.h"
#include "client/commands/work_progress.h"
#include "client/present/job_json.h"
#include "plan/interop/hugging_face.h"
#include "plan/render/human.h"
#include "plan/spec/weights_digest.h"

namespace penstock::client {
namespace {

constexpr int64_t kElementsOfPiece = 1 << 20;
constexpr int64_t kBytesOfElement = 3 * int64_t{sizeof(float)};  // with its moments
constexpr const char* kImportedJob = "imported";

using Parameters = std::vector<plan::ParameterSpec>;
// Takes the values of a tensor, piece by piece.
using Take = std::function<Status(std::span<float>)>;

// Where the moments come from: a checkpoint, or nowhere.
class Moments {
 public:
  static StatusOr<Moments> of(const ModelFolder& source) {
    Moments moments;
    std::error_code ignored;
    if (!std::filesystem::exists(source.path + "/" + kManifestFile, ignored)) return moments;
    PENSTOCK_ASSIGN_OR_RETURN(moments.checkpoint_, Checkpoint::open(source.path));
    for (const CheckpointShard& shard : moments.checkpoint_->manifest().shards) {
      PENSTOCK_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(source.path + "/" + shard.name));
      for (const CheckpointTensor& tensor : shard.tensors)
        moments.files_[tensor.name] = moments.shards_.size();
      moments.shards_.push_back(std::move(file));
    }
    return moments;
  }

  const std::optional<Checkpoint>& checkpoint() const { return checkpoint_; }

  Status read(const std::string& name, int64_t elements, const Take& take) const {
    std::vector<float> values;
    for (int64_t first = 0; first < elements; first += kElementsOfPiece) {
      values.assign(static_cast<size_t>(std::min(kElementsOfPiece, elements - first)), 0.0f);
      if (checkpoint_) {
        const SafetensorsFile& file = shards_[files_.at(name)];
        PENSTOCK_RETURN_IF_ERROR(file.read(*file.find(name), first, values));
      }
      PENSTOCK_RETURN_IF_ERROR(take(values));
    }
    return ok_status();
  }

 private:
  std::optional<Checkpoint> checkpoint_;
  std::vector<SafetensorsFile> shards_;  // of the checkpoint
  std::map<std::string, size_t> files_;  // of each tensor
};

class Writing {
 public:
  Writing(const ModelFolder& source, const Moments& moments, const std::string& target,
          const std::string& verb)
      : source_(source),
        moments_(moments),
        target_(target),
        progress_(WorkProgress::of_bytes(verb, source.elements() * kBytesOfElement)) {
    if (moments.checkpoint()) {
      manifest_ = moments.checkpoint()->manifest();
      manifest_.texts.clear();
      manifest_.shards.clear();
    } else {
      manifest_.job = kImportedJob;
    }
  }

  StatusOr<Checkpoint> run(int64_t shard_bytes) {
    PENSTOCK_RETURN_IF_ERROR(make_target(target_));
    PENSTOCK_RETURN_IF_ERROR(
        add_text(plan::kHuggingFaceConfigFile, plan::model_to_hugging_face(source_.model, "float32")));
    const std::vector<Parameters> files = cut_into_files(source_.parameters, kBytesOfElement, shard_bytes);
    for (size_t i = 0; i < files.size(); ++i) {
      const auto name = [&](const char* prefix) {
        return tensor_file_name(prefix, static_cast<int64_t>(i), static_cast<int64_t>(files.size()));
      };
      PENSTOCK_RETURN_IF_ERROR(write_weights(name("rank"), files[i]));
      PENSTOCK_RETURN_IF_ERROR(write_moments(name("moments"), files[i]));
    }
    manifest_.weights_digest = plan::weights_digest(source_.model, digests_);
    PENSTOCK_RETURN_IF_ERROR(add_text(kTensorIndexFile, format_tensor_index(weight_map_, weight_bytes_)));
    PENSTOCK_RETURN_IF_ERROR(write_atomically(target_ + "/" + kManifestFile, format_manifest(manifest_)));
    return as_every_reader_sees_it();
  }

 private:
  Status add_text(const std::string& name, const std::string& text) {
    manifest_.texts.push_back({name, static_cast<int64_t>(text.size()), digest_of(std::string_view(text))});
    return write_atomically(target_ + "/" + name, text);
  }

  Take into(ShardWriter& writer) {
    return [&](std::span<float> values) {
      progress_.add(static_cast<int64_t>(values.size_bytes()));
      return writer.append(values);
    };
  }

  Status write_weights(const std::string& name, const Parameters& parameters) {
    std::vector<ExpectedTensor> tensors;
    for (const plan::ParameterSpec& parameter : parameters) {
      tensors.push_back({parameter.stored_name, parameter.shape});
      weight_map_[parameter.stored_name] = name;
    }
    PENSTOCK_ASSIGN_OR_RETURN(ShardWriter writer, ShardWriter::create(target_, name, tensors));
    for (const plan::ParameterSpec& parameter : parameters)
      PENSTOCK_RETURN_IF_ERROR(read_parameter(source_, parameter, into(writer)));
    PENSTOCK_ASSIGN_OR_RETURN(CheckpointShard shard, writer.commit());
    for (const CheckpointTensor& tensor : shard.tensors) digests_.push_back(tensor.digest);
    weight_bytes_ += shard.data_bytes();
    return add(std::move(shard));
  }

  Status write_moments(const std::string& name, const Parameters& parameters) {
    std::vector<ExpectedTensor> weights;
    for (const plan::ParameterSpec& parameter : parameters)
      weights.push_back({parameter.stored_name, parameter.shape});
    std::vector<ExpectedTensor> tensors = checkpoint_tensors(weights);
    std::erase_if(tensors, [&](const ExpectedTensor& tensor) { return weight_map_.contains(tensor.name); });
    PENSTOCK_ASSIGN_OR_RETURN(ShardWriter writer, ShardWriter::create(target_, name, tensors));
    for (const ExpectedTensor& tensor : tensors) {
      const CheckpointTensor sized{tensor.name, tensor.shape, {}};
      PENSTOCK_RETURN_IF_ERROR(moments_.read(tensor.name, sized.elements(), into(writer)));
    }
    PENSTOCK_ASSIGN_OR_RETURN(CheckpointShard shard, writer.commit());
    return add(std::move(shard));
  }

  // What was read must be what was written once.
  Status add(CheckpointShard shard) {
    for (const CheckpointTensor& tensor : shard.tensors) {
      if (!moments_.checkpoint()) break;
      const CheckpointTensor* before = moments_.checkpoint()->find(tensor.name);
      if (before == nullptr || before->digest == tensor.digest) continue;
      return data_loss("{}: tensor {}: expected the digest {} as the manifest says, found {}: damaged",
                       source_.path, tensor.name, hex(before->digest), hex(tensor.digest));
    }
    manifest_.shards.push_back(std::move(shard));
    return ok_status();
  }

  StatusOr<Checkpoint> as_every_reader_sees_it() const {
    std::vector<ExpectedTensor> weights;
    for (const plan::ParameterSpec& parameter : source_.parameters)
      weights.push_back({parameter.stored_name, parameter.shape});
    PENSTOCK_ASSIGN_OR_RETURN(Checkpoint written, Checkpoint::open(target_));
    PENSTOCK_RETURN_IF_ERROR(written.check(checkpoint_tensors(weights)));
    return written;
  }

  const ModelFolder& source_;
  const Moments& moments_;
  const std::string target_;
  WorkProgress progress_;
  CheckpointManifest manifest_;
  std::map<std::string, std::string> weight_map_;
  std::vector<plan::TensorDigest> digests_;  // of the weights, in model order
  int64_t weight_bytes_ = 0;
};

}  // namespace

StatusOr<Checkpoint> write_whole_checkpoint(const ModelFolder& source, const std::string& target,
                                            int64_t shard_bytes, const std::string& verb) {
  PENSTOCK_ASSIGN_OR_RETURN(const Moments moments, Moments::of(source));
  return Writing(source, moments, target, verb).run(shard_bytes);
}

std::string checkpoint_text(const Checkpoint& written, const ModelFolder& source, const std::string& output) {
  const CheckpointManifest& manifest = written.manifest();
  if (output == "json") {
    return compact(Json{{"source", source.path},
                        {"directory", written.path()},
                        {"step", manifest.step},
                        {"tensors", source.parameters.size()},
                        {"bytes", written.data_bytes()},
                        {"files", manifest.shards.size()},
                        {"weights_digest", manifest.weights_digest}}) +
           "\n";
  }
  return fmt::format(
      "{}: checkpoint of step {}, {} and moments, {} in {}\nweights_digest {}\n", written.path(),
      manifest.step, plan::counted(static_cast<int64_t>(source.parameters.size()), "weight"),
      plan::human_bytes(written.data_bytes()),
      plan::counted(static_cast<int64_t>(manifest.shards.size()), "file"), manifest.weights_digest);
}

}  // namespace penstock::client
