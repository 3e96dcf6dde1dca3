#include "client/present/job_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "plan/render/human.h"

namespace penstock::client {

std::string name_of(v1::JobState state) {
  switch (state) {
    case v1::JOB_STATE_QUEUED:
      return "queued";
    case v1::JOB_STATE_PLACING:
      return "placing";
    case v1::JOB_STATE_PREPARING:
      return "preparing";
    case v1::JOB_STATE_RUNNING:
      return "running";
    case v1::JOB_STATE_RECOVERING:
      return "recovering";
    case v1::JOB_STATE_DRAINING:
      return "draining";
    case v1::JOB_STATE_PAUSED:
      return "paused";
    case v1::JOB_STATE_SUCCEEDED:
      return "succeeded";
    case v1::JOB_STATE_FAILED:
      return "failed";
    case v1::JOB_STATE_CANCELLED:
      return "cancelled";
    case v1::JOB_STATE_UNSPECIFIED:
    case v1::JobState_INT_MIN_SENTINEL_DO_NOT_USE_:
    case v1::JobState_INT_MAX_SENTINEL_DO_NOT_USE_:
      break;
  }
  return "unknown";
}

bool has_ended(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

int exit_code_of(const v1::Job& job) {
  if (job.state() == v1::JOB_STATE_SUCCEEDED) return kExitSucceeded;
  if (job.state() == v1::JOB_STATE_CANCELLED) return kExitCancelled;
  // A failed job may say which kind of failure; it never says success.
  const int said = job.exit_code();
  const bool known = said == kExitRefused || said == kExitNoProgress;
  return job.state() == v1::JOB_STATE_FAILED && known ? said : kExitFailed;
}

std::string shortest_decimal(double value) {
  std::array<char, 32> text;
  const auto [end, failure] = std::to_chars(text.data(), text.data() + text.size(), value);
  return std::string(text.data(), end);
}

std::string ms_text(double ms) {
  return fmt::format("{:.4g}ms", ms);
}

std::string loss_text(const v1::Job& job) {
  return job.has_loss() ? plan::bounded_decimal(job.loss(), 4) : "-";
}

std::string validation_text(const v1::Job& job) {
  if (job.validation().empty()) return "-";
  const v1::ValidationLoss& last = *job.validation().rbegin();
  return fmt::format("{} (step {})", plan::bounded_decimal(last.loss(), 4), last.step());
}

std::string tokens_per_second_text(const v1::Job& job) {
  return job.has_tokens_per_second() ? plan::human_count(job.tokens_per_second()) : "-";
}

double seconds_left(const v1::Job& job) {
  const auto left = static_cast<double>(job.steps() - job.step());
  const auto done = static_cast<double>(job.step() - job.first_step());
  if (done <= 0 || left < 0) return -1;
  // The mean over the run jumps less than the last step alone.
  if (job.seconds() > 0) return left * job.seconds() / done;
  return job.has_step_seconds() ? left * job.step_seconds() : -1;
}

double seconds_since(int64_t unix_ms, int64_t now_unix_ms) {
  return static_cast<double>(std::max<int64_t>(now_unix_ms - unix_ms, 0)) / 1000;
}

}  // namespace penstock::client
