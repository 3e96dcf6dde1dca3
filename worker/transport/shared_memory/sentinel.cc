#include "worker/transport/shared_memory/sentinel.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace penstock::worker {

Status Sentinel::watch(int rank, pid_t pid) {
  FileDescriptor process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!process.is_open()) return unavailable("rank {}: process {}: {}", rank, pid, strerror(errno));
  watched_.push_back({rank, std::move(process)});
  return ok_status();
}

Status Sentinel::start(std::function<void(int)> ended) {
  stop_ = FileDescriptor(eventfd(0, EFD_CLOEXEC));
  if (!stop_.is_open()) return resource_exhausted("eventfd: {}", strerror(errno));
  thread_ = std::thread([this, ended = std::move(ended)] { loop(ended); });
  return ok_status();
}

void Sentinel::loop(const std::function<void(int)>& ended) {
  pthread_setname_np(pthread_self(), "p2p-sentinel");
  std::vector<pollfd> waits;
  for (const Watched& one : watched_) waits.push_back({one.process.get(), POLLIN, 0});
  waits.push_back({stop_.get(), POLLIN, 0});
  while (true) {
    if (poll(waits.data(), waits.size(), -1) < 0) continue;  // a signal
    if (waits.back().revents != 0) return;
    for (size_t i = 0; i < watched_.size(); ++i) {
      if (waits[i].revents == 0) continue;
      waits[i].fd = -1;  // poll passes over it from now on
      ended(watched_[i].rank);
    }
  }
}

void Sentinel::stop() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  (void)!write(stop_.get(), &one, sizeof one);  // cannot fail: the counter is zero
  thread_.join();
}

}  // namespace penstock::worker
