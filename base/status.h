// Status, StatusOr and makers of errors whose messages are formatted with fmt.
//
// Code by what the caller should do: unavailable = try again; aborted = restart the larger step;
// failed_precondition = someone must fix the state first; invalid_argument = the input is wrong as it stands.
// A message says what failed, expected, found, and what to look at next; values at the end.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <fmt/format.h>

#include <string>
#include <utility>

namespace penstock {

using absl::Status;
using absl::StatusCode;
using absl::StatusOr;

inline Status ok_status() {
  return absl::OkStatus();
}

template <typename... Args>
Status error(StatusCode code, fmt::format_string<Args...> format, Args&&... args) {
  return Status(code, fmt::format(format, std::forward<Args>(args)...));
}

#define PENSTOCK_DEFINE_ERROR(name, code)                                \
  template <typename... Args>                                            \
  Status name(fmt::format_string<Args...> format, Args&&... args) {      \
    return error(StatusCode::code, format, std::forward<Args>(args)...); \
  }
PENSTOCK_DEFINE_ERROR(invalid_argument, kInvalidArgument)
PENSTOCK_DEFINE_ERROR(not_found, kNotFound)
PENSTOCK_DEFINE_ERROR(already_exists, kAlreadyExists)
PENSTOCK_DEFINE_ERROR(failed_precondition, kFailedPrecondition)
PENSTOCK_DEFINE_ERROR(resource_exhausted, kResourceExhausted)
PENSTOCK_DEFINE_ERROR(unavailable, kUnavailable)
PENSTOCK_DEFINE_ERROR(aborted, kAborted)
PENSTOCK_DEFINE_ERROR(cancelled, kCancelled)
PENSTOCK_DEFINE_ERROR(deadline_exceeded, kDeadlineExceeded)
PENSTOCK_DEFINE_ERROR(unimplemented, kUnimplemented)
PENSTOCK_DEFINE_ERROR(out_of_range, kOutOfRange)
PENSTOCK_DEFINE_ERROR(data_loss, kDataLoss)
PENSTOCK_DEFINE_ERROR(internal_error, kInternal)
#undef PENSTOCK_DEFINE_ERROR

// Debian's absl has its own string_view: these two are the only place that converts.
inline std::string message(const Status& status) {
  return std::string(status.message());
}

// The same status with "context: " in front of its message.
inline Status with_context(const Status& status, const std::string& context) {
  return status.ok() ? status : Status(status.code(), context + ": " + message(status));
}

}  // namespace penstock

#define PENSTOCK_CONCAT_INNER(a, b) a##b
#define PENSTOCK_CONCAT(a, b) PENSTOCK_CONCAT_INNER(a, b)

#define PENSTOCK_RETURN_IF_ERROR(expression)                                                          \
  do {                                                                                                \
    if (::absl::Status penstock_status = (expression); !penstock_status.ok()) return penstock_status; \
  } while (false)

#define PENSTOCK_ASSIGN_OR_RETURN(target, expression) \
  PENSTOCK_ASSIGN_OR_RETURN_INNER(PENSTOCK_CONCAT(penstock_result_, __LINE__), target, expression)
#define PENSTOCK_ASSIGN_OR_RETURN_INNER(result, target, expression) \
  auto result = (expression);                                       \
  if (!result.ok()) return result.status();                         \
  target = std::move(result).value()
