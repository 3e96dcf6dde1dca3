#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "proto/codec/codec.h"
#include "worker/agent/internal/fake_executor.h"

namespace penstock::worker {
namespace {

class Player {
 public:
  explicit Player(int fd) : fd_(fd) {}

  int play() {
    assigned_ = std::get<ExecutorAssignment>(receive()).assignment;
    std::istringstream script(assigned_.spec_yaml);
    for (std::string line; std::getline(script, line);) {
      std::istringstream words(line);
      std::string command;
      words >> command;
      std::string rest;
      std::getline(words >> std::ws, rest);
      obey(command, rest);
    }
    return 0;
  }

 private:
  void obey(const std::string& command, const std::string& rest) {
    const AttemptKey& attempt = assigned_.attempt;
    const RankIndex rank = assigned_.rank;
    if (command == "ready") say(RankReady{attempt, rank, getpid(), "fake"});
    if (command == "step") step(std::stoll(rest));
    if (command == "finish") say(RankFinished{attempt, rank, {}});
    if (command == "fail") say(RankFailed{attempt, rank, 0, rest, 0, 0});
    if (command == "print") print(rest);
    if (command == "flood") flood(std::stoi(rest));
    if (command == "exit") _exit(std::stoi(rest));
    if (command == "abort") std::abort();
    if (command == "wait") wait_for_end();
    if (command == "hang-up") close(fd_);
    if (command == "linger") linger();
    if (command == "inspect") inspect();
    if (command == "publish") publish(rest);
    if (command == "look-up") look_up(rest);
    if (command == "garbage") write_all("\xff\xff\xff\xff garbage");
  }

  void print(const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); }
  void flood(int lines) {
    for (int i = 0; i < lines; ++i) std::fprintf(stdout, "line %d of the flood\n", i);
    std::fflush(stdout);
  }
  void wait_for_end() {
    char byte = 0;
    while (read(fd_, &byte, 1) > 0) {
    }
    _exit(3);
  }
  [[noreturn]] void linger() {
    for (;;) pause();
  }
  void inspect() {
    std::string descriptors;
    for (int fd = 0; fd < 1024; ++fd) {
      if (fcntl(fd, F_GETFD) >= 0) descriptors += " " + std::to_string(fd);
    }
    print("descriptors" + descriptors);
    print(fmt::format("openmp {} {}", getenv("OMP_NUM_THREADS"), getenv("OMP_WAIT_POLICY")));
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("SigBlk") || line.starts_with("SigIgn")) print(line);
    }
  }
  void step(int64_t number) {
    StepReport report;
    report.attempt = assigned_.attempt;
    report.rank = assigned_.rank;
    report.step = number;
    report.loss = 2.5;
    report.wall_seconds = 0.25;
    report.stages.push_back(StageTimes{StageIndex(0), 0.01, 0.02, 0, 0, 4, 3});
    report.memory.push_back(MemoryKind{"parameters", 4096});
    say(report);
  }
  void publish(const std::string& rest) {
    std::istringstream words(rest);
    std::string item, value;
    words >> item >> value;
    say(codec::BrokerPublish{7, CommunicatorKey{assigned_.attempt, "pipeline", assigned_.rank, item}, value});
    answer(item);
  }
  void look_up(const std::string& rest) {
    std::istringstream words(rest);
    int rank = 0;
    std::string item;
    int64_t timeout_ms = 0;
    words >> rank >> item >> timeout_ms;
    say(codec::BrokerLookUp{8, CommunicatorKey{assigned_.attempt, "pipeline", RankIndex(rank), item},
                            timeout_ms});
    answer(item);
  }
  void answer(const std::string& item) {
    const auto reply = std::get<codec::BrokerReply>(receive());
    print(fmt::format("{}: {} {}", item, absl::StatusCodeToString(reply.status.code()), reply.value));
  }

  void say(const codec::ExecutorFrame& frame) {
    const std::string bytes = codec::encode(frame);
    std::string length;
    for (size_t i = 0; i < 4; ++i) length.push_back(static_cast<char>(bytes.size() >> (8 * i)));
    write_all(length + bytes);
  }
  void write_all(const std::string& bytes) {
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t written = write(fd_, bytes.data() + at, bytes.size() - at);
      if (written <= 0) _exit(4);
      at += static_cast<size_t>(written);
    }
  }
  std::string read_exactly(size_t count) {
    std::string bytes(count, '\0');
    for (size_t at = 0; at < count;) {
      const ssize_t got = read(fd_, bytes.data() + at, count - at);
      if (got <= 0) _exit(5);
      at += static_cast<size_t>(got);
    }
    return bytes;
  }
  codec::DaemonFrame receive() {
    const std::string header = read_exactly(4);
    size_t length = 0;
    for (size_t i = 0; i < 4; ++i) length |= static_cast<size_t>(static_cast<uint8_t>(header[i])) << (8 * i);
    auto frame = codec::decode_daemon_frame(read_exactly(length));
    if (!frame.ok()) _exit(6);
    return *std::move(frame);
  }

  int fd_;
  Assignment assigned_;
};

}  // namespace

int play_executor(int fd) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  return Player(fd).play();
}

}  // namespace penstock::worker

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--executor") == 0) return penstock::worker::play_executor(3);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
