#include "worker/agent/executor_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
extern "C" {
#include <sys/pidfd.h>  // glibc 2.36 declares its functions as C++ ones
}

#include <array>
#include <cerrno>
#include <cstring>
#include <functional>

extern char** environ;  // NOLINT(readability-redundant-declaration): glibc declares it only with _GNU_SOURCE

namespace penstock::worker {
namespace {

constexpr int kChildSocket = 3;
constexpr size_t kReadBytes = 64u << 10;
// After the child's death; something that it left behind may write for ever.
constexpr int kMostLastReads = 1024;

Status system_error(const char* what) {
  return unavailable("{}: {}", what, std::strerror(errno));
}

struct Pipe {
  FileDescriptor read_end;
  FileDescriptor write_end;
};

StatusOr<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return system_error("pipe2");
  Pipe made{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
  if (fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) return system_error("fcntl(O_NONBLOCK)");
  return made;
}

// This process's environment with one OpenMP thread that sleeps while it waits.
std::vector<std::string> child_environment() {
  std::vector<std::string> variables = {"OMP_NUM_THREADS=1", "OMP_WAIT_POLICY=passive"};
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (!text.starts_with("OMP_NUM_THREADS=") && !text.starts_with("OMP_WAIT_POLICY="))
      variables.emplace_back(text);
  }
  return variables;
}

std::vector<char*> c_strings(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// What posix_spawn does between fork and exec.
class SpawnPlan {
 public:
  SpawnPlan() {
    posix_spawn_file_actions_init(&actions_);
    posix_spawnattr_init(&attributes_);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes_, &none);
    sigset_t all;
    sigfillset(&all);
    sigdelset(&all, SIGKILL);
    sigdelset(&all, SIGSTOP);
    posix_spawnattr_setsigdefault(&attributes_, &all);  // an ignored SIGPIPE would be inherited
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnPlan() {
    posix_spawnattr_destroy(&attributes_);
    posix_spawn_file_actions_destroy(&actions_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  // The order matters: a pipe's end may be descriptor 3 here, and must be copied before the socket takes that
  // place.
  void give(int stdout_fd, int stderr_fd, int socket_fd) {
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions_, stdout_fd, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions_, stderr_fd, STDERR_FILENO);
    posix_spawn_file_actions_adddup2(&actions_, socket_fd, kChildSocket);
    posix_spawn_file_actions_addclosefrom_np(&actions_, kChildSocket + 1);
  }

  // 0, or the error number.
  int run(const ExecutorCommand& command, pid_t* pid) {
    std::vector<std::string> arguments = command.arguments;
    arguments.insert(arguments.end(), {"--parent", std::to_string(getpid())});
    std::vector<std::string> variables = child_environment();
    return posix_spawn(pid, command.path.c_str(), &actions_, &attributes_, c_strings(arguments).data(),
                       c_strings(variables).data());
  }

 private:
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

}  // namespace

StatusOr<std::unique_ptr<ExecutorProcess>> ExecutorProcess::spawn(const ExecutorCommand& command) {
  std::array<int, 2> sockets{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) != 0)
    return system_error("socketpair");
  FileDescriptor ours(sockets[0]);
  FileDescriptor theirs(sockets[1]);
  PENSTOCK_ASSIGN_OR_RETURN(Pipe standard_output, make_pipe());
  PENSTOCK_ASSIGN_OR_RETURN(Pipe standard_error, make_pipe());

  auto child = std::unique_ptr<ExecutorProcess>(new ExecutorProcess());
  SpawnPlan plan;
  plan.give(standard_output.write_end.get(), standard_error.write_end.get(), theirs.get());
  if (const int failure = plan.run(command, &child->pid_); failure != 0) {
    child->pid_ = -1;
    return unavailable("{} cannot be started: {}", command.path, std::strerror(failure));
  }
  child->process_ = FileDescriptor(pidfd_open(child->pid_, 0));
  child->socket_ = std::move(ours);
  child->stdout_ = std::move(standard_output.read_end);
  child->stderr_ = std::move(standard_error.read_end);
  if (!child->process_.is_open()) return system_error("pidfd_open");  // the destructor ends the child
  return child;
}

ExecutorProcess::~ExecutorProcess() {
  if (pid_ <= 0 || reaped_) return;
  ::kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void ExecutorProcess::kill() {
  if (!reaped_) ::kill(pid_, SIGKILL);  // not reaped: the pid is still its own
}

Status ExecutorProcess::send(std::string_view frame) {
  if (!socket_.is_open()) return unavailable("executor {} closed its socket", pid_);
  PENSTOCK_RETURN_IF_ERROR(writer_.push(frame));
  return writer_.write_to(socket_.get());
}

void ExecutorProcess::add_poll(std::vector<pollfd>& entries) const {
  const auto add = [&entries](const FileDescriptor& fd, short events) {
    if (fd.is_open()) entries.push_back(pollfd{fd.get(), events, 0});
  };
  add(process_, POLLIN);
  add(socket_, static_cast<short>(POLLIN | (writer_.empty() ? 0 : POLLOUT)));
  add(stdout_, POLLIN);
  add(stderr_, POLLIN);
}

Status ExecutorProcess::handle() {
  read_lines(stdout_, stdout_lines_, Reading::Once);
  read_lines(stderr_, stderr_lines_, Reading::Once);
  // A write that fails means that it is going: its exit or its end of file says so next.
  if (socket_.is_open() && !writer_.empty()) (void)writer_.write_to(socket_.get());
  return read_socket(Reading::Once);
}

Status ExecutorProcess::read_socket(Reading reading) {
  std::array<char, kReadBytes> buffer;
  for (int reads = reading == Reading::Once ? 1 : kMostLastReads; reads > 0 && socket_.is_open(); --reads) {
    const ssize_t got = recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (got <= 0) {
      socket_.reset();
      break;
    }
    reader_.push(std::string_view(buffer.data(), static_cast<size_t>(got)));
    for (;;) {
      PENSTOCK_ASSIGN_OR_RETURN(std::optional<std::string> frame, reader_.next());
      if (!frame) break;
      frames_.push_back(*std::move(frame));
    }
  }
  return ok_status();
}

void ExecutorProcess::read_lines(FileDescriptor& pipe, LineCapture& into, Reading reading) {
  std::array<char, kReadBytes> buffer;
  for (int reads = reading == Reading::Once ? 1 : kMostLastReads; reads > 0 && pipe.is_open(); --reads) {
    const ssize_t got = read(pipe.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got <= 0) {
      pipe.reset();
      into.finish();
      return;
    }
    into.push(std::string_view(buffer.data(), static_cast<size_t>(got)));
  }
}

LineCapture::Batch ExecutorProcess::take_output() {
  LineCapture::Batch batch = stdout_lines_.take();
  LineCapture::Batch errors = stderr_lines_.take();
  batch.lines.insert(batch.lines.end(), std::make_move_iterator(errors.lines.begin()),
                     std::make_move_iterator(errors.lines.end()));
  batch.dropped += errors.dropped;
  return batch;
}

const std::string& ExecutorProcess::last_line() const {
  return stderr_lines_.last_line().empty() ? stdout_lines_.last_line() : stderr_lines_.last_line();
}

std::optional<ExecutorProcess::Exit> ExecutorProcess::try_exit() {
  siginfo_t info{};
  if (waitid(P_PIDFD, static_cast<id_t>(process_.get()), &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0)
    return std::nullopt;
  reaped_ = true;
  process_.reset();
  // What it still said; bytes that are no frame do not matter any more.
  (void)read_socket(Reading::ToTheEnd);
  read_lines(stdout_, stdout_lines_, Reading::ToTheEnd);
  read_lines(stderr_, stderr_lines_, Reading::ToTheEnd);
  stdout_lines_.finish();
  stderr_lines_.finish();
  socket_.reset();
  if (info.si_code == CLD_EXITED) return Exit{info.si_status, 0};
  return Exit{-1, info.si_status};
}

}  // namespace penstock::worker
