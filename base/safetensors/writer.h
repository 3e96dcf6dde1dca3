// Writes one safetensors file, tensor after tensor, so that no more than a piece of one is in memory. The file is
// there when commit() has returned, whole, and not before.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "base/safetensors/header.h"
#include "base/status.h"

namespace penstock {

class SafetensorsWriter {
 public:
  // `tensors` in the order in which their values will come: names that are all different, shapes, dtypes F32 or
  // BF16. Errors here and below are those of AtomicFile.
  static StatusOr<SafetensorsWriter> create(const std::string& path, std::vector<TensorEntry> tensors,
                                            const std::map<std::string, std::string>& metadata);

  // The next values of the next tensor, a whole one or a piece; never of two.
  Status append(std::span<const float> values);
  // After the last value of the last tensor.
  Status commit();

  int64_t data_bytes() const { return data_bytes_; }  // of all the tensors

 private:
  SafetensorsWriter(AtomicFile file, std::vector<TensorEntry> tensors);
  void skip_full_tensors();

  AtomicFile file_;
  std::vector<TensorEntry> tensors_;
  int64_t data_bytes_ = 0;
  size_t tensor_ = 0;     // the one that is being written
  int64_t elements_ = 0;  // of it that have been
};

// The entry of a tensor to write.
TensorEntry tensor_to_write(std::string name, std::vector<int64_t> shape, std::string dtype);

}  // namespace penstock
