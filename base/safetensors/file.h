// One safetensors file, mapped: its header is read and checked at once, a tensor's bytes when they are asked for.
//
// Errors begin with the path. Thread: reading is const and safe from any number of threads.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "base/safetensors/header.h"
#include "base/status.h"

namespace penstock {

class SafetensorsFile {
 public:
  // Those of MappedFile and read_safetensors_header.
  static StatusOr<SafetensorsFile> open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::vector<TensorEntry>& tensors() const { return header_.tensors; }  // by offset
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  const TensorEntry* find(const std::string& name) const;  // null: none of that name

  std::span<const std::byte> bytes(const TensorEntry& tensor) const;

  // Elements [first, first + values.size()) of one of this file's tensors, as float32. InvalidArgument names the
  // tensor when it is not stored as floats; DataLoss: the file has changed since it was opened.
  Status read(const TensorEntry& tensor, int64_t first, std::span<float> values) const;

 private:
  SafetensorsFile(MappedFile file, SafetensorsHeader header);

  MappedFile file_;
  SafetensorsHeader header_;
  std::map<std::string, size_t> places_;  // in header_.tensors
};

}  // namespace penstock
