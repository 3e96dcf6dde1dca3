#include "worker/transport/shared_memory/region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "kernels/device/host_memory.h"

namespace penstock::worker {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Status check_region(int file, int64_t bytes) {
  struct stat facts {};
  const int seals = fcntl(file, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || fstat(file, &facts) != 0 || facts.st_size != bytes) {
    return failed_precondition("expected a sealed region of {} bytes, found a file of {} bytes and seals {}",
                               bytes, facts.st_size, seals);
  }
  return ok_status();
}

}  // namespace

StatusOr<std::shared_ptr<Region>> Region::create(int64_t bytes, const std::string& purpose, Pages pages) {
  // The kernel promises a file without end, and takes memory for it until other processes are killed.
  PENSTOCK_RETURN_IF_ERROR(kernels::expect_memory(bytes, purpose));
  const auto failed = [&](const char* what) {
    return resource_exhausted("shared memory for {}: {} of {} bytes: {}", purpose, what, bytes,
                              strerror(errno));
  };
  FileDescriptor file(memfd_create("penstock-window", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.is_open()) return failed("memfd_create");
  if (ftruncate(file.get(), bytes) != 0) return failed("ftruncate");
  if (fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) return failed("sealing");
  if (pages == Pages::Now && bytes > 0) {
    if (const int error = posix_fallocate(file.get(), 0, bytes); error != 0) {
      errno = error;
      return failed("taking");
    }
  }
  const int populate = pages == Pages::Now ? MAP_POPULATE : 0;
  void* data =
      mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED | populate, file.get(), 0);
  if (data == MAP_FAILED) return failed("mmap");
  return std::shared_ptr<Region>(new Region(std::move(file), data, bytes));
}

StatusOr<std::shared_ptr<Region>> Region::open(pid_t pid, int fd, int64_t bytes) {
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, fd);
  const FileDescriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file.is_open()) {
    if (errno == ENOENT) return unavailable("{}: the process has ended, or /proc hides it", path);
    return failed_precondition("{}: {}; both must run as the same user", path, strerror(errno));
  }
  PENSTOCK_RETURN_IF_ERROR(with_context(check_region(file.get(), bytes), path));
  void* data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) return resource_exhausted("{}: mmap of {} bytes: {}", path, bytes, strerror(errno));
  return std::shared_ptr<Region>(new Region(FileDescriptor(), data, bytes));
}

Region::~Region() {
  munmap(data_, static_cast<size_t>(bytes_));
}

bool Region::contains(const void* address, int64_t bytes) const {
  const auto begin = reinterpret_cast<uintptr_t>(data_);
  const auto at = reinterpret_cast<uintptr_t>(address);
  return at >= begin && bytes <= bytes_ && at - begin <= static_cast<uintptr_t>(bytes_ - bytes);
}

}  // namespace penstock::worker
