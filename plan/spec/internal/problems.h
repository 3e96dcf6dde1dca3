// What is wrong with a job file: at most ten lines that a person reads, ordered by their place in the file.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace penstock::plan {

class Problems {
 public:
  // "line 7: model.hidden_size: expected a whole number, found abc". Line 0: about the whole text, no place
  // shown.
  void add(int line, const std::string& field, const std::string& what);
  void expected(int line, const std::string& field, const std::string& expectation, const std::string& found);
  // The same with "; did you mean hidden_size?" unless `nearest` is empty.
  void expected(int line, const std::string& field, const std::string& expectation, const std::string& found,
                const std::string& nearest);
  void not_built_yet(int line, const std::string& field, const std::string& remedy);

  bool empty() const { return problems_.empty(); }
  size_t count() const { return count_; }
  // InvalidArgument with a line a problem, or ok.
  Status status() const;

 private:
  struct Problem {
    int line = 0;
    std::string text;
  };
  static constexpr size_t kMostKept =
      256;  // so that a file of only mistakes costs no more than its first ones
  std::vector<Problem> problems_;
  size_t count_ = 0;
};

// A value as a message shows it: no control characters, at most 48 bytes.
std::string shown_value(const std::string& value);

}  // namespace penstock::plan
