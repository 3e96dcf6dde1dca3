// A regular file, mapped into memory for reading: as large as the disk holds, and no copy of it.
//
// A page that the file no longer has ends the process by SIGBUS when it is touched. So whoever reads asks
// check_unchanged() first; a file that is cut between the question and the read is beyond help.
//
// Thread: any, once it is open. Holds no descriptor.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace penstock {

class MappedFile {
 public:
  // NotFound: no such file. FailedPrecondition: not a readable regular file (a pipe does not block).
  // ResourceExhausted: no room for the mapping. Each names the path.
  static StatusOr<MappedFile> open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }
  std::span<const uint8_t> bytes() const { return {data_, static_cast<size_t>(size_)}; }

  // DataLoss when the path no longer leads to the file that was opened, or its size has changed: says how.
  Status check_unchanged() const;

 private:
  MappedFile() = default;
  void unmap();

  std::string path_;
  const uint8_t* data_ = nullptr;  // null where the file is empty
  int64_t size_ = 0;
  uint64_t device_ = 0;
  uint64_t inode_ = 0;
};

}  // namespace penstock
