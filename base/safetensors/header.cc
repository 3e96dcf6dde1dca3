#include "base/safetensors/header.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/json/strict_json.h"
#include "base/utf8.h"

namespace penstock {
namespace {

constexpr int64_t kCountBytes = 8;
constexpr int kDeepest = 3;  // the file, a tensor, its shape
constexpr size_t kLongestShownName = 200;
constexpr const char* kMetadata = "__metadata__";

std::string shown_name(const std::string& name) {
  return "tensor " + shown_json(Json(utf8_cut(name, kLongestShownName)));
}

StatusOr<std::vector<int64_t>> numbers(const Json& value, const std::string& what) {
  std::vector<int64_t> list;
  bool good = value.is_array();
  for (size_t i = 0; good && i < value.size(); ++i) {
    const Json& each = value[i];
    good = each.is_number_unsigned() && each.get<uint64_t>() <= uint64_t{INT64_MAX};
    if (good) list.push_back(each.get<int64_t>());
  }
  if (!good)
    return invalid_argument("{}: expected a list of whole numbers, found {}", what, shown_json(value));
  return list;
}

// Bytes of a dense tensor, or nothing when they pass what int64 holds.
StatusOr<int64_t> dense_bytes(const std::vector<int64_t>& shape, int64_t element_bytes) {
  int64_t bytes = element_bytes;
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes))
      return invalid_argument("shape: expected a size that 63 bits hold, found {}", shape_text(shape));
  }
  return bytes;
}

StatusOr<TensorEntry> read_entry(const std::string& name, const Json& json, int64_t data_start,
                                 int64_t data_bytes) {
  if (!json.is_object() || json.size() != 3 || !json.contains("dtype") || !json.contains("shape") ||
      !json.contains("data_offsets")) {
    return invalid_argument("expected dtype, shape and data_offsets, found {}", shown_json(json));
  }
  TensorEntry entry;
  entry.name = name;
  const Json& dtype = json["dtype"];
  if (dtype.is_string()) entry.dtype = dtype.get<std::string>();
  const int64_t element_bytes = safetensors_element_bytes(entry.dtype);
  if (element_bytes == 0)
    return invalid_argument("dtype: expected one of safetensors, found {}", shown_json(dtype));
  PENSTOCK_ASSIGN_OR_RETURN(entry.shape, numbers(json["shape"], "shape"));
  PENSTOCK_ASSIGN_OR_RETURN(entry.bytes, dense_bytes(entry.shape, element_bytes));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<int64_t> offsets,
                            numbers(json["data_offsets"], "data_offsets"));
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data_bytes) {
    return invalid_argument("data_offsets: expected begin and end within the {} bytes of data, found {}",
                            data_bytes, shape_text(offsets));
  }
  if (offsets[1] - offsets[0] != entry.bytes) {
    return invalid_argument("data_offsets: expected {} bytes for {} of shape {}, found {} at offset {}",
                            entry.bytes, entry.dtype, shape_text(entry.shape), offsets[1] - offsets[0],
                            data_start + offsets[0]);
  }
  entry.offset = data_start + offsets[0];
  return entry;
}

Status read_metadata(const Json& json, std::map<std::string, std::string>& metadata) {
  if (!json.is_object())
    return invalid_argument("__metadata__: expected an object, found {}", shown_json(json));
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string())
      return invalid_argument("__metadata__: expected texts only, found {}", shown_json(value));
    metadata[key] = value.get<std::string>();
  }
  return ok_status();
}

// Tensors by offset, one behind the other from the first byte of the data to the last.
Status check_coverage(const std::vector<TensorEntry>& tensors, int64_t data_start, int64_t file_bytes) {
  int64_t end = data_start;
  for (const TensorEntry& tensor : tensors) {
    if (tensor.offset != end) {
      return invalid_argument("{}: expected at offset {}, where the data before it ends, found at {}: {}",
                              shown_name(tensor.name), end, tensor.offset,
                              tensor.offset < end ? "an overlap" : "a hole");
    }
    end += tensor.bytes;
  }
  if (end == file_bytes) return ok_status();
  return invalid_argument("expected data to the end of the file at {}, found that of the tensors ends at {}",
                          file_bytes, end);
}

}  // namespace

