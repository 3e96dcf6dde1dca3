// A regular file that is read piece by piece, by position. A page that cannot be read, or that the file no longer has, is
// a Status here, where a mapping (base/mapped_file.h) would end the process.
//
// Thread: any, once it is open. Holds no descriptor: there may be tens of thousands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/file_descriptor.h"
#include "base/status.h"

namespace penstock {

class ReadableFile {
 public:
  // NotFound: no such file. FailedPrecondition: not a readable regular file (a pipe does not block). Each names the path.
  static StatusOr<ReadableFile> open(const std::string& path);

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }

  // Fills `bytes` from `offset` on; what lies there must be within size(). DataLoss names path and offset: the path no
  // longer leads to the file that was opened, or its size has changed, or the disk cannot read it.
  Status read(int64_t offset, std::span<std::byte> bytes) const;
  // The whole of a small file. InvalidArgument: more than `bytes_max`.
  StatusOr<std::string> read_all(int64_t bytes_max) const;

 private:
  ReadableFile() = default;
  StatusOr<FileDescriptor> reopened() const;

  std::string path_;
  int64_t size_ = 0;
  uint64_t device_ = 0;
  uint64_t inode_ = 0;
};

}  // namespace penstock
