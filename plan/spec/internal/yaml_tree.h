// The job file's text as a small tree that remembers its lines. A strict subset of YAML: one document, no
// anchors, aliases or tags, so that a short text can never grow into a big tree.
//
// Limits: text 1 MiB, nesting 8, 65,536 nodes. A repeated key is reported and the first one kept.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "plan/spec/internal/problems.h"

namespace penstock::plan {

constexpr int kDeepestNesting = 8;
constexpr size_t kMostNodes = 65536;

struct YamlNode {
  enum class Kind { Null, Scalar, List, Map };
  struct Entry;

  Kind kind = Kind::Null;
  int line = 0;         // 1-based
  size_t offset = 0;    // of the first byte in the text
  bool quoted = false;  // "200" and '200' are text, 200 is a number
  std::string text;     // of a scalar
  std::vector<YamlNode> items;
  std::vector<Entry> entries;

  const Entry* find(std::string_view key) const;
  bool is(Kind wanted) const { return kind == wanted; }
  // How an error message shows it: `abc`, "abc" in quotes, "a list of 3", "a section", "nothing".
  std::string shown() const;
};

struct YamlNode::Entry {
  std::string key;
  int line = 0;
  YamlNode value;
};

// Null node for an empty text. What the text breaks is added to `problems`; the tree is then not to be used.
YamlNode parse_yaml(const std::string& text, Problems& problems);

}  // namespace penstock::plan
