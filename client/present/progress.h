// The progress of a job: what a terminal shows, and the plain lines that a log gets.
#pragma once

#include <string>

#include "base/clock.h"
#include "penstock/v1/jobs.pb.h"
#include "plan/render/glyphs.h"

namespace penstock::client {

// "step 84/200  loss 2.3456  12.3k tokens/s  ETA 1m12s"
std::string progress_line(const v1::Job& job);

struct ProgressStyle {
  bool terminal = false;  // redraw in place; otherwise plain lines
  int width = 80;
  int stages_max = 16;  // bars drawn; the rest is counted
  plan::Glyphs glyphs = plan::Glyphs::Ascii;
};

// State and reason, a bar with the line above, and a busy/waiting bar a stage; no line longer than the width.
std::string progress_block(const v1::Job& job, const ProgressStyle& style);

// Turns a stream of jobs into what to write next, at a bounded rate: on a terminal at most 10 drawings a
// second, otherwise at most one line a second, plus every change of state. The last job is always shown.
//
// Thread: one.
class ProgressPrinter {
 public:
  explicit ProgressPrinter(ProgressStyle style) : style_(style) {}

  // The text to write, "" when nothing is due. On a terminal it begins by wiping the drawing before.
  std::string next(const v1::Job& job, TimePoint now);

 private:
  std::string drawing(const v1::Job& job);
  std::string plain(const v1::Job& job, bool state_changed);

  ProgressStyle style_;
  bool shown_before_ = false;
  TimePoint shown_at_{};
  v1::JobState state_ = v1::JOB_STATE_UNSPECIFIED;
  std::string reason_;
  int64_t step_ = -1;
  int lines_drawn_ = 0;
};

}  // namespace penstock::client
