#include "base/checkpoint/manifest.h"

#include <algorithm>
#include <limits>
#include <set>

#include "base/json/strict_json.h"
#include "base/text.h"
#include "base/utf8.h"

namespace penstock {
namespace {

constexpr const char* kFormat = "penstock-checkpoint";
constexpr std::string_view kDigestKey = ",\"digest\":\"";
constexpr std::string_view kEnd = "\"}\n";
constexpr size_t kSuffixBytes = kDigestKey.size() + 32 + kEnd.size();
constexpr size_t kMostFiles = 65'536;
constexpr size_t kMostTensors = 1 << 20;
constexpr int64_t kMostElements = int64_t{1} << 42;
constexpr int kDeepest = 6;  // manifest, shards, shard, tensors, tensor, shape

// A name that stays inside the folder.
bool is_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

// Reads one object, key by key, and keeps the first thing that is wrong. Keys that nobody asked for are wrong too.
class Fields {
 public:
  Fields(const Json& json, std::string place) : json_(json), place_(std::move(place)) {
    if (!json.is_object()) expected("", "an object", json);
  }

  std::string text(const char* key) {
    const Json* value = find(key);
    if (value == nullptr) return "";
    if (value->is_string()) return value->get<std::string>();
    expected(key, "a text", *value);
    return "";
  }
  std::string file_name(const char* key) {
    std::string name = text(key);
    if (status_.ok() && !is_file_name(name)) expected(key, "the name of a file beside it", Json(name));
    return name;
  }
  int64_t count(const char* key) {
    const Json* value = find(key);
    if (value == nullptr) return 0;
    constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    if (value->is_number_unsigned() && value->get<uint64_t>() <= kMost) return value->get<int64_t>();
    expected(key, "a whole number of at least 0", *value);
    return 0;
  }
  Digest digest(const char* key) {
    const std::string digits = text(key);
    if (!status_.ok()) return {};
    const std::optional<Digest> digest = parse_digest(digits);
    if (!digest) expected(key, "32 hexadecimal digits", Json(digits));
    return digest.value_or(Digest{});
  }
  const Json& list(const char* key) {
    static const Json kNone = Json::array();
    const Json* value = find(key);
    if (value == nullptr) return kNone;
    if (value->is_array()) return *value;
    expected(key, "a list", *value);
    return kNone;
  }
  Status finish() {
    if (status_.ok() && json_.size() != asked_) {
      status_ = invalid_argument("{}: expected {} keys, found {}", place_, asked_, json_.size());
    }
    return status_;
  }

 private:
  const Json* find(const char* key) {
    ++asked_;
    if (!status_.ok()) return nullptr;
    const auto found = json_.find(key);
    if (found != json_.end()) return &*found;
    status_ = invalid_argument("{}: {}: expected it, found none", place_, key);
    return nullptr;
  }
  void expected(const std::string& key, const char* expectation, const Json& found) {
    const std::string field = key.empty() ? place_ : place_ + ": " + key;
    if (status_.ok())
      status_ = invalid_argument("{}: expected {}, found {}", field, expectation, shown_json(found));
  }

