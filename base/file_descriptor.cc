#include "base/file_descriptor.h"

#include <cerrno>

namespace penstock {

void FileDescriptor::reset() {
  if (fd_ < 0) return;
  const int before = errno;
  ::close(std::exchange(fd_, -1));
  errno = before;
}

}  // namespace penstock
