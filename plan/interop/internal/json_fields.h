// Fields of JSON that people write for the planner. Errors name the field by its path: "layers[3].time_ms: missing".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json/strict_json.h"
#include "base/status.h"

namespace penstock::plan {

// An object, or a list within one, and where it stands in the file.
class JsonObject {
 public:
  // InvalidArgument when `json` is no object. `json` outlives this.
  static StatusOr<JsonObject> at(const Json& json, std::string path);

  bool has(const char* field) const { return json_.contains(field); }
  std::string path_of(const char* field) const;

  // A finite number. Without `otherwise` it must be there.
  StatusOr<double> number(const char* field, std::optional<double> otherwise = std::nullopt) const;
  // Rounded to a whole number; 0 to 2^62.
  StatusOr<int64_t> bytes(const char* field, std::optional<int64_t> otherwise = std::nullopt) const;
  // Milliseconds, rounded to nanoseconds.
  StatusOr<int64_t> nanoseconds(const char* field) const;
  StatusOr<std::string> text(const char* field, std::optional<std::string> otherwise = std::nullopt) const;
  StatusOr<JsonObject> object(const char* field) const;
  // Every entry an object; empty where `required` is false and there is none.
  StatusOr<std::vector<JsonObject>> objects(const char* field, size_t most, bool required = true) const;
  StatusOr<std::vector<double>> numbers(const char* field, size_t most) const;

  const Json& json() const { return json_; }

 private:
  JsonObject(const Json& json, std::string path) : json_(json), path_(std::move(path)) {}
  StatusOr<const Json*> list(const char* field, size_t most) const;

  const Json& json_;
  std::string path_;  // "" is the whole file
};

}  // namespace penstock::plan