  const Json& json_;
  std::string place_;
  size_t asked_ = 0;
  Status status_;
};

StatusOr<std::vector<int64_t>> read_shape(const Json& list, const std::string& place) {
  std::vector<int64_t> shape;
  int64_t elements = 1;
  for (const Json& extent : list) {
    if (!extent.is_number_unsigned() || extent.get<uint64_t>() > static_cast<uint64_t>(kMostElements))
      return invalid_argument("{}: shape: expected whole numbers, found {}", place, shown_json(extent));
    shape.push_back(extent.get<int64_t>());
    if (shape.back() != 0 && elements > kMostElements / shape.back())
      return invalid_argument("{}: shape: expected at most {} elements, found {}", place, kMostElements,
                              shape_text(shape));
    elements *= shape.back();
  }
  return shape;
}

StatusOr<CheckpointTensor> read_tensor(const Json& json, const std::string& place) {
  Fields fields(json, place);
  CheckpointTensor tensor;
  tensor.name = fields.text("name");
  tensor.digest = fields.digest("digest");
  const Json& shape = fields.list("shape");
  PENSTOCK_RETURN_IF_ERROR(fields.finish());
  PENSTOCK_ASSIGN_OR_RETURN(tensor.shape, read_shape(shape, place));
  return tensor;
}

StatusOr<CheckpointShard> read_shard(const Json& json, const std::string& place) {
  Fields fields(json, place);
  CheckpointShard shard;
  shard.name = fields.file_name("name");
  const int64_t bytes = fields.count("bytes");
  const Json& tensors = fields.list("tensors");
  PENSTOCK_RETURN_IF_ERROR(fields.finish());
  if (tensors.size() > kMostTensors)
    return invalid_argument("{}: expected at most {} tensors, found {}", place, kMostTensors, tensors.size());
  int64_t elements = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    PENSTOCK_ASSIGN_OR_RETURN(CheckpointTensor tensor,
                              read_tensor(tensors[i], fmt::format("{}.tensors[{}]", place, i)));
    elements += tensor.elements();
    if (elements > kMostElements)
      return invalid_argument("{}: expected at most {} elements, found more", place, kMostElements);
    shard.tensors.push_back(std::move(tensor));
  }
  const int64_t expected = static_cast<int64_t>(shard.header().size()) + shard.data_bytes();
  if (bytes != expected)
    return invalid_argument("{}: bytes: expected {}, those of its tensors, found {}", place, expected, bytes);
  return shard;
}

StatusOr<CheckpointText> read_text(const Json& json, const std::string& place) {
  Fields fields(json, place);
  CheckpointText text;
  text.name = fields.file_name("name");
  text.bytes = fields.count("bytes");
  text.digest = fields.digest("digest");
  PENSTOCK_RETURN_IF_ERROR(fields.finish());
  return text;
}

Status check_names(const CheckpointManifest& manifest) {
  std::set<std::string> files = {kManifestFile};
  std::set<std::string> tensors;
  const auto add = [](std::set<std::string>& names, const std::string& name, const char* what) {
    return names.insert(name).second
               ? ok_status()
               : invalid_argument("{} {}: expected once, found twice", what, utf8_cleaned(name, 200));
  };
  for (const CheckpointText& text : manifest.texts) PENSTOCK_RETURN_IF_ERROR(add(files, text.name, "file"));
  for (const CheckpointShard& shard : manifest.shards) {
    PENSTOCK_RETURN_IF_ERROR(add(files, shard.name, "file"));
    for (const CheckpointTensor& tensor : shard.tensors)
      PENSTOCK_RETURN_IF_ERROR(add(tensors, tensor.name, "tensor"));
  }
  if (tensors.size() <= kMostTensors) return ok_status();
  return invalid_argument("expected at most {} tensors, found {}", kMostTensors, tensors.size());
}

// Its own digest first: only then is the rest worth an explanation.
Status check_whole(std::string_view text) {
  if (static_cast<int64_t>(text.size()) > kLargestManifest)
    return invalid_argument("expected at most {} bytes, found {}", kLargestManifest, text.size());
  const std::string_view cut =
      "expected a manifest that ends with its digest, found none: cut, or not a manifest of Penstock";
  if (text.size() < kSuffixBytes || !text.ends_with(kEnd)) return data_loss("{}", cut);
  const std::string_view body = text.substr(0, text.size() - kSuffixBytes);
  const std::string_view suffix = text.substr(body.size());
  if (!suffix.starts_with(kDigestKey)) return data_loss("{}", cut);
  const std::string found = hex(digest_of(body));
  const std::string_view expected = suffix.substr(kDigestKey.size(), 32);
  if (found == expected) return ok_status();
  return data_loss("expected a text with the digest {} at its end, found {}: damaged or edited",
                   utf8_cleaned(std::string(expected), 32), found);
}

}  // namespace

int64_t CheckpointTensor::elements() const {
  int64_t elements = 1;
  for (const int64_t extent : shape) elements *= extent;
  return elements;
}

std::string CheckpointShard::header() const {
  std::vector<TensorEntry> entries;
  for (const CheckpointTensor& tensor : tensors) {
    TensorEntry entry;
    entry.name = tensor.name;
    entry.shape = tensor.shape;
    entry.dtype = "F32";
    entries.push_back(std::move(entry));
  }
  return format_safetensors_header(entries, {{"format", "pt"}});
}

int64_t CheckpointShard::data_bytes() const {
  int64_t bytes = 0;
  for (const CheckpointTensor& tensor : tensors) bytes += tensor.elements() * int64_t{sizeof(float)};
  return bytes;
}

