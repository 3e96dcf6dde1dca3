#include "plan/spec/internal/scalar_text.h"

namespace penstock::plan {

std::optional<size_t> size_in_text(const std::string& yaml, const YamlNode& scalar) {
  if (scalar.offset >= yaml.size()) return std::nullopt;
  if (!scalar.quoted) {
    if (yaml.compare(scalar.offset, scalar.text.size(), scalar.text) != 0) return std::nullopt;
    return scalar.text.size();
  }
  const char quote = yaml[scalar.offset];
  if (quote != '"' && quote != '\'') return std::nullopt;
  for (size_t i = scalar.offset + 1; i < yaml.size() && yaml[i] != '\n'; ++i) {
    if (quote == '"' && yaml[i] == '\\') {
      ++i;
    } else if (yaml[i] == quote && quote == '\'' && i + 1 < yaml.size() && yaml[i + 1] == quote) {
      ++i;
    } else if (yaml[i] == quote) {
      return i + 1 - scalar.offset;
    }
  }
  return std::nullopt;
}

std::string double_quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

}  // namespace penstock::plan
