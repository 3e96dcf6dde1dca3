#include "client/local_service/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/file_descriptor.h"

namespace penstock::client {
namespace {

// What the child needs, made before the fork: after it, only async-signal-safe calls are allowed.
struct Launch {
  const char* binary = nullptr;
  char* const* arguments = nullptr;
  int log = -1;
  int null = -1;
  int failure = -1;  // the errno of a failed exec goes here; closed by a successful one
  pid_t parent = -1;
};

[[noreturn]] void become(const Launch& launch) {
  const auto give_up = [&] {
    const int failure = errno;
    [[maybe_unused]] const ssize_t written = write(launch.failure, &failure, sizeof(failure));
    _exit(127);
  };
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != launch.parent) _exit(127);  // it died before the line above
  setpgid(0, 0);
  for (int signal = 1; signal < NSIG; ++signal) {
    if (signal != SIGKILL && signal != SIGSTOP) ::signal(signal, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (dup2(launch.null, 0) < 0 || dup2(launch.log, 1) < 0 || dup2(launch.log, 2) < 0) give_up();
  execv(launch.binary, launch.arguments);
  give_up();
  _exit(127);
}

std::string error_text(int number) {
  return std::strerror(number);  // NOLINT: called from one thread
}

}  // namespace

Process::Process(std::string name, std::string log, pid_t pid)
    : name_(std::move(name)), log_(std::move(log)), pid_(pid) {}

Process::Process(Process&& other) noexcept
    : name_(std::move(other.name_)),
      log_(std::move(other.log_)),
      pid_(std::exchange(other.pid_, -1)),
      wait_status_(other.wait_status_) {}

Process::~Process() {
  if (pid_ < 0 || has_ended()) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

StatusOr<Process> Process::start(const ProcessSpec& spec) {
  std::rename(spec.log.c_str(), (spec.log + ".1").c_str());
  const FileDescriptor log(open(spec.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (log.get() < 0)
    return unavailable("{}: cannot open its log {}: {}", spec.name, spec.log, error_text(errno));
  const FileDescriptor null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  std::array<int, 2> ends{-1, -1};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return unavailable("{}: no pipe: {}", spec.name, error_text(errno));
  const FileDescriptor failure_read(ends[0]);
  FileDescriptor failure_write(ends[1]);

  std::vector<std::string> words = {spec.binary};
  words.insert(words.end(), spec.arguments.begin(), spec.arguments.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  const Launch launch{spec.binary.c_str(), arguments.data(),    log.get(),
                      null.get(),          failure_write.get(), getpid()};
  const pid_t pid = fork();
  if (pid < 0) return unavailable("{}: cannot fork: {}", spec.name, error_text(errno));
  if (pid == 0) become(launch);

  failure_write.reset();
  Process process(spec.name, spec.log, pid);
  int failure = 0;
  ssize_t got = 0;
  do {
    got = read(failure_read.get(), &failure, sizeof(failure));
  } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof(failure))) {
    return unavailable("{}: cannot run {}: {}", spec.name, spec.binary, error_text(failure));
  }
  return process;
}

bool Process::has_ended() {
  if (wait_status_) return true;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) == pid_) wait_status_ = status;
  return wait_status_.has_value();
}

std::string Process::ending() const {
  if (!wait_status_) return "running";
  if (WIFSIGNALED(*wait_status_)) {
    const int signal = WTERMSIG(*wait_status_);
    return fmt::format("signal {} ({})", signal, strsignal(signal));  // NOLINT: called from one thread
  }
  return fmt::format("exit code {}", WEXITSTATUS(*wait_status_));
}

void Process::send(int signal) {
  if (!has_ended()) kill(pid_, signal);
}

std::string Process::last_log_lines(size_t lines) const {
  constexpr std::streamoff kTail = 16 << 10;
  std::ifstream file(log_, std::ios::binary | std::ios::ate);
  if (!file) return "";
  const std::streamoff size = file.tellg();
  file.seekg(std::max<std::streamoff>(size - kTail, 0));
  std::string text(std::istreambuf_iterator<char>(file), {});
  size_t start = text.size();
  for (size_t i = 0; i <= lines && start != std::string::npos && start > 0; ++i)
    start = text.rfind('\n', start - 1);
  return start == std::string::npos || start == 0 ? text : text.substr(start + 1);
}

}  // namespace penstock::client