std::string format_manifest(const CheckpointManifest& manifest) {
  nlohmann::ordered_json json = {{"format", kFormat},
                                 {"version", kManifestVersion},
                                 {"job", manifest.job},
                                 {"step", manifest.step},
                                 {"samples", manifest.samples},
                                 {"weights_digest", manifest.weights_digest},
                                 {"fingerprint", manifest.fingerprint},
                                 {"spec_yaml", manifest.spec_yaml}};
  json["files"] = nlohmann::ordered_json::array();
  for (const CheckpointText& text : manifest.texts)
    json["files"].push_back({{"name", text.name}, {"bytes", text.bytes}, {"digest", hex(text.digest)}});
  json["shards"] = nlohmann::ordered_json::array();
  for (const CheckpointShard& shard : manifest.shards) {
    nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
    for (const CheckpointTensor& tensor : shard.tensors) {
      tensors.push_back({{"name", tensor.name}, {"shape", tensor.shape}, {"digest", hex(tensor.digest)}});
    }
    const int64_t bytes = static_cast<int64_t>(shard.header().size()) + shard.data_bytes();
    json["shards"].push_back({{"name", shard.name}, {"bytes", bytes}, {"tensors", std::move(tensors)}});
  }
  std::string text = json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  text.pop_back();  // the brace, which comes after the digest
  const std::string digest = hex(digest_of(std::string_view(text)));
  return text + std::string(kDigestKey) + digest + std::string(kEnd);
}

StatusOr<CheckpointManifest> parse_manifest(std::string_view text) {
  PENSTOCK_RETURN_IF_ERROR(check_whole(text));
  PENSTOCK_ASSIGN_OR_RETURN(const Json json, parse_strict_json(text, kDeepest));
  Fields fields(json, "manifest");
  const std::string format = fields.text("format");
  const int64_t version = fields.count("version");
  if (format != kFormat)
    return invalid_argument("format: expected {}, found {}", kFormat, shown_json(format));
  if (version != kManifestVersion)
    return data_loss("version: expected {}, found {}: written by another Penstock", kManifestVersion,
                     version);
  CheckpointManifest manifest;
  manifest.job = fields.text("job");
  manifest.step = fields.count("step");
  manifest.samples = fields.count("samples");
  manifest.weights_digest = fields.text("weights_digest");
  manifest.fingerprint = fields.text("fingerprint");
  manifest.spec_yaml = fields.text("spec_yaml");
  fields.digest("digest");
  const Json& texts = fields.list("files");
  const Json& shards = fields.list("shards");
  PENSTOCK_RETURN_IF_ERROR(fields.finish());
  if (texts.size() + shards.size() > kMostFiles)
    return invalid_argument("expected at most {} files, found {}", kMostFiles, texts.size() + shards.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    PENSTOCK_ASSIGN_OR_RETURN(CheckpointText one, read_text(texts[i], fmt::format("files[{}]", i)));
    manifest.texts.push_back(std::move(one));
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    PENSTOCK_ASSIGN_OR_RETURN(CheckpointShard one, read_shard(shards[i], fmt::format("shards[{}]", i)));
    manifest.shards.push_back(std::move(one));
  }
  PENSTOCK_RETURN_IF_ERROR(check_names(manifest));
  return manifest;
}

std::string checkpoint_name(int64_t step) {
  return fmt::format("step-{:09}", step);
}

int64_t step_of_checkpoint(std::string_view name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return -1;
  const std::string_view digits = name.substr(kPrefix.size());
  if (digits.size() < 9 || digits.size() > 18) return -1;
  int64_t step = 0;
  for (const char digit : digits) {
    if (digit < '0' || digit > '9') return -1;
    step = 10 * step + (digit - '0');
  }
  return checkpoint_name(step) == name ? step : -1;
}

std::string draft_prefix(const std::string& job) {
  return fmt::format("{}{}.", kDraftPrefix, job);  // no job's name has a dot
}

std::string draft_name(const std::string& job, int64_t attempt, int64_t step) {
  return fmt::format("{}{}-{}", draft_prefix(job), attempt, checkpoint_name(step));
}

std::string part_name(int64_t rank, int64_t ranks) {
  return fmt::format("part-{:05}-of-{:05}.json", rank, ranks);
}

std::string first_moment_name(const std::string& parameter) {
  return "exp_avg." + parameter;
}

std::string second_moment_name(const std::string& parameter) {
  return "exp_avg_sq." + parameter;
}

std::vector<ExpectedTensor> checkpoint_tensors(const std::vector<ExpectedTensor>& weights) {
  std::vector<ExpectedTensor> all = weights;
  for (const ExpectedTensor& weight : weights) {
    all.push_back({first_moment_name(weight.name), weight.shape});
    all.push_back({second_moment_name(weight.name), weight.shape});
  }
  return all;
}

}  // namespace penstock
