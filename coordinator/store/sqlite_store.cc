#include "coordinator/store/sqlite_store.h"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/store/internal/database.h"
#include "coordinator/store/internal/rows.h"

namespace penstock::coordinator {
namespace {

constexpr Duration kRetryInterval = 1s;  // after a transaction that failed
constexpr size_t kMostReads = 1024;      // that wait

class SqliteStore final : public Store {
 public:
  SqliteStore(std::unique_ptr<Database> database, std::vector<StoredJob> jobs,
              std::map<std::string, Cordon> cordons)
      : database_(std::move(database)), jobs_(std::move(jobs)), cordons_(std::move(cordons)) {}
  ~SqliteStore() override { (void)stop(); }

  std::vector<StoredJob> load() override { return std::move(jobs_); }
  std::map<std::string, Cordon> load_cordons() override { return std::move(cordons_); }

  void start(std::function<void(Ticket)> durable, std::function<void(Status)> health) override {
    PENSTOCK_CHECK(!writer_.joinable(), "the store is started twice");
    durable_ = std::move(durable);
    health_ = std::move(health);
    writer_ = std::thread([this] { write_until_stopped(); });
  }

  void save(Save save) override {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(save));
    wake_.notify_one();
  }

  void read_losses(std::string job, std::function<void(StatusOr<std::vector<double>>)> done) override {
    Status refused = ok_status();
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) refused = stopped();
      if (reads_.size() >= kMostReads)
        refused = resource_exhausted("the store: {} reads wait already", kMostReads);
      if (refused.ok()) reads_.push_back({std::move(job), std::move(done)});
      wake_.notify_one();
    }
    if (!refused.ok()) done(refused);
  }

  Status stop() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      wake_.notify_one();
    }
    if (writer_.joinable()) writer_.join();
    for (const Read& read : std::exchange(reads_, {})) read.done(stopped());
    return last_;
  }

 private:
  struct Read {
    std::string job{};
    std::function<void(StatusOr<std::vector<double>>)> done{};  // null: none
  };
  static Status stopped() { return unavailable("the store is stopped"); }

  // With every batch goes one read at most: whole tables of others are not read before what was saved meanwhile.
  void write_until_stopped() {
    pthread_setname_np(pthread_self(), "store");
    while (true) {
      std::vector<Save> batch;
      Read read;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] { return stopping_ || !queue_.empty() || !reads_.empty(); });
        if (queue_.empty() && reads_.empty()) return;
        batch.swap(queue_);
        read = take_read();
      }
      if (!batch.empty()) {
        if (!write_until_durable(batch, read)) return;
        durable_(batch.back().ticket);
      }
      answer(read);
    }
  }

  // The oldest, or none; the mutex is held.
  Read take_read() {
    if (reads_.empty()) return {};
    Read read = std::move(reads_.front());
    reads_.pop_front();
    return read;
  }

  // Leaves none.
  void answer(Read& read) {
    if (!read.done) return;
    const Read taken = std::exchange(read, {});
    taken.done(losses_of(*database_, taken.job));
  }

  // False when the store is stopped before the disk takes the batch. A disk that takes nothing can be read all the same:
  // `read`, and those that come, are answered from what it holds.
  bool write_until_durable(const std::vector<Save>& batch, Read& read) {
    while (true) {
      const Status before = last_;
      last_ = write(batch);
      if (last_.ok()) {
        if (!before.ok()) {
          log::info("the store commits again");
          health_(last_);
        }
        return true;
      }
      if (before != last_) {
        log::error("the store cannot commit, trying again every second: {}", message(last_));
        health_(last_);
      }
      if (!wait_to_try_again(read)) return false;
    }
  }

  // False when the store is stopped.
  bool wait_to_try_again(Read& read) {
    const auto again = std::chrono::steady_clock::now() + kRetryInterval;
    answer(read);
    std::unique_lock lock(mutex_);
    const auto has_work = [this] { return stopping_ || !reads_.empty(); };
    while (wake_.wait_until(lock, again, has_work) && !stopping_ &&
           std::chrono::steady_clock::now() < again) {
      read = take_read();
      lock.unlock();
      answer(read);
      lock.lock();
    }
    return !stopping_;
  }

  Status write(const std::vector<Save>& batch) {
    PENSTOCK_RETURN_IF_ERROR(database_->execute("BEGIN IMMEDIATE"));
    Status status = write_batch(batch);
    if (status.ok()) status = database_->execute("COMMIT");
    if (!status.ok()) (void)database_->execute("ROLLBACK");
    return status;
  }

  Status write_batch(const std::vector<Save>& batch) {
    for (const Save& save : batch) {
      for (const Write& write : save.writes) PENSTOCK_RETURN_IF_ERROR(write_rows(*database_, write));
    }
    return ok_status();
  }

  const std::unique_ptr<Database> database_;  // the writer's, once started
  std::vector<StoredJob> jobs_;
  std::map<std::string, Cordon> cordons_;
  std::function<void(Ticket)> durable_;
  std::function<void(Status)> health_;
  Status last_;  // the writer's; read by others after join

  std::mutex mutex_;  // guards the members below
  std::condition_variable wake_;
  std::vector<Save> queue_;
  std::deque<Read> reads_;
  bool stopping_ = false;

  std::thread writer_;
};

