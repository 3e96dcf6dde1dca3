// Writes a file that is seen whole or not at all: under a name of its own first (the path with ".partial"), synced,
// then renamed over the path, and the folder synced.
//
// A file that is not committed is removed. Two writers of one path at once are not kept apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/file_descriptor.h"
#include "base/status.h"

namespace penstock {

class AtomicFile {
 public:
  // Errors here and below begin with the path. Unavailable: what the system says; ResourceExhausted: the disk or
  // quota is full.
  static StatusOr<AtomicFile> create(const std::string& path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  const std::string& path() const { return path_; }
  Status write(std::span<const std::byte> bytes);
  Status write(std::string_view text);
  // In place of what was written at `offset`: for a header that is known last.
  Status overwrite(int64_t offset, std::string_view text);
  Status commit();  // call once, last

 private:
  AtomicFile() = default;
  Status failed(const char* what) const;

  std::string path_;
  std::string draft_;  // "" once it is committed or moved away
  FileDescriptor fd_;
};

// A whole small file at once.
Status write_atomically(const std::string& path, std::string_view text);

// Makes the folder and those above it that are missing, each of which survives a crash of the machine. Errors begin with
// the path: Unavailable, ResourceExhausted as above.
Status make_folder(const std::string& path);

// "PATH cannot be WHAT: ...", of an errno: ResourceExhausted where the disk or quota is full, else Unavailable.
Status refused_by_system(const std::string& path, const char* what, int reason);

// Makes names that were added to or removed from the folder survive a crash of the machine.
Status sync_folder(const std::string& folder);

}  // namespace penstock
