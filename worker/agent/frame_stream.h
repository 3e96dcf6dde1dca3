// Frames of a byte stream: a 4-byte little-endian length, then that many bytes.
//
// Thread: one at a time.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace penstock::worker {

// Cuts arriving bytes into frames.
// Bounds: holds at most one frame of `largest` bytes and what was pushed beyond it.
class FrameReader {
 public:
  explicit FrameReader(size_t largest) : largest_(largest) {}
  void push(std::string_view bytes) { buffer_.append(bytes); }
  // The next whole frame, nullopt when more bytes are needed, InvalidArgument when its length is over the
  // bound; the stream has no meaning after that.
  StatusOr<std::optional<std::string>> next();

 private:
  size_t largest_;
  std::string buffer_;
  size_t begin_ = 0;  // bytes before it have been handed out
};

// Bytes on their way out of a non-blocking descriptor.
class FrameWriter {
 public:
  explicit FrameWriter(size_t most_pending) : most_pending_(most_pending) {}
  // ResourceExhausted when more than `most_pending` bytes would wait: the reader has stopped reading.
  Status push(std::string_view frame);
  // Writes what the descriptor takes now; Unavailable when its other end is gone.
  Status write_to(int fd);
  bool empty() const { return begin_ == buffer_.size(); }

 private:
  size_t most_pending_;
  std::string buffer_;
  size_t begin_ = 0;
};

}  // namespace penstock::worker
