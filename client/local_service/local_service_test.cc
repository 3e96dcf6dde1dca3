#include "client/local_service/local_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace penstock::client {
namespace {

using testing::HasSubstr;

// Shell scripts stand in for the daemons: what is under test is how they are started, watched and ended.
class LocalServiceTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "penstock_local_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    // It stays until it is told to end; $8 is the address file.
    script(
        "penstock-coordinator",
        "trap 'echo coordinator >> " + folder_ +
            "/ended; exit 0' TERM\n"
            "echo \"arguments: $*\"\n"
            "echo '{\"address\": \"127.0.0.1:7\", \"metrics\": \"127.0.0.1:8\", \"pid\": 1}' > \"$8.part\"\n"
            "mv \"$8.part\" \"$8\"\n"
            "while true; do sleep 0.01; done\n");
    script("penstock-worker", "trap 'echo worker >> " + folder_ +
                                  "/ended; exit 0' TERM\n"
                                  "echo \"arguments: $*\"\n"
                                  "while true; do sleep 0.01; done\n");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void script(const std::string& name, const std::string& body) const {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << "#!/bin/sh\n" << body;
    chmod(path.c_str(), 0755);
  }
  std::string contents(const std::string& name) const {
    std::ifstream file(folder_ + "/" + name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // A line appears in a file some time after its writer was started.
  void wait_for(const std::string& name, const std::string& text) const {
    const SystemClock clock;
    const TimePoint last = clock.now() + 10s;
    while (contents(name).find(text) == std::string::npos && clock.now() < last)
      std::this_thread::sleep_for(5ms);
    ASSERT_THAT(contents(name), HasSubstr(text)) << name;
  }
  LocalServiceOptions options(int workers = 2) const {
    return {.binaries = folder_, .state = folder_ + "/state", .workers = workers, .drain_max = 10s};
  }

  std::string folder_;
  InterruptWatcher interrupts_;
};

TEST_F(LocalServiceTest, workers_start_once_the_coordinator_serves_and_end_before_it) {
  StatusOr<LocalService> service = LocalService::start(options(), interrupts_);
  ASSERT_TRUE(service.ok()) << service.status();
  EXPECT_EQ(service->address(), "127.0.0.1:7");
  EXPECT_EQ(service->metrics(), "127.0.0.1:8");
  EXPECT_EQ(service->worker_names(), (std::vector<std::string>{"worker-0", "worker-1"}));
  EXPECT_TRUE(service->newly_ended().empty());
  wait_for("state/worker-1.log", "arguments: --coordinator 127.0.0.1:7 --name worker-1 --device cpu --devices 1\n");
  wait_for("state/worker-0.log", "arguments: ");
  EXPECT_TRUE(service->stop(interrupts_).ok());
  EXPECT_EQ(contents("ended"), "worker\nworker\ncoordinator\n");
}

TEST_F(LocalServiceTest, a_child_that_does_not_drain_is_killed_and_named) {
  script("penstock-worker", "trap '' TERM\necho ready\nwhile true; do sleep 0.01; done\n");
  LocalServiceOptions quick = options(1);
  quick.drain_max = 100ms;
  StatusOr<LocalService> service = LocalService::start(quick, interrupts_);
  ASSERT_TRUE(service.ok()) << service.status();
  wait_for("state/worker-0.log", "ready");
  const Status stopped = service->stop(interrupts_);
  EXPECT_EQ(stopped.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(message(stopped), HasSubstr("worker-0 had to be killed"));
}

TEST_F(LocalServiceTest, a_coordinator_that_does_not_come_up_is_quoted) {
  script("penstock-coordinator", "echo 'port 7070 is taken' >&2\nexit 3\n");
  const StatusOr<LocalService> service = LocalService::start(options(), interrupts_);
  EXPECT_EQ(service.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(message(service.status()),
            "the coordinator ended with exit code 3 before it served\n  | port 7070 is taken");
}

TEST_F(LocalServiceTest, a_missing_binary_is_named) {
  std::filesystem::remove(folder_ + "/penstock-worker");
  const StatusOr<LocalService> service = LocalService::start(options(), interrupts_);
  EXPECT_THAT(message(service.status()),
              HasSubstr("worker-0: cannot run " + folder_ + "/penstock-worker: No such file"));
  EXPECT_EQ(contents("ended"), "coordinator\n") << "what was started must not stay behind";
}

TEST_F(LocalServiceTest, a_state_directory_serves_one_at_a_time) {
  StatusOr<LocalService> first = LocalService::start(options(1), interrupts_);
  ASSERT_TRUE(first.ok()) << first.status();
  const StatusOr<LocalService> second = LocalService::start(options(1), interrupts_);
  EXPECT_EQ(second.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(message(second.status()), HasSubstr("in use by another `penstock up`"));
}

TEST_F(LocalServiceTest, a_worker_that_dies_is_reported_once_with_its_log) {
  script("penstock-worker", "echo 'out of luck'\nkill -9 $$\n");
  StatusOr<LocalService> service = LocalService::start(options(1), interrupts_);
  ASSERT_TRUE(service.ok()) << service.status();
  std::vector<std::string> ended;
  const SystemClock clock;
  const TimePoint last = clock.now() + 10s;
  while (ended.empty() && clock.now() < last) ended = service->newly_ended();
  ASSERT_EQ(ended.size(), 1);
  EXPECT_THAT(ended[0], HasSubstr("worker-0 (pid "));
  EXPECT_THAT(ended[0], HasSubstr("has ended with signal 9 (Killed)"));
  EXPECT_THAT(ended[0], HasSubstr("| out of luck"));
  EXPECT_TRUE(service->newly_ended().empty());
}

TEST_F(LocalServiceTest, an_interrupt_ends_the_start) {
  script("penstock-coordinator", "while true; do sleep 0.01; done\n");
  kill(getpid(), SIGTERM);
  ASSERT_TRUE(interrupts_.wait_for(10s));
  const StatusOr<LocalService> service = LocalService::start(options(), interrupts_);
  EXPECT_EQ(service.status().code(), StatusCode::kCancelled);
}

TEST_F(LocalServiceTest, an_interrupt_calls_its_action_once_even_when_it_came_before) {
  kill(getpid(), SIGINT);
  ASSERT_TRUE(interrupts_.wait_for(10s));
  int calls = 0;
  interrupts_.when_interrupted([&] { ++calls; });
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(interrupts_.count(), 1);
}

TEST_F(LocalServiceTest, children_die_with_their_owner) {
  // Killed, the owner can tell nobody: the kernel must.
  const std::string log = folder_ + "/orphan.log";
  script("orphan", "echo $$\nexec sleep 1000\n");
  const pid_t owner = fork();
  if (owner == 0) {
    StatusOr<Process> child = Process::start({.name = "orphan", .binary = folder_ + "/orphan", .log = log});
    if (!child.ok()) _exit(1);
    pause();
    _exit(0);
  }
  wait_for("orphan.log", "\n");
  const pid_t orphan = static_cast<pid_t>(std::stol(contents("orphan.log")));
  kill(owner, SIGKILL);
  waitpid(owner, nullptr, 0);
  const SystemClock clock;
  const TimePoint last = clock.now() + 10s;
  const auto runs = [&] {
    std::ifstream stat("/proc/" + std::to_string(orphan) + "/stat");
    const std::string text((std::istreambuf_iterator<char>(stat)), {});
    return !text.empty() && text.find(") Z ") == std::string::npos;
  };
  while (runs() && clock.now() < last) std::this_thread::sleep_for(5ms);
  EXPECT_FALSE(runs());
}

TEST(ReadAddressFile, a_file_without_an_address_is_refused) {
  const std::string path = testing::TempDir() + fmt::format("penstock_address_{}.json", getpid());
  for (const char* text : {"", "{", "[]", "{\"address\": 3}"}) {
    std::ofstream(path) << text;
    EXPECT_EQ(read_address_file(path).status().code(), StatusCode::kInvalidArgument) << text;
  }
  std::filesystem::remove(path);
  EXPECT_EQ(read_address_file(path).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace penstock::client
