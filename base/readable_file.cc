#include "base/readable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace penstock {
namespace {

FileDescriptor open_for_reading(const std::string& path) {
  return FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
}

}  // namespace

StatusOr<ReadableFile> ReadableFile::open(const std::string& path) {
  const FileDescriptor descriptor = open_for_reading(path);
  if (!descriptor.is_open() && errno == ENOENT) return not_found("{} does not exist", path);
  if (!descriptor.is_open())
    return failed_precondition("{} cannot be opened: {}", path, std::strerror(errno));
  struct stat about {};
  if (::fstat(descriptor.get(), &about) != 0)
    return failed_precondition("{} cannot be examined: {}", path, std::strerror(errno));
  if (!S_ISREG(about.st_mode)) return failed_precondition("{} is not a regular file", path);
  ReadableFile file;
  file.path_ = path;
  file.size_ = about.st_size;
  file.device_ = about.st_dev;
  file.inode_ = about.st_ino;
  return file;
}

StatusOr<FileDescriptor> ReadableFile::reopened() const {
  FileDescriptor descriptor = open_for_reading(path_);
  struct stat about {};
  if (!descriptor.is_open() || ::fstat(descriptor.get(), &about) != 0)
    return data_loss("{} cannot be opened any more: {}", path_, std::strerror(errno));
  if (about.st_dev != device_ || about.st_ino != inode_)
    return data_loss("{} has been replaced by another file since it was opened", path_);
  if (about.st_size != size_)
    return data_loss("{} has {} bytes, it had {} when it was opened", path_, about.st_size, size_);
  return descriptor;
}

Status ReadableFile::read(int64_t offset, std::span<std::byte> bytes) const {
  PENSTOCK_CHECK(offset >= 0 && offset + static_cast<int64_t>(bytes.size()) <= size_, "{}: {} bytes at {}",
                 path_, bytes.size(), offset);
  PENSTOCK_ASSIGN_OR_RETURN(const FileDescriptor descriptor, reopened());
  while (!bytes.empty()) {
    const ssize_t count = ::pread(descriptor.get(), bytes.data(), bytes.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      return data_loss("{} cannot be read at offset {}: {}", path_, offset, std::strerror(errno));
    if (count == 0)
      return data_loss("{} ends at offset {}, it had {} bytes when it was opened", path_, offset, size_);
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += count;
  }
  return ok_status();
}

StatusOr<std::string> ReadableFile::read_all(int64_t bytes_max) const {
  if (size_ > bytes_max)
    return invalid_argument("{}: expected at most {} bytes, found {}", path_, bytes_max, size_);
  std::string text(static_cast<size_t>(size_), '\0');
  PENSTOCK_RETURN_IF_ERROR(read(0, std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace penstock
