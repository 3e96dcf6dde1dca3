#include "client/help_format/help_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/text.h"

namespace penstock::client {
namespace {

// "INT in [1 - 1024]".
std::string range_words(const std::string& check) {
  const size_t begin = check.find(" in ["), middle = check.find(" - "), end = check.find(']');
  if (begin == std::string::npos || middle == std::string::npos || end == std::string::npos) return "";
  const size_t first = begin + 5;
  return check.substr(first, middle - first) + ".." + check.substr(middle + 3, end - middle - 3);
}

std::string list_words(const char* what, const std::set<CLI::Option*>& options) {
  if (options.empty()) return "";
  std::vector<std::string> names;
  for (const CLI::Option* option : options) names.push_back(option->get_name());
  std::sort(names.begin(), names.end());
  return fmt::format(" ({} {})", what, join(names));
}

}  // namespace

std::string value_words(const std::string& type_name) {
  const size_t colon = type_name.find(':');
  if (colon == std::string::npos) return type_name;
  const std::string type = type_name.substr(0, colon), check = type_name.substr(colon + 1);
  if (const std::string range = range_words(check); !range.empty()) return range;
  if (check == "NONNEGATIVE") return "0..";
  return type == "TEXT" ? check : type_name;
}

std::string HelpFormat::make_option_opts(const CLI::Option* option) const {
  std::string text;
  if (option->get_type_size() != 0) {
    const std::string value = value_words(option->get_type_name());
    if (!value.empty()) text += " " + value;
    if (!option->get_default_str().empty()) text += "=" + option->get_default_str();
    const bool is_list = option->get_expected_max() == CLI::detail::expected_max_vector_size;
    if (is_list && !value.ends_with("...")) text += " ...";
    if (option->get_required()) text += " REQUIRED";
  }
  return text + list_words("with", option->get_needs()) + list_words("not with", option->get_excludes());
}

}  // namespace penstock::client
