#include "base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include "base/atomic_file.h"
#include "base/utf8.h"

namespace penstock {
namespace {

constexpr size_t kLongestHolder = 200;  // bytes

std::string holder_of(const FileDescriptor& fd) {
  std::array<char, kLongestHolder> text{};
  const ssize_t bytes = pread(fd.get(), text.data(), text.size(), 0);
  const std::string_view found(text.data(), bytes > 0 ? static_cast<size_t>(bytes) : 0);
  std::string line = utf8_cleaned(found.substr(0, found.find('\n')));
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < ' ' || c == 127; }, '?');
  return line.empty() ? "somebody" : line;
}

}  // namespace

StatusOr<FileLock> FileLock::take(const std::string& path, const std::string& holder) {
  FileDescriptor fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!fd.is_open()) return refused_by_system(path, "opened", errno);
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return already_exists("{}: held by {}", path, holder_of(fd));
    if (errno != ENOLCK && errno != ENOSYS && errno != EOPNOTSUPP)
      return refused_by_system(path, "locked", errno);
  }
  const std::string line = holder.substr(0, kLongestHolder - 1) + "\n";
  if (ftruncate(fd.get(), 0) != 0 || pwrite(fd.get(), line.data(), line.size(), 0) < 0)
    return refused_by_system(path, "written", errno);
  return FileLock(std::move(fd));
}

}  // namespace penstock
