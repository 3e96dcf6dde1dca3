// Reads one section of the job file key by key and says what is wrong with it. Keys that nobody asked for are
// unknown: finish() reports them with the nearest key that was asked for.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "plan/spec/internal/problems.h"
#include "plan/spec/internal/yaml_tree.h"

namespace penstock::plan {

enum class Need { Required, Optional };

struct IntegerRange {
  int64_t least = 0;
  int64_t most = std::numeric_limits<int64_t>::max();
};

struct NumberRange {
  double least = 0;
  double most = 1e30;
  bool above_least = false;  // least itself is refused
  bool below_most = false;   // most itself is refused
};

class Section {
 public:
  // `path` is "" for the whole file, `line` where a key that is missing is reported. A section that is absent
  // reads as empty, without further problems.
  Section(const YamlNode& node, std::string path, int line, Problems& problems);
  static Section absent(std::string path, Problems& problems);

  bool present() const { return node_ != nullptr; }

  // Each leaves `target` as it is when the key is absent or its value is refused, and returns whether it was
  // set.
  bool integer(const std::string& key, int64_t& target, IntegerRange range, Need need = Need::Optional);
  bool integer(const std::string& key, int& target, IntegerRange range, Need need = Need::Optional);
  bool number(const std::string& key, double& target, NumberRange range, Need need = Need::Optional);
  bool text(const std::string& key, std::string& target, Need need = Need::Optional);
  bool flag(const std::string& key, bool& target);
  // One of `names`, or one of `later`, which is refused as not built yet.
  bool choice(const std::string& key, std::string& target, std::span<const std::string> names,
              std::span<const std::string> later = {}, Need need = Need::Optional);

  Section section(const std::string& key, Need need = Need::Optional);
  // The entry itself, for values of several shapes; nullptr when absent (reported when required).
  const YamlNode::Entry* entry(const std::string& key, Need need = Need::Optional);

  // The key is designed and refused until it is built.
  void later(const std::string& key);

  void finish();

  std::string field(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }
  // Line of the key, or of the section where the key is absent.
  int line_of(const std::string& key) const;

 private:
  Section(const YamlNode* node, std::string path, int line, Problems& problems)
      : node_(node), path_(std::move(path)), line_(line), problems_(problems) {}
  const YamlNode* scalar(const std::string& key, const std::string& expectation, Need need);

  const YamlNode* node_ = nullptr;
  std::string path_;
  int line_ = 0;
  Problems& problems_;
  std::vector<std::string> known_;
};

// "cosine", or "one of constant, cosine".
std::string alternatives(std::span<const std::string> names);

// The whole number that a plain scalar spells, within the range; otherwise a problem and false.
bool read_integer(const YamlNode& node, const std::string& field, IntegerRange range, int64_t& target,
                  Problems& problems);
bool read_number(const YamlNode& node, const std::string& field, NumberRange range, double& target,
                 Problems& problems);

}  // namespace penstock::plan
