// The bytes of several text files, one after another, as one long text.
//
// Files are named by paths or patterns (*, ?, [..]); a pattern's files come in byte order of their names, a
// file that is named twice counts once. Sizes are taken when the files are opened and must not change
// afterwards. Limits: at most kDescriptors files are open at a time, however many there are. Thread: one at a
// time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "base/status.h"

namespace penstock::worker {

class TextFiles {
 public:
  static constexpr size_t kDescriptors = 32;

  // NotFound: a pattern without a match or a missing file. FailedPrecondition: not a readable regular file.
  // Both name the file and the reason.
  static StatusOr<TextFiles> open(const std::vector<std::string>& sources);

  TextFiles(TextFiles&& other) noexcept = default;
  TextFiles& operator=(TextFiles&& other) noexcept = default;

  int64_t bytes() const { return bytes_; }
  std::vector<std::string> paths() const;
  std::vector<int64_t> file_bytes() const;  // beside paths()

  // Where a byte of the text stands.
  struct Place {
    std::string path;
    int64_t offset = 0;
  };
  Place place(int64_t offset) const;

  // Fills `target` with the bytes from `offset` on, across files where it must. DataLoss names file, offset
  // and reason when a file has become shorter or cannot be read.
  Status read(int64_t offset, std::span<uint8_t> target);

 private:
  struct File {
    std::string path;
    int64_t begin = 0;  // in the whole text
    int64_t bytes = 0;
  };
  struct OpenFile {
    size_t file = 0;
    FileDescriptor descriptor;
  };

  TextFiles() = default;
  size_t file_at(int64_t offset) const;
  StatusOr<int> descriptor_of(size_t file);
  Status read_from(size_t file, int64_t offset, std::span<uint8_t> target);

  std::vector<File> files_;
  int64_t bytes_ = 0;
  std::vector<OpenFile> open_;  // at most kDescriptors, replaced in turn
  size_t next_replaced_ = 0;
};

}  // namespace penstock::worker
