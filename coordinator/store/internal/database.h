// SQLite with owners, statuses and prepared statements that are made once.
//
// Thread: one at a time.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace penstock::coordinator {

// A prepared statement in use: bind in order, then step or run; columns in order too.
class Statement {
 public:
  explicit Statement(sqlite3_stmt* statement) : statement_(statement) {}
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  ~Statement();

  Statement& bind(int64_t value);
  Statement& bind(double value);  // SQLite keeps NaN as NULL
  Statement& bind(const std::string& value);
  template <typename T>
  Statement& bind(const std::optional<T>& value) {
    return value ? bind(*value) : bind_null();
  }
  Statement& bind_bytes(const std::string& value);
  Statement& bind_null();

  // Whether there is a row to read.
  StatusOr<bool> step();
  // For statements without rows.
  Status run();

  int64_t integer();
  double real();  // NaN for NULL
  std::string text();
  std::string bytes();
  std::optional<double> optional_real();
  std::optional<int64_t> optional_integer();

 private:
  sqlite3_stmt* statement_;
  int bound_ = 0;
  int column_ = 0;
};

class Database {
 public:
  static StatusOr<std::unique_ptr<Database>> open(const std::string& path);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  Status execute(const std::string& sql);
  // The statement must be gone before the same text is prepared again. SQL that does not compile stops the process.
  Statement prepare(const std::string& sql);
  // The first column of the first row. SQL that does not compile (a damaged file) is an error here.
  StatusOr<int64_t> number(const std::string& sql);
  StatusOr<int64_t> pragma(const std::string& name) { return number("PRAGMA " + name); }
  // Whether the last error was another process's lock.
  bool is_locked_out() const;
  bool is_read_only() const;
  Status failure(const std::string& what) const;

 private:
  explicit Database(sqlite3* handle, std::string path) : handle_(handle), path_(std::move(path)) {}

  sqlite3* handle_;
  std::string path_;
  std::map<std::string, sqlite3_stmt*> statements_;
};

// What SQLite's result code means to a caller.
StatusCode status_code(int sqlite_code);

}  // namespace penstock::coordinator
