#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/file_descriptor.h"

namespace penstock {
namespace {

std::string reason(int error_number) {
  return std::strerror(error_number);
}

}  // namespace

StatusOr<MappedFile> MappedFile::open(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open() && errno == ENOENT) return not_found("{} does not exist", path);
  if (!file.is_open()) return failed_precondition("{} cannot be opened: {}", path, reason(errno));
  struct stat about {};
  if (::fstat(file.get(), &about) != 0) {
    return failed_precondition("{} cannot be examined: {}", path, reason(errno));
  }
  if (!S_ISREG(about.st_mode)) return failed_precondition("{} is not a regular file", path);

  MappedFile mapped;
  mapped.path_ = path;
  mapped.size_ = about.st_size;
  mapped.device_ = about.st_dev;
  mapped.inode_ = about.st_ino;
  if (mapped.size_ == 0) return mapped;
  void* data = ::mmap(nullptr, static_cast<size_t>(about.st_size), PROT_READ, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) {
    return resource_exhausted("{} of {} bytes cannot be mapped: {}", path, mapped.size_, reason(errno));
  }
  mapped.data_ = static_cast<const uint8_t*>(data);
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      device_(other.device_),
      inode_(other.inode_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this == &other) return *this;
  unmap();
  path_ = std::move(other.path_);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  device_ = other.device_;
  inode_ = other.inode_;
  return *this;
}

MappedFile::~MappedFile() {
  unmap();
}

void MappedFile::unmap() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), static_cast<size_t>(size_));
  data_ = nullptr;
}

Status MappedFile::check_unchanged() const {
  struct stat about {};
  if (::stat(path_.c_str(), &about) != 0) {
    return data_loss("{} cannot be found any more: {}", path_, reason(errno));
  }
  if (about.st_dev != device_ || about.st_ino != inode_) {
    return data_loss("{} has been replaced by another file since it was opened", path_);
  }
  if (about.st_size != size_) {
    return data_loss("{} has {} bytes, it had {} when it was opened", path_, about.st_size, size_);
  }
  return ok_status();
}

}  // namespace penstock
