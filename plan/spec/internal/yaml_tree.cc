#include "plan/spec/internal/yaml_tree.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <memory>
#include <sstream>

#include "base/utf8.h"
#include "plan/spec/limits.h"

namespace penstock::plan {
namespace {

// Stops yaml-cpp's parser from inside an event.
struct Refused {
  int line;
  std::string what;
};

// Builds the tree from yaml-cpp's events; its own Node type resolves aliases and forgets duplicate keys.
class TreeBuilder final : public YAML::EventHandler {
 public:
  explicit TreeBuilder(Problems& problems) : problems_(problems) {}

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnAnchor(const YAML::Mark& mark, const std::string& name) override {
    refuse(mark, fmt::format("expected no anchors or aliases, found &{}", shown_value(name)));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    refuse(mark, "expected no anchors or aliases, found an alias");
  }
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { take(node_at(mark, YamlNode::Kind::Null)); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                const std::string& value) override {
    if (tag != "?" && tag != "!" && !tag.empty()) refuse_tag(mark, tag);
    YamlNode node = node_at(mark, YamlNode::Kind::Scalar);
    node.quoted = tag == "!";
    node.text = value;
    take(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, YamlNode::Kind::List);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, YamlNode::Kind::Map);
  }
  void OnMapEnd() override { close(); }

  YamlNode release() { return std::move(root_); }

 private:
  struct Open {
    YamlNode node;
    bool has_key = false;
    std::string key;
    int key_line = 0;
  };

  [[noreturn]] static void refuse(const YAML::Mark& mark, const std::string& what) {
    throw Refused{mark.line + 1, what};
  }
  [[noreturn]] static void refuse_tag(const YAML::Mark& mark, const std::string& tag) {
    refuse(mark, fmt::format("expected no tags, found {}", shown_value(tag)));
  }

  YamlNode node_at(const YAML::Mark& mark, YamlNode::Kind kind) {
    if (++nodes_ > kMostNodes)
      refuse(mark, fmt::format("expected at most {} values, found more", kMostNodes));
    YamlNode node;
    node.kind = kind;
    node.line = mark.line + 1;
    node.offset = static_cast<size_t>(std::max(mark.pos, 0));
    return node;
  }

  void open(const YAML::Mark& mark, const std::string& tag, YamlNode::Kind kind) {
    if (tag != "?" && tag != "!" && !tag.empty()) refuse_tag(mark, tag);
    if (static_cast<int>(stack_.size()) >= kDeepestNesting) {
      refuse(mark, fmt::format("expected at most {} levels of nesting, found more", kDeepestNesting));
    }
    if (expects_key()) refuse(mark, "expected a word as key, found a list or a section");
    stack_.emplace_back().node = node_at(mark, kind);
  }

  void close() {
    YamlNode node = std::move(stack_.back().node);
    stack_.pop_back();
    attach(std::move(node));
  }

  bool expects_key() const {
    return !stack_.empty() && stack_.back().node.kind == YamlNode::Kind::Map && !stack_.back().has_key;
  }

  void take(YamlNode node) {
    if (!expects_key()) return attach(std::move(node));
    if (node.kind == YamlNode::Kind::Null) throw Refused{node.line, "expected a key, found nothing"};
    Open& map = stack_.back();
    map.has_key = true;
    map.key = std::move(node.text);
    map.key_line = node.line;
  }

  // "train.steps" for the key that is being read.
  std::string path_of_key() const {
    std::string path;
    for (const Open& open : stack_) {
      if (open.has_key) path += (path.empty() ? "" : ".") + open.key;
    }
    return path;
  }

  void attach(YamlNode node) {
    if (stack_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& parent = stack_.back();
    if (parent.node.kind == YamlNode::Kind::List) {
      parent.node.items.push_back(std::move(node));
      return;
    }
    const std::string field = path_of_key();
    parent.has_key = false;
    if (const auto* first = parent.node.find(parent.key)) {
      problems_.expected(parent.key_line, shown_value(field), "each key once",
                         fmt::format("it again; it stands on line {} already", first->line));
      return;
    }
    // find() above is linear: a section with more keys than any real one has would make it quadratic.
    constexpr size_t kMostKeys = 256;
    if (parent.node.entries.size() >= kMostKeys) {
      throw Refused{parent.key_line,
                    fmt::format("expected at most {} keys in a section, found more", kMostKeys)};
    }
    parent.node.entries.push_back({std::move(parent.key), parent.key_line, std::move(node)});
  }

  Problems& problems_;
  YamlNode root_;
  std::vector<Open> stack_;
  size_t nodes_ = 0;
};

// The first byte that is not UTF-8 or a control character other than tab, newline and carriage return, or the
// text's size: YAML has no such characters, and they would hide in messages.
size_t first_bad_byte(const std::string& text) {
  const auto is_control = [](char c) {
    return (c >= 0 && c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f;
  };
  const auto control = std::find_if(text.begin(), text.end(), is_control);
  return std::min(utf8_valid_prefix(text), static_cast<size_t>(control - text.begin()));
}

bool text_is_acceptable(const std::string& text, Problems& problems) {
  if (text.size() > kLargestJobFileBytes) {
    problems.expected(0, "job file", fmt::format("at most {} bytes", kLargestJobFileBytes),
                      fmt::format("{} bytes", text.size()));
    return false;
  }
  const size_t bad = text.starts_with("\xef\xbb\xbf") ? 0 : first_bad_byte(text);
  if (bad == text.size()) return true;
  const auto line = std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(bad), '\n') + 1;
  problems.expected(static_cast<int>(line), "",
                    "plain UTF-8 text without control characters or byte order mark",
                    fmt::format("byte 0x{:02x}", static_cast<unsigned char>(text[bad])));
  return false;
}

}  // namespace

const YamlNode::Entry* YamlNode::find(std::string_view key) const {
  const auto found =
      std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return e.key == key; });
  return found == entries.end() ? nullptr : &*found;
}

std::string YamlNode::shown() const {
  switch (kind) {
    case Kind::Null:
      return "nothing";
    case Kind::Scalar:
      return quoted || text.empty() ? fmt::format("\"{}\"", shown_value(text)) : shown_value(text);
    case Kind::List:
      return fmt::format("a list of {}", items.size());
    case Kind::Map:
      return "a section";
  }
  return "";
}

YamlNode parse_yaml(const std::string& text, Problems& problems) {
  if (!text_is_acceptable(text, problems)) return {};
  TreeBuilder builder(problems);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) return {};
    YamlNode root = builder.release();
    if (parser.HandleNextDocument(builder)) problems.expected(0, "job file", "one YAML document", "several");
    return root;
  } catch (const Refused& refused) {
    problems.add(refused.line, "", refused.what);
  } catch (const YAML::Exception& bad) {
    problems.expected(bad.mark.is_null() ? 0 : bad.mark.line + 1, "", "YAML", bad.msg);
  } catch (const std::exception& bad) {
    problems.expected(0, "job file", "YAML", bad.what());
  }
  return {};
}

}  // namespace penstock::plan
