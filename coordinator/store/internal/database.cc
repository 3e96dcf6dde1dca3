#include "coordinator/store/internal/database.h"

#include <cmath>
#include <limits>
#include <system_error>
#include <utility>

#include "base/check.h"

namespace penstock::coordinator {
namespace {

// SQLite's words, and the system's where it was the system that refused: "disk I/O error" alone helps nobody.
Status failure_of(sqlite3* handle, const std::string& what) {
  const int code = sqlite3_errcode(handle) & 0xff;
  const bool of_the_system = code == SQLITE_IOERR || code == SQLITE_CANTOPEN;
  const int system = of_the_system ? sqlite3_system_errno(handle) : 0;
  return error(status_code(code), "{}: {}{} (SQLite {})", what, sqlite3_errmsg(handle),
               system ? fmt::format(": {}", std::generic_category().message(system)) : "",
               sqlite3_extended_errcode(handle));
}

}  // namespace

StatusCode status_code(int sqlite_code) {
  switch (sqlite_code & 0xff) {
    case SQLITE_OK:
      return StatusCode::kOk;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return StatusCode::kDataLoss;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_IOERR:
      return StatusCode::kUnavailable;
    case SQLITE_FULL:
    case SQLITE_NOMEM:
      return StatusCode::kResourceExhausted;
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
    case SQLITE_CANTOPEN:
      return StatusCode::kFailedPrecondition;
    default:
      return StatusCode::kInternal;
  }
}

Statement::~Statement() {
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

Statement& Statement::bind(int64_t value) {
  PENSTOCK_CHECK_EQ(sqlite3_bind_int64(statement_, ++bound_, value), SQLITE_OK);
  return *this;
}

Statement& Statement::bind(double value) {
  PENSTOCK_CHECK_EQ(sqlite3_bind_double(statement_, ++bound_, value), SQLITE_OK);
  return *this;
}

Statement& Statement::bind(const std::string& value) {
  PENSTOCK_CHECK_EQ(
      sqlite3_bind_text64(statement_, ++bound_, value.data(), value.size(), SQLITE_TRANSIENT, SQLITE_UTF8),
      SQLITE_OK);
  return *this;
}

Statement& Statement::bind_bytes(const std::string& value) {
  PENSTOCK_CHECK_EQ(sqlite3_bind_blob64(statement_, ++bound_, value.data(), value.size(), SQLITE_TRANSIENT),
                    SQLITE_OK);
  return *this;
}

Statement& Statement::bind_null() {
  PENSTOCK_CHECK_EQ(sqlite3_bind_null(statement_, ++bound_), SQLITE_OK);
  return *this;
}

StatusOr<bool> Statement::step() {
  column_ = 0;
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return failure_of(sqlite3_db_handle(statement_), sqlite3_sql(statement_));
}

Status Statement::run() {
  PENSTOCK_ASSIGN_OR_RETURN(const bool row, step());
  PENSTOCK_CHECK(!row, "{} answers with a row", sqlite3_sql(statement_));
  return ok_status();
}

int64_t Statement::integer() {
  return sqlite3_column_int64(statement_, column_++);
}

double Statement::real() {
  return optional_real().value_or(std::numeric_limits<double>::quiet_NaN());
}

std::string Statement::text() {
  const int column = column_++;
  const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  return bytes ? std::string(bytes, static_cast<size_t>(sqlite3_column_bytes(statement_, column))) : "";
}

std::string Statement::bytes() {
  const int column = column_++;
  const auto* bytes = static_cast<const char*>(sqlite3_column_blob(statement_, column));
  return bytes ? std::string(bytes, static_cast<size_t>(sqlite3_column_bytes(statement_, column))) : "";
}

std::optional<double> Statement::optional_real() {
  const int column = column_++;
  if (sqlite3_column_type(statement_, column) == SQLITE_NULL) return std::nullopt;
  return sqlite3_column_double(statement_, column);
}

std::optional<int64_t> Statement::optional_integer() {
  const int column = column_++;
  if (sqlite3_column_type(statement_, column) == SQLITE_NULL) return std::nullopt;
  return sqlite3_column_int64(statement_, column);
}

StatusOr<std::unique_ptr<Database>> Database::open(const std::string& path) {
  sqlite3* handle = nullptr;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  if (sqlite3_open_v2(path.c_str(), &handle, flags, nullptr) != SQLITE_OK) {
    const Status status =
        handle ? failure_of(handle, "open " + path) : internal_error("open {}: no memory", path);
    sqlite3_close(handle);
    return status;
  }
  return std::unique_ptr<Database>(new Database(handle, path));
}

Database::~Database() {
  for (const auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  sqlite3_close(handle_);
}

Status Database::execute(const std::string& sql) {
  if (sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK) return ok_status();
  return failure(sql);
}

Statement Database::prepare(const std::string& sql) {
  sqlite3_stmt*& statement = statements_[sql];
  if (!statement) {
    const int code =
        sqlite3_prepare_v3(handle_, sql.c_str(), -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
    PENSTOCK_CHECK(code == SQLITE_OK, "{}: {}", sql, sqlite3_errmsg(handle_));
  }
  return Statement(statement);
}

StatusOr<int64_t> Database::number(const std::string& sql) {
  sqlite3_stmt* raw = nullptr;
  if (sqlite3_prepare_v2(handle_, sql.c_str(), -1, &raw, nullptr) != SQLITE_OK) return failure(sql);
  const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement(raw, sqlite3_finalize);
  if (sqlite3_step(raw) != SQLITE_ROW) return failure(sql);
  return sqlite3_column_int64(raw, 0);
}

bool Database::is_locked_out() const {
  const int code = sqlite3_errcode(handle_) & 0xff;
  return code == SQLITE_BUSY || code == SQLITE_LOCKED;
}

bool Database::is_read_only() const {
  return sqlite3_db_readonly(handle_, "main") != 0;
}

Status Database::failure(const std::string& what) const {
  return failure_of(handle_, path_ + ": " + what);
}

}  // namespace penstock::coordinator
