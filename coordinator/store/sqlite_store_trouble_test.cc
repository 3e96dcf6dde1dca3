// Files that the store must not take, and disks that take nothing.
#include <gmock/gmock.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "coordinator/store/internal/store_test_fixture.h"

namespace penstock::coordinator {
namespace {

using ::testing::HasSubstr;

TEST_F(SqliteStoreTest, second_coordinator_is_turned_away) {
  auto first = open();
  const auto second = open_sqlite_store(path);
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(message(second.status()), HasSubstr("another coordinator"));
}

TEST_F(SqliteStoreTest, file_that_is_no_database_is_refused_and_left_alone) {
  std::ofstream(path) << std::string(5000, 'x');
  const std::string before = bytes();
  const auto store = open_sqlite_store(path);
  EXPECT_EQ(store.status().code(), StatusCode::kDataLoss) << store.status();
  EXPECT_THAT(message(store.status()), HasSubstr(path));
  EXPECT_EQ(bytes(), before);
}

TEST_F(SqliteStoreTest, damaged_pages_are_refused_and_left_alone) {
  {
    std::vector<Write> writes;
    for (int64_t i = 0; i < 200; ++i)
      writes.push_back(CreateJob{definition("job-" + std::to_string(i), i), {}});
    ASSERT_EQ(written_and_read(writes).size(), 200u);
  }
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096);
    file << std::string(8192, '\x5a');
  }
  const std::string before = bytes();
  const auto store = open_sqlite_store(path);
  EXPECT_EQ(store.status().code(), StatusCode::kDataLoss) << store.status();
  EXPECT_EQ(bytes(), before);
}

void run_sql(const std::string& path, const std::string& sql) {
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &database), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
      << sqlite3_errmsg(database);
  sqlite3_close(database);
}

TEST_F(SqliteStoreTest, tables_of_another_version_are_refused_and_left_alone) {
  open().reset();
  run_sql(path, "PRAGMA user_version=99");
  const std::string before = bytes();
  const auto store = open_sqlite_store(path);
  EXPECT_EQ(store.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(message(store.status()), HasSubstr("expected version 13 of the tables, found 99"));
  EXPECT_EQ(bytes(), before);
}

TEST_F(SqliteStoreTest, database_of_another_program_is_refused_and_left_alone) {
  run_sql(path, "CREATE TABLE precious(x); INSERT INTO precious VALUES(1)");
  const std::string before = bytes();
  const auto store = open_sqlite_store(path);
  EXPECT_EQ(store.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(message(store.status()), HasSubstr("another program"));
  EXPECT_EQ(bytes(), before);
}

TEST_F(SqliteStoreTest, folder_that_does_not_exist_is_named) {
  const auto store = open_sqlite_store(folder / "absent" / "coordinator.db");
  EXPECT_FALSE(store.ok());
  EXPECT_THAT(message(store.status()), HasSubstr("absent/coordinator.db"));
}

TEST_F(SqliteStoreTest, creation_that_was_cut_short_is_done_again) {
  // A crash between the header and the tables must not leave a state folder that nobody can use.
  run_sql(path, "PRAGMA journal_mode=WAL");
  ASSERT_FALSE(bytes().empty());
  EXPECT_EQ(written_and_read({CreateJob{definition("a", 1), {}}}).size(), 1u);
}

// No file of this process may grow beyond `bytes` while it lives: a disk that takes no more.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }

 private:
  sighandler_t handler_;
  rlimit before_{};
};

TEST_F(SqliteStoreTest, disk_that_gives_errors_is_not_taken_for_another_coordinator) {
  const FileSizeLimit limit(100);
  const auto store = open_sqlite_store(path);
  ASSERT_FALSE(store.ok());
  EXPECT_THAT(message(store.status()), HasSubstr("File too large"));
  EXPECT_THAT(message(store.status()), ::testing::Not(HasSubstr("another coordinator")));
}

TEST_F(SqliteStoreTest, trouble_and_its_end_are_told_and_nothing_is_lost) {
  auto store = open();
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> told;  // codes and tickets, in order
  const auto tell = [&](std::string what) {
    const std::lock_guard lock(mutex);
    told.push_back(std::move(what));
    changed.notify_all();
  };
  const auto wait_for = [&](size_t count) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return told.size() >= count; });
  };
  store->start([&](Ticket ticket) { tell(std::to_string(ticket)); },
               [&](const Status& status) { tell(status.ok() ? "well" : "ill"); });
  {
    const FileSizeLimit limit(100);
    store->save({1, {CreateJob{definition("a", 1), {}}}});
    wait_for(1);
  }
  wait_for(3);
  EXPECT_THAT(told, ::testing::ElementsAre("ill", "well", "1"));
  EXPECT_TRUE(store->stop().ok());
  store.reset();
  EXPECT_EQ(open()->load().size(), 1u);
}

}  // namespace
}  // namespace penstock::coordinator
