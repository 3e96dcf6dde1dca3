#include "worker/agent/line_capture.h"

#include <algorithm>
#include <utility>

namespace penstock::worker {
void LineCapture::push(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    const size_t room = kLongestLine - std::min(kLongestLine, partial_.size());
    partial_.append(piece.substr(0, room));
    cut_ = cut_ || piece.size() > room;
    if (end == std::string_view::npos) return;
    end_line();
    bytes.remove_prefix(end + 1);
  }
}

void LineCapture::finish() {
  if (!partial_.empty()) end_line();
}

void LineCapture::end_line() {
  if (!partial_.empty() && partial_.back() == '\r') partial_.pop_back();
  std::string line = std::move(partial_);
  if (std::exchange(cut_, false)) line += " [cut]";
  partial_.clear();
  if (!line.empty()) last_line_ = line;
  if (lines_.size() < kMostLines) {
    lines_.push_back(std::move(line));
  } else {
    ++dropped_;
  }
}

LineCapture::Batch LineCapture::take() {
  return Batch{std::exchange(lines_, {}), std::exchange(dropped_, 0)};
}

}  // namespace penstock::worker
