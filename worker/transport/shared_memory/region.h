// Memory that processes of one host share: an anonymous file, mapped.
//
// It has no name in any file system, so nothing is left behind by processes that are killed, and a container's
// /dev/shm does not bound it. Its size is sealed: nobody can cut it under a reader, who would end by a signal.
// Thread: any, once made.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "base/file_descriptor.h"
#include "base/status.h"

namespace penstock::worker {

class Region {
 public:
  enum class Pages : uint8_t {
    Later,
    Now
  };  // Now: all memory is taken at once, so that its lack is an error here

  // Zeros. ResourceExhausted with the bytes asked for.
  static StatusOr<std::shared_ptr<Region>> create(int64_t bytes, const std::string& purpose, Pages pages);

  // Maps what the process `pid` has open as `fd`. Unavailable: it has ended. FailedPrecondition: it may not be opened,
  // or is no region of `bytes`.
  static StatusOr<std::shared_ptr<Region>> open(pid_t pid, int fd, int64_t bytes);

  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region();

  char* data() const { return static_cast<char*>(data_); }
  int64_t bytes() const { return bytes_; }
  int fd() const { return file_.get(); }  // of create()
  bool contains(const void* address, int64_t bytes) const;

 private:
  Region(FileDescriptor file, void* data, int64_t bytes)
      : file_(std::move(file)), data_(data), bytes_(bytes) {}

  FileDescriptor file_;
  void* data_;
  int64_t bytes_;
};

}  // namespace penstock::worker
