#include "client/local_service/interrupt.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/check.h"

namespace penstock::client {
namespace {

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, signal);
  return set;
}

}  // namespace

InterruptWatcher::InterruptWatcher() {
  const sigset_t set = watched_signals();
  PENSTOCK_CHECK_EQ(pthread_sigmask(SIG_BLOCK, &set, nullptr), 0);
  signals_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  stop_ = eventfd(0, EFD_CLOEXEC);
  PENSTOCK_CHECK(signals_ >= 0 && stop_ >= 0, "signalfd or eventfd failed with errno {}", errno);
  thread_ = std::thread([this] { watch(); });
}

InterruptWatcher::~InterruptWatcher() {
  const uint64_t one = 1;
  PENSTOCK_CHECK_EQ(write(stop_, &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
  thread_.join();
  close(signals_);
  close(stop_);
  const sigset_t set = watched_signals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void InterruptWatcher::watch() {
  while (true) {
    pollfd fds[2] = {{signals_, POLLIN, 0}, {stop_, POLLIN, 0}};
    if (poll(fds, 2, -1) < 0) continue;  // EINTR
    if (fds[1].revents != 0) return;
    signalfd_siginfo info;
    if (read(signals_, &info, sizeof(info)) != static_cast<ssize_t>(sizeof(info))) continue;
    const std::lock_guard lock(mutex_);
    if (++count_ == 1 && action_) action_();
    came_.notify_all();
  }
}

int InterruptWatcher::count() const {
  const std::lock_guard lock(mutex_);
  return count_;
}

bool InterruptWatcher::wait_for(Duration at_most) const {
  std::unique_lock lock(mutex_);
  return came_.wait_for(lock, at_most, [&] { return count_ > 0; });
}

void InterruptWatcher::when_interrupted(std::function<void()> action) {
  const std::lock_guard lock(mutex_);
  action_ = std::move(action);
  if (count_ > 0 && action_) action_();
}

}  // namespace penstock::client
