#include "plan/spec/internal/section.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/text.h"

namespace penstock::plan {
namespace {

std::string expectation_of(IntegerRange range) {
  if (range.most == std::numeric_limits<int64_t>::max()) {
    return fmt::format("a whole number of at least {}", range.least);
  }
  return fmt::format("a whole number from {} to {}", range.least, range.most);
}

std::string expectation_of(NumberRange range) {
  return fmt::format("a finite number {} {} and {} {}", range.above_least ? "above" : "of at least",
                     range.least, range.below_most ? "below" : "at most", range.most);
}

bool contains(std::span<const std::string> names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

template <typename Number>
bool parses_whole(const std::string& text, Number& value) {
  const char* first = text.data();
  const char* last = first + text.size();
  if (text.size() > 1 && *first == '+') ++first;
  const auto result = std::from_chars(first, last, value);
  return result.ec == std::errc() && result.ptr == last && first != last;
}

}  // namespace

std::string alternatives(std::span<const std::string> names) {
  return names.size() == 1 ? names[0] : "one of " + join(names);
}

bool read_integer(const YamlNode& node, const std::string& field, IntegerRange range, int64_t& target,
                  Problems& problems) {
  int64_t value = 0;
  const bool number = node.is(YamlNode::Kind::Scalar) && !node.quoted && parses_whole(node.text, value);
  if (!number || value < range.least || value > range.most) {
    problems.expected(node.line, field, expectation_of(range), node.shown());
    return false;
  }
  target = value;
  return true;
}

bool read_number(const YamlNode& node, const std::string& field, NumberRange range, double& target,
                 Problems& problems) {
  double value = 0;
  const bool number = node.is(YamlNode::Kind::Scalar) && !node.quoted && parses_whole(node.text, value) &&
                      std::isfinite(value);
  const bool above = range.above_least ? value > range.least : value >= range.least;
  const bool below = range.below_most ? value < range.most : value <= range.most;
  if (!number || !above || !below) {
    problems.expected(node.line, field, expectation_of(range), node.shown());
    return false;
  }
  target = value;
  return true;
}

Section::Section(const YamlNode& node, std::string path, int line, Problems& problems)
    : Section(node.is(YamlNode::Kind::Map) ? &node : nullptr, std::move(path), line, problems) {
  if (node_ == nullptr) {
    problems_.expected(line, path_.empty() ? "job file" : path_, "a section of keys and values",
                       node.shown());
  }
}

Section Section::absent(std::string path, Problems& problems) {
  return Section(nullptr, std::move(path), 0, problems);
}

const YamlNode::Entry* Section::entry(const std::string& key, Need need) {
  known_.push_back(key);
  if (node_ == nullptr) return nullptr;
  const YamlNode::Entry* found = node_->find(key);
  if (found == nullptr && need == Need::Required) {
    problems_.expected(line_, field(key), "a value", "no such key");
  }
  return found;
}

const YamlNode* Section::scalar(const std::string& key, const std::string& expectation, Need need) {
  const YamlNode::Entry* found = entry(key, need);
  if (found == nullptr) return nullptr;
  if (found->value.is(YamlNode::Kind::Scalar)) return &found->value;
  problems_.expected(found->line, field(key), expectation, found->value.shown());
  return nullptr;
}

bool Section::integer(const std::string& key, int64_t& target, IntegerRange range, Need need) {
  const YamlNode* node = scalar(key, expectation_of(range), need);
  return node != nullptr && read_integer(*node, field(key), range, target, problems_);
}

bool Section::integer(const std::string& key, int& target, IntegerRange range, Need need) {
  int64_t value = 0;
  range.most = std::min<int64_t>(range.most, std::numeric_limits<int>::max());
  if (!integer(key, value, range, need)) return false;
  target = static_cast<int>(value);
  return true;
}

bool Section::number(const std::string& key, double& target, NumberRange range, Need need) {
  const YamlNode* node = scalar(key, expectation_of(range), need);
  return node != nullptr && read_number(*node, field(key), range, target, problems_);
}

bool Section::text(const std::string& key, std::string& target, Need need) {
  const YamlNode* node = scalar(key, "a text", need);
  if (node == nullptr) return false;
  target = node->text;
  return true;
}

bool Section::flag(const std::string& key, bool& target) {
  const YamlNode* node = scalar(key, "true or false", Need::Optional);
  if (node == nullptr) return false;
  if (node->quoted || (node->text != "true" && node->text != "false")) {
    problems_.expected(node->line, field(key), "true or false", node->shown());
    return false;
  }
  target = node->text == "true";
  return true;
}

bool Section::choice(const std::string& key, std::string& target, std::span<const std::string> names,
                     std::span<const std::string> later, Need need) {
  const YamlNode* node = scalar(key, alternatives(names), need);
  if (node == nullptr) return false;
  if (contains(names, node->text)) {
    target = node->text;
    return true;
  }
  if (contains(later, node->text)) {
    problems_.not_built_yet(node->line, field(key),
                            fmt::format("expected {}, found {}", alternatives(names), node->shown()));
    return false;
  }
  problems_.expected(node->line, field(key), alternatives(names), node->shown(),
                     nearest_name(node->text, names));
  return false;
}

Section Section::section(const std::string& key, Need need) {
  const YamlNode::Entry* found = entry(key, need);
  if (found == nullptr) return absent(field(key), problems_);
  return Section(found->value, field(key), found->line, problems_);
}

void Section::later(const std::string& key) {
  if (const auto* found = entry(key)) {
    problems_.not_built_yet(found->line, field(key), "expected no such key, found " + found->value.shown());
  }
}

void Section::finish() {
  if (node_ == nullptr) return;
  for (const YamlNode::Entry& found : node_->entries) {
    if (contains(known_, found.key)) continue;
    const std::string where = path_.empty() ? "a section or key of the job file" : "a key of " + path_;
    problems_.expected(found.line, shown_value(field(found.key)),
                       fmt::format("{} ({})", where, list_cut(known_)), "an unknown key",
                       nearest_name(found.key, known_));
  }
}

int Section::line_of(const std::string& key) const {
  const YamlNode::Entry* found = node_ == nullptr ? nullptr : node_->find(key);
  return found == nullptr ? line_ : found->line;
}

}  // namespace penstock::plan
