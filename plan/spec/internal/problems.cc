#include "plan/spec/internal/problems.h"

#include <fmt/format.h>

#include <algorithm>

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
  std::string shown;
  for (const char c : value.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    shown += byte < 0x20 || byte == 0x7f ? '?' : c;
  }
  // A cut must not leave half of a UTF-8 character behind.
  if (value.size() > kLongest) {
    while (!shown.empty() && (static_cast<unsigned char>(shown.back()) & 0xc0) == 0x80) shown.pop_back();
    if (!shown.empty() && static_cast<unsigned char>(shown.back()) >= 0xc0) shown.pop_back();
    shown += "...";
  }
  return shown;
}

}  // namespace penstock::plan
