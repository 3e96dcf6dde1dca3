#include "base/atomic_file.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

namespace penstock {

Status refused_by_system(const std::string& path, const char* what, int reason) {
  const bool full = reason == ENOSPC || reason == EDQUOT;
  return error(full ? StatusCode::kResourceExhausted : StatusCode::kUnavailable, "{} cannot be {}: {}", path,
               what, std::strerror(reason));
}

StatusOr<AtomicFile> AtomicFile::create(const std::string& path) {
  AtomicFile file;
  file.path_ = path;
  file.fd_ =
      FileDescriptor(::open((path + ".partial").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file.fd_.is_open()) return file.failed("made");
  file.draft_ = path + ".partial";
  return file;
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)), draft_(std::exchange(other.draft_, "")), fd_(std::move(other.fd_)) {}

AtomicFile::~AtomicFile() {
  if (!draft_.empty()) unlink(draft_.c_str());
}

Status AtomicFile::failed(const char* what) const {
  return refused_by_system(path_, what, errno);
}

Status AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return failed("written");
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return ok_status();
}

Status AtomicFile::write(std::string_view text) {
  return write(std::as_bytes(std::span(text.data(), text.size())));
}

Status AtomicFile::overwrite(int64_t offset, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = pwrite(fd_.get(), text.data(), text.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return failed("written");
    text.remove_prefix(static_cast<size_t>(written));
    offset += written;
  }
  return ok_status();
}

Status AtomicFile::commit() {
  if (fsync(fd_.get()) != 0) return failed("synced");
  fd_.reset();
  if (std::rename(draft_.c_str(), path_.c_str()) != 0) return failed("renamed into place");
  draft_.clear();
  return sync_folder(std::filesystem::path(path_).parent_path().string());
}

Status write_atomically(const std::string& path, std::string_view text) {
  PENSTOCK_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  PENSTOCK_RETURN_IF_ERROR(file.write(text));
  return file.commit();
}

Status make_folder(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code failure;
  std::vector<fs::path> missing;  // the deepest first
  for (fs::path folder = (fs::path(path) / "").parent_path();
       !folder.empty() && !fs::is_directory(folder, failure); folder = folder.parent_path())
    missing.push_back(folder);
  for (auto folder = missing.rbegin(); folder != missing.rend(); ++folder) {
    fs::create_directory(*folder, failure);  // no failure where somebody has just made it
    if (failure) return refused_by_system(path, "made", failure.value());
    PENSTOCK_RETURN_IF_ERROR(sync_folder(folder->parent_path().string()));
  }
  return ok_status();
}

Status sync_folder(const std::string& folder) {
  const std::string path = folder.empty() ? "." : folder;
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems cannot sync a folder; they say EINVAL, and there is nothing better to do.
  if (fd.is_open() && (fsync(fd.get()) == 0 || errno == EINVAL)) return ok_status();
  return unavailable("folder {} cannot be synced: {}", path, std::strerror(errno));
}

}  // namespace penstock
