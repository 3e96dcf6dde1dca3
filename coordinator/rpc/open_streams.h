// The streams that are open now, so that a shutdown can end each with a reason before it ends the server:
// gRPC's own shutdown waits for ever for a stream that does not finish.
//
// Thread: any.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/status.h"

namespace penstock::coordinator {

class ClosableStream {
 public:
  virtual ~ClosableStream() = default;
  // Ends the stream soon; harmless when it has ended.
  virtual void end_stream(const Status& status) = 0;
};

class OpenStreams {
 public:
  // False: all are being closed, and no new one may start.
  bool add(const std::shared_ptr<ClosableStream>& stream) {
    const std::lock_guard lock(mutex_);
    if (closing_) return false;
    streams_[stream.get()] = stream;
    return true;
  }
  void remove(const ClosableStream* stream) {
    const std::lock_guard lock(mutex_);
    streams_.erase(stream);
  }
  void close_all(const Status& status) {
    std::vector<std::shared_ptr<ClosableStream>> open;
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
      for (const auto& [key, stream] : streams_) {
        if (auto alive = stream.lock()) open.push_back(std::move(alive));
      }
    }
    for (const auto& stream : open) stream->end_stream(status);
  }

 private:
  std::mutex mutex_;
  std::map<const ClosableStream*, std::weak_ptr<ClosableStream>> streams_;
  bool closing_ = false;
};

}  // namespace penstock::coordinator
