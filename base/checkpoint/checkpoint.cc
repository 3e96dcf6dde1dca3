#include "base/checkpoint/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/check.h"
#include "base/text.h"

namespace penstock {
namespace {

constexpr int64_t kBytesOfPiece = 1 << 20;

Status check_size(const ReadableFile& file, int64_t expected) {
  if (file.size() == expected) return ok_status();
  return data_loss("{}: expected {} bytes as the manifest says, found {}: {}", file.path(), expected,
                   file.size(), file.size() < expected ? "cut" : "not the file that was written");
}

StatusOr<Digest> digest_of_file(const ReadableFile& file) {
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(kBytesOfPiece, file.size())));
  Digester digester;
  for (int64_t first = 0; first < file.size(); first += kBytesOfPiece) {
    const auto piece =
        std::span(buffer).first(static_cast<size_t>(std::min(kBytesOfPiece, file.size() - first)));
    PENSTOCK_RETURN_IF_ERROR(file.read(first, piece));
    digester.add(piece);
  }
  return digester.finish();
}

// The last part of a path, also where it ends with a slash.
std::string name_of(const std::string& folder) {
  const std::filesystem::path path = std::filesystem::path(folder).lexically_normal();
  return (path.has_filename() ? path.filename() : path.parent_path().filename()).string();
}

}  // namespace

StatusOr<Checkpoint> Checkpoint::open(const std::string& folder) {
  Checkpoint checkpoint;
  checkpoint.path_ = folder;
  const std::string path = folder + "/" + kManifestFile;
  const StatusOr<ReadableFile> file = ReadableFile::open(path);
  if (absl::IsNotFound(file.status()))
    return not_found("{}: no such file: no checkpoint, or one that was not written to its end", path);
  if (!file.ok()) return file.status();
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, file->read_all(kLargestManifest));
  StatusOr<CheckpointManifest> manifest = parse_manifest(text);
  if (!manifest.ok()) return with_context(manifest.status(), path);
  checkpoint.manifest_ = *std::move(manifest);
  const int64_t step = step_of_checkpoint(name_of(folder));
  if (step >= 0 && step != checkpoint.manifest_.step)
    return data_loss("{}: step: expected {} as the folder's name says, found {}", path, step,
                     checkpoint.manifest_.step);
  for (const CheckpointText& each : checkpoint.manifest_.texts)
    PENSTOCK_RETURN_IF_ERROR(checkpoint.check_text(each));
  for (const CheckpointShard& shard : checkpoint.manifest_.shards)
    PENSTOCK_RETURN_IF_ERROR(checkpoint.add_shard(shard));
  return checkpoint;
}

Status Checkpoint::check_text(const CheckpointText& text) const {
  PENSTOCK_ASSIGN_OR_RETURN(const ReadableFile file, ReadableFile::open(path_ + "/" + text.name));
  PENSTOCK_RETURN_IF_ERROR(check_size(file, text.bytes));
  PENSTOCK_ASSIGN_OR_RETURN(const Digest found, digest_of_file(file));
  if (found == text.digest) return ok_status();
  return data_loss("{}: expected the digest {} as the manifest says, found {}: damaged or edited",
                   file.path(), hex(text.digest), hex(found));
}

Status Checkpoint::add_shard(const CheckpointShard& shard) {
  PENSTOCK_ASSIGN_OR_RETURN(ReadableFile file, ReadableFile::open(path_ + "/" + shard.name));
  const std::string header = shard.header();
  PENSTOCK_RETURN_IF_ERROR(check_size(file, static_cast<int64_t>(header.size()) + shard.data_bytes()));
  std::string found(header.size(), '\0');
  PENSTOCK_RETURN_IF_ERROR(file.read(0, std::as_writable_bytes(std::span(found))));
  if (found != header) {
    const auto at = std::mismatch(header.begin(), header.end(), found.begin()).first - header.begin();
    return data_loss(
        "{}: expected the header of the tensors in the manifest, found another one from offset {}",
        file.path(), at);
  }
  const size_t number = shards_.size();
  Shard opened{std::move(file), {}};
  auto offset = static_cast<int64_t>(header.size());
  for (size_t i = 0; i < shard.tensors.size(); ++i) {
    opened.offsets.push_back(offset);
    offset += shard.tensors[i].elements() * int64_t{sizeof(float)};
    places_[shard.tensors[i].name] = {number, i};
  }
  shards_.push_back(std::move(opened));
  return ok_status();
}

