// A folder of tensors as Hugging Face libraries write it: model.safetensors, or several files and
// model.safetensors.index.json, which says where each tensor is.
//
// Errors begin with the path that they are about. Thread: reading is const and safe from any number of threads.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/safetensors/file.h"
#include "base/status.h"

namespace penstock {

constexpr const char* kSingleTensorFile = "model.safetensors";
constexpr const char* kTensorIndexFile = "model.safetensors.index.json";

struct ExpectedTensor {
  std::string name;
  std::vector<int64_t> shape;
};

struct TensorPlace {
  const SafetensorsFile* file = nullptr;
  const TensorEntry* tensor = nullptr;
};

class TensorFolder {
 public:
  // Reads the headers of every file. NotFound: no such folder, or none of the two files in it.
  // InvalidArgument: both of them; a file with what is wrong in it; an index that names another folder, names a
  // tensor that is not in its file, or does not name one that is.
  static StatusOr<TensorFolder> open(const std::string& folder);

  const std::string& path() const { return path_; }
  const std::vector<SafetensorsFile>& files() const { return files_; }
  size_t tensors() const { return places_.size(); }

  // InvalidArgument unless the folder holds exactly the expected tensors, stored as floats: names the first that is
  // missing, misshaped or beyond them, with its file.
  Status check(std::span<const ExpectedTensor> expected) const;

  // One that check() has seen.
  TensorPlace at(const std::string& name) const;

 private:
  TensorFolder() = default;
  Status open_indexed(const std::string& index_path);
  Status add(SafetensorsFile file);
  Status check_index(const std::map<std::string, std::string>& weight_map) const;
  Status check_one(const ExpectedTensor& expected) const;

  std::string path_;
  std::string index_;  // the file that says what there is: the index, or the single file
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::pair<size_t, size_t>> places_;  // by name: file, tensor in it
};

// "model-00002-of-00005.safetensors" for part 1 of 5.
std::string tensor_file_name(const std::string& prefix, int64_t part, int64_t parts);

// The text of an index. `weight_map`: tensor -> file.
std::string format_tensor_index(const std::map<std::string, std::string>& weight_map, int64_t total_size);

}  // namespace penstock
