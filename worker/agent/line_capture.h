// Cuts what a child prints into lines, and bounds them.
//
// Bounds: a line is cut at kLongestLine bytes; beyond kMostLines waiting lines new ones are dropped and
// counted. Thread: one at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::worker {

class LineCapture {
 public:
  static constexpr size_t kLongestLine = 4000;
  static constexpr size_t kMostLines = 512;

  struct Batch {
    std::vector<std::string> lines;
    int64_t dropped = 0;
  };

  void push(std::string_view bytes);
  // The last line without its end, when the child is gone.
  void finish();
  bool empty() const { return lines_.empty() && dropped_ == 0; }
  Batch take();
  const std::string& last_line() const { return last_line_; }

 private:
  void end_line();

  std::string partial_;
  bool cut_ = false;  // the rest of the current line is not kept
  std::vector<std::string> lines_;
  int64_t dropped_ = 0;
  std::string last_line_;
};

}  // namespace penstock::worker
