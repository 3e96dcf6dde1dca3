// One executor child: its process, its frame socket and what it prints.
//
// The child gets the socket as descriptor 3, its output in pipes, nothing else that is open here, no blocked
// or ignored signal, and an environment in which no OpenMP team spins. Thread: the agent's, for everything.
// The child asks the kernel to be killed when the *thread* that spawned it ends: that thread must live as
// long as the daemon.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "base/status.h"
#include "proto/codec/limits.h"
#include "worker/agent/frame_stream.h"
#include "worker/agent/line_capture.h"

namespace penstock::worker {

struct ExecutorCommand {
  std::string path = "/proc/self/exe";
  // "--parent PID" of this process follows them.
  std::vector<std::string> arguments = {"penstock-worker", "--executor"};
};

class ExecutorProcess {
 public:
  struct Exit {
    int code = 0;  // -1 when a signal ended it
    int signal = 0;
  };

  // Unavailable when the system refuses a process, a descriptor or memory.
  static StatusOr<std::unique_ptr<ExecutorProcess>> spawn(const ExecutorCommand& command);
  // Kills and reaps it when it still runs.
  ~ExecutorProcess();
  ExecutorProcess(const ExecutorProcess&) = delete;
  ExecutorProcess& operator=(const ExecutorProcess&) = delete;

  pid_t pid() const { return pid_; }
  void kill();

  // Queues a frame for the child. ResourceExhausted: it does not read; Unavailable: it is gone.
  Status send(std::string_view frame);

  // What to poll for; handle() with the same entries carries out what poll found.
  void add_poll(std::vector<pollfd>& entries) const;
  // Reads what is there now, without blocking. InvalidArgument: the child's bytes are no frames.
  Status handle();
  // Frames that have arrived, in order.
  std::vector<std::string> take_frames() { return std::exchange(frames_, {}); }
  bool has_output() const { return !stdout_lines_.empty() || !stderr_lines_.empty(); }
  LineCapture::Batch take_output();
  // The last line of its stderr, or of its stdout when it said nothing there.
  const std::string& last_line() const;
  // Whether it closed its socket; it should be gone soon.
  bool hung_up() const { return !socket_.is_open(); }
  // Set once the process is gone; everything that it wrote has been read then.
  std::optional<Exit> try_exit();

 private:
  ExecutorProcess() : reader_(kLargestFrame), writer_(kMostPending) {}
  // An assignment of a large job is tens of megabytes; what comes back is small.
  static constexpr size_t kLargestFrame = 16u << 20;
  static constexpr size_t kMostPending = codec::kLargestFrameBytes + (1u << 20);

  enum class Reading { Once, ToTheEnd };
  Status read_socket(Reading reading);
  void read_lines(FileDescriptor& pipe, LineCapture& into, Reading reading);

  pid_t pid_ = -1;
  bool reaped_ = false;
  FileDescriptor process_;  // pidfd
  FileDescriptor socket_;
  FileDescriptor stdout_;
  FileDescriptor stderr_;
  FrameReader reader_;
  FrameWriter writer_;
  std::vector<std::string> frames_;
  LineCapture stdout_lines_;
  LineCapture stderr_lines_;
};

}  // namespace penstock::worker