int64_t TensorEntry::elements() const {
  return bytes / safetensors_element_bytes(dtype);
}

int64_t safetensors_element_bytes(const std::string& dtype) {
  static const std::map<std::string, int64_t> kBytes = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},
      {"BF16", 2}, {"I32", 4}, {"U32", 4}, {"F32", 4},     {"F64", 8},     {"I64", 8}, {"U64", 8}};
  const auto found = kBytes.find(dtype);
  return found == kBytes.end() ? 0 : found->second;
}

std::string shape_text(std::span<const int64_t> shape) {
  std::string text;
  for (const int64_t extent : shape) text += fmt::format("{}{}", text.empty() ? "" : ", ", extent);
  return "[" + text + "]";
}

int64_t safetensors_beginning_bytes(std::span<const std::byte> count, int64_t file_bytes) {
  if (file_bytes < kCountBytes) return file_bytes;
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, count.data(), kCountBytes);
  const uint64_t bounded = std::min(header_bytes, uint64_t{kLargestSafetensorsHeader});
  return std::min(file_bytes, kCountBytes + static_cast<int64_t>(bounded));
}

StatusOr<SafetensorsHeader> read_safetensors_header(std::span<const std::byte> beginning,
                                                    int64_t file_bytes) {
  if (file_bytes < kCountBytes)
    return invalid_argument("expected at least 8 bytes, which count the header's, found {}", file_bytes);
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, beginning.data(), kCountBytes);
  if (header_bytes > uint64_t{kLargestSafetensorsHeader} ||
      static_cast<int64_t>(header_bytes) > file_bytes - kCountBytes) {
    return invalid_argument("expected a header of at most {} bytes in a file of {}, found a count of {}",
                            kLargestSafetensorsHeader, file_bytes, header_bytes);
  }
  const int64_t data_start = kCountBytes + static_cast<int64_t>(header_bytes);
  const std::string_view text(reinterpret_cast<const char*>(beginning.data()) + kCountBytes,
                              static_cast<size_t>(header_bytes));
  StatusOr<Json> json = parse_strict_json(text, kDeepest);
  if (!json.ok()) return with_context(json.status(), "header");
  if (!json->is_object()) return invalid_argument("header: expected an object, found {}", shown_json(*json));

  SafetensorsHeader header;
  for (const auto& [name, value] : json->items()) {
    if (name == kMetadata) {
      PENSTOCK_RETURN_IF_ERROR(read_metadata(value, header.metadata));
      continue;
    }
    StatusOr<TensorEntry> entry = read_entry(name, value, data_start, file_bytes - data_start);
    if (!entry.ok()) return with_context(entry.status(), shown_name(name));
    header.tensors.push_back(*std::move(entry));
  }
  // Empty tensors stand before the one that begins where they do.
  std::sort(header.tensors.begin(), header.tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.offset, a.bytes) < std::tie(b.offset, b.bytes);
  });
  PENSTOCK_RETURN_IF_ERROR(check_coverage(header.tensors, data_start, file_bytes));
  return header;
}

std::string format_safetensors_header(std::vector<TensorEntry>& tensors,
                                      const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!metadata.empty()) json[kMetadata] = metadata;
  int64_t begin = 0;
  for (TensorEntry& tensor : tensors) {
    tensor.bytes = safetensors_element_bytes(tensor.dtype);
    PENSTOCK_CHECK(tensor.bytes > 0, "{}: dtype {}", tensor.name, tensor.dtype);
    for (const int64_t extent : tensor.shape) tensor.bytes *= extent;
    tensor.offset = begin;  // the header's own size comes on top below
    json[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, begin + tensor.bytes}}};
    begin += tensor.bytes;
  }
  std::string text = json.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t count = text.size();
  for (TensorEntry& tensor : tensors) tensor.offset += kCountBytes + static_cast<int64_t>(count);
  std::string bytes(kCountBytes, '\0');
  std::memcpy(bytes.data(), &count, kCountBytes);
  return bytes + text;
}

}  // namespace penstock
