#include "plan/spec/internal/problems.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/utf8.h"

namespace penstock::plan {

void Problems::add(int line, const std::string& field, const std::string& what) {
  ++count_;
  if (problems_.size() >= kMostKept) return;
  std::string place = line > 0 ? fmt::format("line {}: ", line) : "";
  if (!field.empty()) place += field + ": ";
  problems_.push_back(Problem{line, place + what});
}

void Problems::expected(int line, const std::string& field, const std::string& expectation,
                        const std::string& found) {
  add(line, field, fmt::format("expected {}, found {}", expectation, found));
}

void Problems::expected(int line, const std::string& field, const std::string& expectation,
                        const std::string& found, const std::string& nearest) {
  const std::string question = nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest);
  add(line, field, fmt::format("expected {}, found {}{}", expectation, found, question));
}

void Problems::not_built_yet(int line, const std::string& field, const std::string& remedy) {
  add(line, field, fmt::format("not built yet; {}", remedy));
}

Status Problems::status() const {
  if (problems_.empty()) return ok_status();
  constexpr size_t kMostShown = 10;
  std::vector<Problem> ordered = problems_;
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const Problem& a, const Problem& b) { return a.line < b.line; });
  std::string text;
  for (size_t i = 0; i < std::min(kMostShown, ordered.size()); ++i)
    text += (i == 0 ? "" : "\n") + ordered[i].text;
  if (count_ > kMostShown) text += fmt::format("\nand {} more", count_ - kMostShown);
  return Status(StatusCode::kInvalidArgument, text);
}

std::string shown_value(const std::string& value) {
  constexpr size_t kLongest = 48;
  std::string shown(utf8_cut(value, kLongest));
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return (c >= 0 && c < 0x20) || c == 0x7f; }, '?');
  return value.size() > kLongest ? shown + "..." : shown;
}

}  // namespace penstock::plan
