#include "worker/data/text_files.h"

#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace penstock::worker {
namespace {

std::string reason(int error_number) {
  return std::strerror(error_number);
}

bool is_pattern(const std::string& source) {
  return source.find_first_of("*?[") != std::string::npos;
}

StatusOr<std::vector<std::string>> expand(const std::string& source) {
  if (!is_pattern(source)) return std::vector<std::string>{source};
  glob_t matches{};
  const int result = ::glob(source.c_str(), GLOB_NOSORT | GLOB_ERR, nullptr, &matches);
  const int error_number = errno;
  std::vector<std::string> paths(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
  ::globfree(&matches);
  if (result == GLOB_ABORTED) {
    return failed_precondition("data: a folder of the pattern {} cannot be read: {}", source,
                               reason(error_number));
  }
  if (paths.empty())
    return not_found("data: no file matches {}; the worker's own file system was searched", source);
  std::sort(paths.begin(), paths.end());  // by bytes: the same on every machine, whatever its locale
  return paths;
}

// Opens for reading and says how large the file is.
struct Opened {
  FileDescriptor descriptor;
  int64_t bytes = 0;
};
StatusOr<Opened> open_regular(const std::string& path) {
  // A pipe must not block the open.
  FileDescriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!descriptor.is_open() && errno == ENOENT)
    return not_found("data: {} does not exist on this worker", path);
  if (!descriptor.is_open()) return failed_precondition("data: {} cannot be opened: {}", path, reason(errno));
  struct stat status {};
  if (::fstat(descriptor.get(), &status) != 0 || !S_ISREG(status.st_mode))
    return failed_precondition("data: {} is not a regular file", path);
  return Opened{std::move(descriptor), static_cast<int64_t>(status.st_size)};
}

}  // namespace

StatusOr<TextFiles> TextFiles::open(const std::vector<std::string>& sources) {
  TextFiles text;
  for (const std::string& source : sources) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<std::string> paths, expand(source));
    for (const std::string& path : paths) {
      const auto same = [&](const File& file) { return file.path == path; };
      if (std::any_of(text.files_.begin(), text.files_.end(), same)) continue;
      PENSTOCK_ASSIGN_OR_RETURN(const Opened opened, open_regular(path));
      text.files_.push_back({path, text.bytes_, opened.bytes});
      text.bytes_ += opened.bytes;
    }
  }
  return text;
}

std::vector<std::string> TextFiles::paths() const {
  std::vector<std::string> paths;
  for (const File& file : files_) paths.push_back(file.path);
  return paths;
}

std::vector<int64_t> TextFiles::file_bytes() const {
  std::vector<int64_t> bytes;
  for (const File& file : files_) bytes.push_back(file.bytes);
  return bytes;
}

size_t TextFiles::file_at(int64_t offset) const {
  PENSTOCK_CHECK(offset >= 0 && offset < bytes_, "offset {} of {}", offset, bytes_);
  const auto after = [](int64_t value, const File& file) { return value < file.begin; };
  const auto next = std::upper_bound(files_.begin(), files_.end(), offset, after);
  return static_cast<size_t>(next - files_.begin()) -
         1;  // the last that begins at or before: never an empty one
}

TextFiles::Place TextFiles::place(int64_t offset) const {
  const File& file = files_[file_at(offset)];
  return {file.path, offset - file.begin};
}

Status TextFiles::read(int64_t offset, std::span<uint8_t> target) {
  while (!target.empty()) {
    const size_t index = file_at(offset);
    const File& file = files_[index];
    const int64_t left = file.begin + file.bytes - offset;
    const size_t count = std::min(target.size(), static_cast<size_t>(left));
    PENSTOCK_RETURN_IF_ERROR(read_from(index, offset - file.begin, target.first(count)));
    target = target.subspan(count);
    offset += static_cast<int64_t>(count);
  }
  return ok_status();
}

// pread and not a mapping: a file that is cut while we train is an error with a name here, there a SIGBUS.
Status TextFiles::read_from(size_t index, int64_t offset, std::span<uint8_t> target) {
  PENSTOCK_ASSIGN_OR_RETURN(const int fd, descriptor_of(index));
  const File& file = files_[index];
  while (!target.empty()) {
    const ssize_t count = ::pread(fd, target.data(), target.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      return data_loss("data: {} cannot be read at offset {}: {}", file.path, offset, reason(errno));
    if (count == 0) {
      return data_loss("data: {} ends at offset {}, it had {} bytes when the job began; was it cut?",
                       file.path, offset, file.bytes);
    }
    target = target.subspan(static_cast<size_t>(count));
    offset += count;
  }
  return ok_status();
}

StatusOr<int> TextFiles::descriptor_of(size_t index) {
  for (const OpenFile& open : open_) {
    if (open.file == index) return open.descriptor.get();
  }
  const File& file = files_[index];
  PENSTOCK_ASSIGN_OR_RETURN(Opened opened, open_regular(file.path));
  if (opened.bytes != file.bytes) {
    return data_loss(
        "data: {} has {} bytes, it had {} when the job began; the order of samples depends on it", file.path,
        opened.bytes, file.bytes);
  }
  const int fd = opened.descriptor.get();
  OpenFile open{index, std::move(opened.descriptor)};
  if (open_.size() < kDescriptors) {
    open_.push_back(std::move(open));
  } else {
    open_[next_replaced_] = std::move(open);
    next_replaced_ = (next_replaced_ + 1) % kDescriptors;
  }
  return fd;
}

}  // namespace penstock::worker
