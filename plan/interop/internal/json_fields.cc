#include "plan/interop/internal/json_fields.h"

#include <cmath>
#include <utility>

namespace penstock::plan {
namespace {

constexpr double kWholeMax = 4.6e18;  // below 2^62

}  // namespace

StatusOr<JsonObject> JsonObject::at(const Json& json, std::string path) {
  if (json.is_object()) return JsonObject(json, std::move(path));
  return invalid_argument("{}: expected an object, found {}", path.empty() ? "file" : path, shown_json(json));
}

std::string JsonObject::path_of(const char* field) const {
  return path_.empty() ? field : path_ + "." + field;
}

StatusOr<double> JsonObject::number(const char* field, std::optional<double> otherwise) const {
  const auto found = json_.find(field);
  if (found == json_.end()) {
    if (otherwise) return *otherwise;
    return invalid_argument("{}: missing", path_of(field));
  }
  if (!found->is_number() || !std::isfinite(found->get<double>())) {
    return invalid_argument("{}: expected a number, found {}", path_of(field), shown_json(*found));
  }
  return found->get<double>();
}

StatusOr<int64_t> JsonObject::bytes(const char* field, std::optional<int64_t> otherwise) const {
  if (otherwise && !has(field)) return *otherwise;
  PENSTOCK_ASSIGN_OR_RETURN(const double value, number(field));
  if (value < 0 || value > kWholeMax) {
    return invalid_argument("{}: expected 0 or more bytes, below 2^62, found {}", path_of(field), value);
  }
  return json_[field].is_number_integer() ? json_[field].get<int64_t>() : std::llround(value);
}

StatusOr<int64_t> JsonObject::nanoseconds(const char* field) const {
  PENSTOCK_ASSIGN_OR_RETURN(const double ms, number(field));
  if (ms < 0 || ms * 1e6 > kWholeMax) {
    return invalid_argument("{}: expected milliseconds, 0 or more, found {}", path_of(field), ms);
  }
  return std::llround(ms * 1e6);
}

StatusOr<std::string> JsonObject::text(const char* field, std::optional<std::string> otherwise) const {
  if (otherwise && !has(field)) return *otherwise;
  const auto found = json_.find(field);
  if (found == json_.end()) return invalid_argument("{}: missing", path_of(field));
  if (!found->is_string())
    return invalid_argument("{}: expected text, found {}", path_of(field), shown_json(*found));
  return found->get<std::string>();
}

StatusOr<JsonObject> JsonObject::object(const char* field) const {
  const auto found = json_.find(field);
  if (found == json_.end()) return invalid_argument("{}: missing", path_of(field));
  return at(*found, path_of(field));
}

StatusOr<const Json*> JsonObject::list(const char* field, size_t most) const {
  const auto found = json_.find(field);
  if (found == json_.end()) return invalid_argument("{}: missing", path_of(field));
  if (!found->is_array())
    return invalid_argument("{}: expected a list, found {}", path_of(field), shown_json(*found));
  if (found->size() > most)
    return invalid_argument("{}: expected at most {} entries, found {}", path_of(field), most, found->size());
  return &*found;
}

StatusOr<std::vector<JsonObject>> JsonObject::objects(const char* field, size_t most, bool required) const {
  if (!required && !has(field)) return std::vector<JsonObject>();
  PENSTOCK_ASSIGN_OR_RETURN(const Json* entries, list(field, most));
  std::vector<JsonObject> objects;
  for (size_t i = 0; i < entries->size(); ++i) {
    PENSTOCK_ASSIGN_OR_RETURN(JsonObject entry, at((*entries)[i], fmt::format("{}[{}]", path_of(field), i)));
    objects.push_back(std::move(entry));
  }
  return objects;
}

StatusOr<std::vector<double>> JsonObject::numbers(const char* field, size_t most) const {
  PENSTOCK_ASSIGN_OR_RETURN(const Json* entries, list(field, most));
  std::vector<double> numbers;
  for (size_t i = 0; i < entries->size(); ++i) {
    const Json& entry = (*entries)[i];
    if (!entry.is_number() || !std::isfinite(entry.get<double>())) {
      return invalid_argument("{}[{}]: expected a number, found {}", path_of(field), i, shown_json(entry));
    }
    numbers.push_back(entry.get<double>());
  }
  return numbers;
}

}  // namespace penstock::plan
