#include "worker/agent/frame_stream.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace penstock::worker {
namespace {

constexpr size_t kHeader = 4;

uint32_t length_at(const char* bytes) {
  uint32_t length = 0;
  for (size_t i = 0; i < kHeader; ++i)
    length |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  return length;
}

}  // namespace

StatusOr<std::optional<std::string>> FrameReader::next() {
  const size_t held = buffer_.size() - begin_;
  if (held < kHeader) return std::optional<std::string>();
  const size_t length = length_at(buffer_.data() + begin_);
  if (length > largest_)
    return invalid_argument("frame of {} bytes: at most {} expected; the stream is not one of frames", length,
                            largest_);
  if (held < kHeader + length) {
    buffer_.erase(0, begin_);
    begin_ = 0;
    return std::optional<std::string>();
  }
  std::optional<std::string> frame = buffer_.substr(begin_ + kHeader, length);
  begin_ += kHeader + length;
  if (begin_ == buffer_.size()) {
    buffer_.clear();
    begin_ = 0;
  }
  return frame;
}

Status FrameWriter::push(std::string_view frame) {
  const size_t pending = buffer_.size() - begin_;
  if (pending + kHeader + frame.size() > most_pending_)
    return resource_exhausted("{} bytes wait for an executor that does not read; at most {} may",
                              pending + frame.size(), most_pending_);
  buffer_.erase(0, begin_);
  begin_ = 0;
  for (size_t i = 0; i < kHeader; ++i) buffer_.push_back(static_cast<char>(frame.size() >> (8 * i)));
  buffer_.append(frame);
  return ok_status();
}

Status FrameWriter::write_to(int fd) {
  while (!empty()) {
    const ssize_t written =
        send(fd, buffer_.data() + begin_, buffer_.size() - begin_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return ok_status();
    if (written < 0) return unavailable("socket of the executor: {}", std::strerror(errno));
    begin_ += static_cast<size_t>(written);
  }
  buffer_.clear();
  begin_ = 0;
  return ok_status();
}

}  // namespace penstock::worker
