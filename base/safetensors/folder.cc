#include "base/safetensors/folder.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/json/strict_json.h"
#include "base/readable_file.h"
#include "base/safetensors/values.h"
#include "base/text.h"

namespace penstock {
namespace {

constexpr int64_t kLargestIndexBytes = 100'000'000;
constexpr size_t kMostFiles = 16'384;

using WeightMap = std::map<std::string, std::string>;

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// A name that stays inside the folder.
bool is_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

StatusOr<WeightMap> parse_weight_map(const std::string& text) {
  PENSTOCK_ASSIGN_OR_RETURN(const Json json, parse_strict_json(text, 3));
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
    return invalid_argument("weight_map: expected an object from tensor to file, found none");
  WeightMap map;
  for (const auto& [name, file] : json["weight_map"].items()) {
    if (!file.is_string() || !is_file_name(file.get<std::string>()))
      return invalid_argument("tensor {}: expected the name of a file beside the index, found {}", name,
                              shown_json(file));
    map[name] = file.get<std::string>();
  }
  return map;
}

}  // namespace

StatusOr<TensorFolder> TensorFolder::open(const std::string& folder) {
  if (!exists(folder)) return not_found("{}: no such folder", folder);
  TensorFolder tensors;
  tensors.path_ = folder;
  const std::string single = folder + "/" + kSingleTensorFile;
  const std::string index = folder + "/" + kTensorIndexFile;
  if (exists(single) && exists(index)) {
    return invalid_argument(
        "{}: expected one of {} and {}, found both: which one holds cannot be told; remove one", folder,
        kSingleTensorFile, kTensorIndexFile);
  }
  if (exists(index)) {
    tensors.index_ = index;
    PENSTOCK_RETURN_IF_ERROR(tensors.open_indexed(index));
    return tensors;
  }
  if (!exists(single))
    return not_found("{}: expected {} or {}, found neither", folder, kSingleTensorFile, kTensorIndexFile);
  tensors.index_ = single;
  PENSTOCK_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(single));
  PENSTOCK_RETURN_IF_ERROR(tensors.add(std::move(file)));
  return tensors;
}

Status TensorFolder::open_indexed(const std::string& index_path) {
  PENSTOCK_ASSIGN_OR_RETURN(const ReadableFile index, ReadableFile::open(index_path));
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, index.read_all(kLargestIndexBytes));
  const StatusOr<WeightMap> map = parse_weight_map(text);
  if (!map.ok()) return with_context(map.status(), index_path);
  std::set<std::string> names;
  for (const auto& [tensor, file] : *map) names.insert(file);
  if (names.size() > kMostFiles)
    return invalid_argument("{}: expected at most {} files, found {}", index_path, kMostFiles, names.size());
  for (const std::string& name : names) {
    PENSTOCK_ASSIGN_OR_RETURN(SafetensorsFile part, SafetensorsFile::open(path_ + "/" + name));
    PENSTOCK_RETURN_IF_ERROR(add(std::move(part)));
  }
  return check_index(*map);
}

Status TensorFolder::add(SafetensorsFile file) {
  const size_t number = files_.size();
  for (size_t i = 0; i < file.tensors().size(); ++i) {
    const std::string& name = file.tensors()[i].name;
    const auto [place, fresh] = places_.emplace(name, std::pair(number, i));
    if (!fresh) {
      return invalid_argument("{}: tensor {}: expected in one file, found in {} too", file.path(), name,
                              files_[place->second.first].path());
    }
  }
  files_.push_back(std::move(file));
  return ok_status();
}

Status TensorFolder::check_index(const WeightMap& map) const {
  for (const auto& [name, file] : map) {
    const auto place = places_.find(name);
    const std::string expected = path_ + "/" + file;
    if (place == places_.end() || files_[place->second.first].path() != expected)
      return invalid_argument("{}: tensor {}: expected here, as {} says, found none", expected, name, index_);
  }
  for (const auto& [name, place] : places_) {
    if (!map.contains(name))
      return invalid_argument("{}: tensor {}: expected only what {} names", files_[place.first].path(), name,
                              index_);
  }
  return ok_status();
}

Status TensorFolder::check_one(const ExpectedTensor& expected) const {
  const auto place = places_.find(expected.name);
  if (place == places_.end()) {
    return invalid_argument("{}: tensor {}: expected of shape {}, found none of that name", index_,
                            expected.name, shape_text(expected.shape));
  }
  const SafetensorsFile& file = files_[place->second.first];
  const TensorEntry& tensor = file.tensors()[place->second.second];
  if (tensor.shape != expected.shape) {
    return invalid_argument("{}: tensor {} at offset {}: shape: expected {}, found {}", file.path(),
                            expected.name, tensor.offset, shape_text(expected.shape),
                            shape_text(tensor.shape));
  }
  if (is_float_dtype(tensor.dtype)) return ok_status();
  return invalid_argument("{}: tensor {} at offset {}: dtype: expected F32, BF16 or F16, found {}",
                          file.path(), expected.name, tensor.offset, tensor.dtype);
}

Status TensorFolder::check(std::span<const ExpectedTensor> expected) const {
  std::set<std::string> used;
  for (const ExpectedTensor& tensor : expected) {
    PENSTOCK_RETURN_IF_ERROR(check_one(tensor));
    used.insert(tensor.name);
  }
  std::vector<std::string> beyond;
  const SafetensorsFile* file = nullptr;
  for (const auto& [name, place] : places_) {
    if (used.contains(name)) continue;
    if (file == nullptr) file = &files_[place.first];
    beyond.push_back(name);
  }
  if (beyond.empty()) return ok_status();
  return invalid_argument("{}: expected the {} tensors of the model, found {} beyond them: {}", file->path(),
                          expected.size(), beyond.size(), list_cut(beyond));
}

TensorPlace TensorFolder::at(const std::string& name) const {
  const auto place = places_.find(name);
  PENSTOCK_CHECK(place != places_.end(), "{}", name);
  const SafetensorsFile& file = files_[place->second.first];
  return {&file, &file.tensors()[place->second.second]};
}

std::string tensor_file_name(const std::string& prefix, int64_t part, int64_t parts) {
  return fmt::format("{}-{:05}-of-{:05}.safetensors", prefix, part, parts);
}

std::string format_tensor_index(const std::map<std::string, std::string>& weight_map, int64_t total_size) {
  const Json json = {{"metadata", {{"total_size", total_size}}}, {"weight_map", weight_map}};
  return json.dump(2) + "\n";
}

}  // namespace penstock