Status check_identity(Database& database, const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t application, database.pragma("application_id"));
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t version, database.pragma("user_version"));
  if (application != kApplicationId) {
    return failed_precondition(
        "{}: expected a coordinator's database, found one of another program (application id {:#x}); nothing "
        "was changed: choose another state folder",
        path, application);
  }
  if (version != kSchemaVersion) {
    return failed_precondition(
        "{}: expected version {} of the tables, found {}; nothing was changed: start the coordinator that "
        "wrote it, or choose another state folder",
        path, kSchemaVersion, version);
  }
  return ok_status();
}

// A new file, or one whose creation was cut short: journal_mode writes the header before there is a table.
StatusOr<bool> is_empty(Database& database) {
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t pages, database.pragma("page_count"));
  if (pages == 0) return true;
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t application, database.pragma("application_id"));
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t tables, database.number("SELECT count(*) FROM sqlite_master"));
  return application == 0 && tables == 0;
}

Status check_pages(Database& database) {
  Statement check = database.prepare("PRAGMA quick_check(1)");
  PENSTOCK_ASSIGN_OR_RETURN(const bool row, check.step());
  const std::string answer = row ? check.text() : "no answer";
  if (answer == "ok") return ok_status();
  return data_loss("its pages are damaged: {}", answer);
}

// The first read takes the lock for good (locking_mode), and shows whether the file is a database at all.
Status open_or_create(Database& database, const std::string& path) {
  PENSTOCK_RETURN_IF_ERROR(database.execute("PRAGMA locking_mode=EXCLUSIVE"));
  PENSTOCK_ASSIGN_OR_RETURN(const bool empty, is_empty(database));
  if (database.is_read_only())
    return failed_precondition("{}: expected a file that can be written, found a read-only one", path);
  if (!empty) PENSTOCK_RETURN_IF_ERROR(check_identity(database, path));
  PENSTOCK_RETURN_IF_ERROR(database.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL"));
  if (empty) PENSTOCK_RETURN_IF_ERROR(create_tables(database));
  // Takes the write lock, and gives the error of a file or folder that cannot be written now instead of at a
  // submit.
  PENSTOCK_RETURN_IF_ERROR(database.execute("BEGIN IMMEDIATE; COMMIT"));
  return check_pages(database);
}

Status explained(const Database& database, const Status& status, const std::string& path) {
  if (database.is_locked_out())
    return unavailable("{}: another coordinator has it open: {}", path, message(status));
  switch (status.code()) {
    case StatusCode::kUnavailable:
      return unavailable("{}: the file cannot be read or written: {}; look at its disk and file system", path,
                         message(status));
    case StatusCode::kDataLoss:
      return data_loss(
          "{}: expected a coordinator's database: {}; nothing was changed: restore a copy, or choose another "
          "state folder",
          path, message(status));
    default:
      return status;
  }
}

}  // namespace

StatusOr<std::unique_ptr<Store>> open_sqlite_store(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<Database> database, Database::open(path));
  if (Status status = open_or_create(*database, path); !status.ok())
    return explained(*database, status, path);
  StatusOr<std::vector<StoredJob>> jobs = read_jobs(*database);
  if (!jobs.ok()) return explained(*database, jobs.status(), path);
  StatusOr<std::map<std::string, Cordon>> cordons = read_cordons(*database);
  if (!cordons.ok()) return explained(*database, cordons.status(), path);
  return std::make_unique<SqliteStore>(std::move(database), *std::move(jobs), *std::move(cordons));
}

}  // namespace penstock::coordinator
