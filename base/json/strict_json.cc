#include "base/json/strict_json.h"

#include <set>
#include <vector>

#include "base/utf8.h"

namespace penstock {
namespace {

constexpr size_t kLongestShown = 60;

// Follows the parser, and keeps the first thing that is wrong.
class Watcher {
 public:
  explicit Watcher(int deepest) : deepest_(deepest) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    if (!status_.ok()) return false;
    switch (event) {
      case Json::parse_event_t::object_start:
      case Json::parse_event_t::array_start:
        if (depth >= deepest_) status_ = invalid_argument("expected at most {} levels of nesting", deepest_);
        keys_.resize(static_cast<size_t>(depth) + 1);
        keys_.back().clear();
        break;
      case Json::parse_event_t::key:
        if (!keys_.at(static_cast<size_t>(depth) - 1).insert(parsed.get<std::string>()).second) {
          status_ =
              invalid_argument("expected every key once in its object, found {} twice", shown_json(parsed));
        }
        break;
      case Json::parse_event_t::object_end:
      case Json::parse_event_t::array_end:
      case Json::parse_event_t::value:
        break;
    }
    return status_.ok();
  }
  const Status& status() const { return status_; }

 private:
  int deepest_;
  std::vector<std::set<std::string>> keys_;  // by depth, of the object that is open there
  Status status_;
};

}  // namespace

StatusOr<Json> parse_strict_json(std::string_view text, int deepest) {
  Watcher watcher(deepest);
  try {
    Json json = Json::parse(text, [&](int depth, Json::parse_event_t event, Json& parsed) {
      return watcher(depth, event, parsed);
    });
    PENSTOCK_RETURN_IF_ERROR(watcher.status());
    return json;
  } catch (const Json::parse_error& failure) {
    PENSTOCK_RETURN_IF_ERROR(watcher.status());
    return invalid_argument("expected JSON, found none at byte {}", failure.byte);
  } catch (const Json::exception&) {  // a number that no double holds
    return invalid_argument("expected JSON with finite numbers");
  }
}

std::string shown_json(const Json& value) {
  if (value.is_structured()) return fmt::format("{} of {}", value.type_name(), value.size());
  return utf8_cleaned(value.dump(-1, ' ', true, Json::error_handler_t::replace), kLongestShown);
}

}  // namespace penstock
