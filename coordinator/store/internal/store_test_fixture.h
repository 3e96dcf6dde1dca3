// A store in a folder of its own, for the tests of this room.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "coordinator/store/sqlite_store.h"

namespace penstock::coordinator {

// Waits for tickets.
class Durable {
 public:
  void reached(Ticket ticket) {
    const std::lock_guard lock(mutex_);
    ticket_ = ticket;
    changed_.notify_all();
  }
  void wait_for(Ticket ticket) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ticket_ >= ticket; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Ticket ticket_ = 0;
};

class SqliteStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = std::filesystem::temp_directory_path() / "penstock-store-XXXXXX";
    folder = mkdtemp(pattern.data());
    path = folder / "coordinator.db";
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  std::unique_ptr<Store> open() {
    auto store = open_sqlite_store(path);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }

  std::string bytes() const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // Writes everything in one process life and reads it back in the next.
  std::vector<StoredJob> written_and_read(const std::vector<Write>& writes) {
    {
      auto store = open();
      Durable durable;
      store->start([&](Ticket ticket) { durable.reached(ticket); }, [](Status) {});
      Ticket ticket = 0;
      for (const Write& write : writes) store->save({++ticket, {write}});
      durable.wait_for(ticket);
      EXPECT_TRUE(store->stop().ok());
    }
    return open()->load();
  }

  std::filesystem::path folder;
  std::string path;
};

inline JobDefinition definition(const std::string& name, int64_t sequence) {
  return {.name = name,
          .request_id = "request of " + name,
          .principal = "ann",
          .spec_yaml = "name: " + name + "\n# \xc3\xa4 \n",
          .schedule = "1f1b",
          .sequence = sequence,
          .submitted_unix_ms = 1'700'000'000'000 + sequence,
          .steps = 200,
          .tokens_per_step = 4096,
          .ranks = 4,
          .stages = 8,
          .microbatches = 16,
          .checkpoints = name + "/checkpoints",
          .sums_since = 30 + sequence,
          .started_from = "/other/step-000000007",
          .first_step = 7,
          .moves = {.file_before = sequence % 2 == 0 ? "name: before\n" : "",
                    .undone = {"[[a], [b]]", "[[a, b]]"}},
          .submitted_yaml = sequence % 2 == 0 ? "name: submitted\n" : ""};
}

}  // namespace penstock::coordinator
