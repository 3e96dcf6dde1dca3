// Owns a file descriptor and closes it. Move-only.
#pragma once

#include <unistd.h>

#include <utility>

namespace penstock {

class FileDescriptor {
 public:
  FileDescriptor() = default;  // owns none
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~FileDescriptor() { reset(); }

  bool is_open() const { return fd_ >= 0; }
  int get() const { return fd_; }  // -1 where it owns none

  // Leaves errno alone, so that an error can still be told after its descriptor is gone.
  void reset();

 private:
  int fd_ = -1;
};

}  // namespace penstock
