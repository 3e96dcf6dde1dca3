#include "coordinator/core/jobs/log_ring.h"

#include <algorithm>
#include <utility>

namespace penstock::coordinator {
namespace {
constexpr std::string_view kCutMark = " ... (cut)";

size_t bytes_of(const LogLineView& line) {
  return line.text.size() + line.worker.size() + sizeof(LogLineView);
}

// The largest size up to `limit` that does not cut a UTF-8 character in two.
size_t whole_characters(const std::string& text, size_t limit) {
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xC0) == 0x80) --limit;
  return limit;
}

}  // namespace

void LogRing::add(LogLineView line, const LogLimits& limits) {
  if (line.text.size() > limits.line_bytes) {
    line.text.resize(whole_characters(line.text, limits.line_bytes));
    line.text += kCutMark;
  }
  bytes_ += bytes_of(line);
  lines_.push_back(std::move(line));
  while (lines_.size() > limits.lines || (bytes_ > limits.bytes && lines_.size() > 1)) drop_oldest();
}

void LogRing::drop_oldest() {
  bytes_ -= bytes_of(lines_.front());
  lines_.pop_front();
  ++first_;
}

void LogRing::clear() {
  first_ = next();
  lines_.clear();
  lines_.shrink_to_fit();
  bytes_ = 0;
}

LogPage LogRing::read(uint64_t cursor, RankIndex rank, size_t limit) const {
  LogPage page;
  page.lost = cursor < first_ ? first_ - cursor : 0;
  page.next = std::clamp(cursor, first_, next());
  while (page.next < next() && page.lines.size() < limit) {
    const LogLineView& line = lines_[page.next - first_];
    if (!rank.is_set() || line.rank == rank) page.lines.push_back(line);
    ++page.next;
  }
  return page;
}

}  // namespace penstock::coordinator
