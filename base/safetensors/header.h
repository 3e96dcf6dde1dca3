// The header of a safetensors file: which tensors it holds, and where.
//
// A file is an 8-byte little-endian count, that many bytes of JSON, and the data. The JSON is an object from tensor
// name to {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, offsets counted from the data's first
// byte; "__metadata__" maps text to text. The data is covered without holes or overlap.
// https://github.com/huggingface/safetensors#format
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace penstock {

constexpr int64_t kLargestSafetensorsHeader = 100'000'000;  // bytes, as the format's own library has it

struct TensorEntry {
  std::string name;
  std::string dtype;           // "F32"
  std::vector<int64_t> shape;  // {} is a scalar
  int64_t offset = 0;          // of its first byte, in the file
  int64_t bytes = 0;

  int64_t elements() const;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // by offset
  std::map<std::string, std::string> metadata;
};

// Of a file of `file_bytes`, of which `beginning` holds the count and, as far as the file goes, as many bytes more as that
// says. InvalidArgument says what is wrong, with the tensor where there is one: too short, a header over
// the bound or no JSON of that shape, a key twice, an unknown dtype, a size that is not shape x dtype, an offset out
// of range, a hole, an overlap.
StatusOr<SafetensorsHeader> read_safetensors_header(std::span<const std::byte> beginning, int64_t file_bytes);
// Bytes that `beginning` must hold, from the first 8 of the file, or from all of a shorter one.
int64_t safetensors_beginning_bytes(std::span<const std::byte> count, int64_t file_bytes);

// The count and the JSON, padded with spaces to a multiple of 8 bytes. Gives every entry its offset: the data
// stands in the order of `tensors`. A dtype must be one of the format's.
std::string format_safetensors_header(std::vector<TensorEntry>& tensors,
                                      const std::map<std::string, std::string>& metadata);

// Bytes of one element; 0 for what is no dtype of the format.
int64_t safetensors_element_bytes(const std::string& dtype);

std::string shape_text(std::span<const int64_t> shape);  // "[256, 64]"

}  // namespace penstock