int64_t Checkpoint::data_bytes() const {
  int64_t bytes = 0;
  for (const CheckpointShard& shard : manifest_.shards) bytes += shard.data_bytes();
  return bytes;
}

const CheckpointTensor* Checkpoint::find(const std::string& tensor) const {
  const auto place = places_.find(tensor);
  if (place == places_.end()) return nullptr;
  return &manifest_.shards[place->second.first].tensors[place->second.second];
}

Status Checkpoint::check(std::span<const ExpectedTensor> expected) const {
  std::set<std::string> used;
  for (const ExpectedTensor& one : expected) {
    const CheckpointTensor* found = find(one.name);
    if (found == nullptr) {
      return invalid_argument("{}: tensor {}: expected of shape {}, found none of that name", path_, one.name,
                              shape_text(one.shape));
    }
    if (found->shape != one.shape) {
      const auto [shard, tensor] = places_.at(one.name);
      return invalid_argument("{}: tensor {} at offset {}: shape: expected {}, found {}",
                              shards_[shard].file.path(), one.name, shards_[shard].offsets[tensor],
                              shape_text(one.shape), shape_text(found->shape));
    }
    used.insert(one.name);
  }
  std::vector<std::string> beyond;
  for (const auto& [name, place] : places_) {
    if (!used.contains(name)) beyond.push_back(name);
  }
  if (beyond.empty()) return ok_status();
  return invalid_argument("{}: expected the {} tensors of the model, found {} beyond them: {}", path_,
                          expected.size(), beyond.size(), list_cut(beyond));
}

Status Checkpoint::check_digest(size_t shard, size_t tensor, const Digest& found) const {
  const CheckpointTensor& expected = manifest_.shards[shard].tensors[tensor];
  if (found == expected.digest) return ok_status();
  return data_loss(
      "{}: tensor {} at offset {}: expected the digest {} as the manifest says, found {}: damaged",
      shards_[shard].file.path(), expected.name, shards_[shard].offsets[tensor], hex(expected.digest),
      hex(found));
}

Status Checkpoint::read_part(size_t shard, size_t tensor, int64_t first_byte,
                             std::span<std::byte> bytes) const {
  const ReadableFile& file = shards_[shard].file;
  const int64_t offset = shards_[shard].offsets[tensor] + first_byte;
  const Status read = file.read(offset, bytes);
  if (read.ok()) return read;
  return with_context(read, fmt::format("{}: tensor {} at offset {}", file.path(),
                                        manifest_.shards[shard].tensors[tensor].name, offset));
}

// What has been copied is hashed, so that a file that changes meanwhile is not believed either.
Status Checkpoint::read(const std::string& tensor, std::span<float> values) const {
  const auto place = places_.find(tensor);
  PENSTOCK_CHECK(place != places_.end(), "{}", tensor);
  const auto [shard, index] = place->second;
  PENSTOCK_CHECK_EQ(manifest_.shards[shard].tensors[index].elements(), static_cast<int64_t>(values.size()));
  PENSTOCK_RETURN_IF_ERROR(read_part(shard, index, 0, std::as_writable_bytes(values)));
  return check_digest(shard, index, digest_of(std::as_bytes(values)));
}

Status Checkpoint::verify_tensor(size_t shard, size_t tensor,
                                 const std::function<void(int64_t)>& progress) const {
  const int64_t all = manifest_.shards[shard].tensors[tensor].elements() * int64_t{sizeof(float)};
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(kBytesOfPiece, all)));
  Digester digester;
  for (int64_t first = 0; first < all; first += kBytesOfPiece) {
    const auto piece = std::span(buffer).first(static_cast<size_t>(std::min(kBytesOfPiece, all - first)));
    PENSTOCK_RETURN_IF_ERROR(read_part(shard, tensor, first, piece));
    digester.add(piece);
    if (progress) progress(static_cast<int64_t>(piece.size()));
  }
  return check_digest(shard, tensor, digester.finish());
}

Status Checkpoint::verify(const std::function<void(int64_t)>& progress) const {
  for (size_t shard = 0; shard < shards_.size(); ++shard) {
    for (size_t tensor = 0; tensor < manifest_.shards[shard].tensors.size(); ++tensor)
      PENSTOCK_RETURN_IF_ERROR(verify_tensor(shard, tensor, progress));
  }
  return ok_status();
}

}  // namespace penstock
