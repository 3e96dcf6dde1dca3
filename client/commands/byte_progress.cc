#include "client/commands/byte_progress.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "client/commands/terminal.h"
#include "plan/render/human.h"

namespace penstock::client {
namespace {

constexpr const char* kWipeLine = "\r\x1b[K";

}  // namespace

ByteProgress::ByteProgress(std::string verb, int64_t total_bytes)
    : verb_(std::move(verb)),
      total_bytes_(total_bytes),
      terminal_(is_terminal(stderr)),
      next_(clock_.now() + 1s) {}

ByteProgress::~ByteProgress() {
  if (drawn_) print_on(stderr, kWipeLine);
}

void ByteProgress::add(int64_t bytes) {
  done_bytes_ += bytes;
  const TimePoint now = clock_.now();
  if (now < next_ || total_bytes_ == 0) return;
  next_ = now + (terminal_ ? 1s : 10s);
  const std::string text =
      fmt::format("{}: {:.0f}% of {}", verb_,
                  100.0 * static_cast<double>(done_bytes_) / static_cast<double>(total_bytes_),
                  plan::human_bytes(total_bytes_));
  if (terminal_) {
    print_on(stderr, kWipeLine + text);
    drawn_ = true;
  } else {
    say(text);
  }
}

}  // namespace penstock::client
