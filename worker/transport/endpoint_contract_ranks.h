// What the contract suite of Endpoint runs on: ranks as threads of the test, or as forked processes, each with an open
// endpoint. Included by endpoint_contract.h only.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "worker/transport/in_process.h"
#include "worker/transport/shared_rendezvous.h"

namespace penstock::worker {

struct TransportUnderTest {
  std::string name;
  bool across_processes = false;
  // Called once a group; the function that it returns makes the endpoint of one rank.
  std::function<std::function<std::unique_ptr<Endpoint>()>()> make_group;
};

struct ContractCase {
  TransportUnderTest transport;
  int ranks = 2;
  bool forked = false;
};

inline auto cases_of(const TransportUnderTest& transport) {
  std::vector<ContractCase> cases;
  for (int ranks = 2; ranks <= 4; ++ranks) {
    cases.push_back({transport, ranks, false});
    if (transport.across_processes) cases.push_back({transport, ranks, true});
  }
  return ::testing::ValuesIn(cases);
}

inline auto loss_cases_of(const TransportUnderTest& transport) {
  PENSTOCK_CHECK(transport.across_processes, "a thread cannot be killed: {}", transport.name);
  std::vector<ContractCase> cases;
  for (int ranks = 2; ranks <= 4; ++ranks) cases.push_back({transport, ranks, true});
  return ::testing::ValuesIn(cases);
}

inline std::string name_of(const ContractCase& one) {
  return one.transport.name + (one.forked ? "_processes_" : "_threads_") + std::to_string(one.ranks);
}
inline void PrintTo(const ContractCase& one, std::ostream* out) {
  *out << name_of(one);
}
inline std::string case_name(const ::testing::TestParamInfo<ContractCase>& info) {
  return name_of(info.param);
}

inline constexpr int64_t kReceiveMemory = 8 << 20;

// What a rank of a test sees.
struct TestRank {
  int rank = 0;
  int ranks = 0;
  Endpoint* endpoint = nullptr;
  Rendezvous* rendezvous = nullptr;
  char* receive_memory = nullptr;  // kReceiveMemory bytes, where the transport has such

  RankIndex index() const { return RankIndex(rank); }
  RankIndex next() const { return RankIndex((rank + 1) % ranks); }
  RankIndex previous() const { return RankIndex((rank + ranks - 1) % ranks); }

  // Ends with every rank having reached it: a word published by each and looked up by all.
  void meet(const std::string& word, const std::vector<int>& with) const {
    EXPECT_TRUE(rendezvous->publish(index(), word, std::to_string(getpid())).ok());
    for (const int other : with)
      EXPECT_TRUE(rendezvous->look_up(RankIndex(other), word, 30s).ok()) << word << other;
  }
  // Of those who are left: one that leaves earlier is lost to the others too, and maybe the first they hear of.
  void meet_without(int lost, const std::string& word) const {
    std::vector<int> others;
    for (int i = 0; i < ranks; ++i) {
      if (i != lost) others.push_back(i);
    }
    meet(word, others);
  }
  void meet(const std::string& word) const {
    std::vector<int> all(ranks);
    for (int i = 0; i < ranks; ++i) all[i] = i;
    meet(word, all);
  }
  pid_t pid_of(int other) const { return std::stoi(*rendezvous->look_up(RankIndex(other), "pid", 30s)); }
};

class EndpointContract : public ::testing::TestWithParam<ContractCase> {
 protected:
  using Body = std::function<void(const TestRank&)>;

  // Runs `body` as every rank, each with an open endpoint, and ends when all have ended. `killed`: ranks
  // whose processes the test kills.
  void run_ranks(const Body& body, const std::vector<int>& killed = {}) {
    const auto make_endpoint = GetParam().transport.make_group();
    const auto one = [&](int rank, Rendezvous& rendezvous) {
      const std::unique_ptr<Endpoint> endpoint = make_endpoint();
      const auto memory = endpoint->receive_memory(kReceiveMemory);
      ASSERT_TRUE(memory.ok()) << memory.status();
      const Group group{
          .name = "pipeline", .rank = RankIndex(rank), .ranks = ranks(), .bind_address = "127.0.0.1"};
      const Status opened = endpoint->open(group, rendezvous, 30s);
      ASSERT_TRUE(opened.ok()) << opened;
      body(TestRank{rank, ranks(), endpoint.get(), &rendezvous, static_cast<char*>(memory->get())});
    };
    GetParam().forked ? run_processes(one, killed) : run_threads(one);
  }

  int ranks() const { return GetParam().ranks; }

 private:
  using One = std::function<void(int, Rendezvous&)>;

  void run_threads(const One& one) {
    InProcessRendezvous rendezvous;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks(); ++rank) threads.emplace_back([&, rank] { one(rank, rendezvous); });
    for (std::thread& thread : threads) thread.join();
  }

  void run_processes(const One& one, const std::vector<int>& killed) {
    SharedRendezvous* rendezvous = SharedRendezvous::create();
    std::fflush(nullptr);
    std::vector<pid_t> children;
    for (int rank = 0; rank < ranks(); ++rank) {
      const pid_t child = fork();
      if (child == 0) {
        alarm(60);  // a rank that hangs must not outlive its test
        one(rank, *rendezvous);
        std::fflush(nullptr);
        _exit(HasFailure() ? 1 : 0);
      }
      children.push_back(child);
    }
    for (int rank = 0; rank < ranks(); ++rank) {
      int status = 0;
      waitpid(children[rank], &status, 0);
      if (std::count(killed.begin(), killed.end(), rank) > 0) {
        EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
            << "rank " << rank << " status " << status;
      } else {
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank " << rank << " status " << status;
      }
    }
    SharedRendezvous::destroy(rendezvous);
  }
};

// Long enough that its receiver sees the middle of it, also on a crowded machine: 64 MiB were not.
inline constexpr int64_t kLongMessage = 256 << 20;

class EndpointLossContract : public EndpointContract {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EndpointLossContract);

inline Duration process_cpu_time() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

inline std::vector<int32_t> pattern(int source, int target, int number, int64_t words) {
  std::vector<int32_t> values(words);
  for (int64_t i = 0; i < words; ++i)
    values[i] = static_cast<int32_t>(((source * 7 + target) * 1009 + number) * 31 + i);
  return values;
}

#define CONTRACT_EXPECT_OK(expression)                       \
  do {                                                       \
    const ::penstock::Status contract_status = (expression); \
    EXPECT_TRUE(contract_status.ok()) << contract_status;    \
  } while (false)

inline void expect_aborted(const Status& status, const std::string& part) {
  EXPECT_EQ(status.code(), StatusCode::kAborted) << status;
  EXPECT_NE(message(status).find(part), std::string::npos) << status << "\nexpected to contain: " << part;
}

}  // namespace penstock::worker
