// One safetensors file: its header is read and checked at once, a tensor's values when they are asked for.
//
// Errors begin with the path. Thread: reading is const and safe from any number of threads.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/readable_file.h"
#include "base/safetensors/header.h"
#include "base/status.h"

namespace penstock {

class SafetensorsFile {
 public:
  // Errors of ReadableFile and read_safetensors_header.
  static StatusOr<SafetensorsFile> open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::vector<TensorEntry>& tensors() const { return header_.tensors; }  // by offset
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  const TensorEntry* find(const std::string& name) const;  // null: none of that name

  // Elements [first, first + values.size()) of one of this file's tensors, as float32. InvalidArgument names the
  // tensor when it is not stored as floats. DataLoss, with tensor and offset: the file has changed since it was opened, or
  // the disk cannot read it. Needs at most a MiB beside `values`.
  Status read(const TensorEntry& tensor, int64_t first, std::span<float> values) const;

 private:
  SafetensorsFile(ReadableFile file, SafetensorsHeader header);
  Status widen_from(int64_t offset, const std::string& dtype, std::span<float> values) const;

  ReadableFile file_;
  SafetensorsHeader header_;
  std::map<std::string, size_t> places_;  // in header_.tensors
};

}  // namespace penstock
