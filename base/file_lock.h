// A lock that a file stands for: of all processes that see the file, on any host where the disk can do so, one holder at
// a time has it. It ends with its holder, or with the process, and leaves the file.
//
// Advice for those who ask: it keeps nobody from the files beside it. Thread: any.
#pragma once

#include <string>

#include "base/file_descriptor.h"
#include "base/status.h"

namespace penstock {

class FileLock {
 public:
  // Makes the file, if need be, and writes `holder`, a line, into it for those who come later. AlreadyExists: somebody has
  // the lock; the message tells what they wrote. Unavailable, ResourceExhausted: the file cannot be made. A disk that
  // knows no locks gives one that is not held against anybody.
  static StatusOr<FileLock> take(const std::string& path, const std::string& holder);

 private:
  explicit FileLock(FileDescriptor fd) : fd_(std::move(fd)) {}

  FileDescriptor fd_;
};

}  // namespace penstock
