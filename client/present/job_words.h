// What the client derives from a job's message: names of states, exit codes, numbers as text. Pure.
#pragma once

#include <string>

#include "penstock/v1/jobs.pb.h"

namespace penstock::client {

// "queued", "running", ...; "unknown" for what this client does not know.
std::string name_of(v1::JobState state);

bool has_ended(v1::JobState state);

// What following a job exits with. A job that has not ended counts as failed.
inline constexpr int kExitSucceeded = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitRefused = 2;
inline constexpr int kExitCancelled = 3;
inline constexpr int kExitNoProgress = 4;
inline constexpr int kExitUnchanged = 5;      // `rebalance --apply`: the job keeps its split
inline constexpr int kExitInterrupted = 130;  // as a shell says of a program that Ctrl-C ended
int exit_code_of(const v1::Job& job);

// The shortest decimal that reads back to the same double: "5.545177444479562"; "nan", "inf", "-inf".
std::string shortest_decimal(double value);

// "8.376ms": for people, four digits.
std::string ms_text(double ms);

// "2.3456": for people, four digits after the point; "-" when absent.
std::string loss_text(const v1::Job& job);
// Of the last pass and after which step: "2.3457 (step 100)"; "-" before the first.
std::string validation_text(const v1::Job& job);
std::string tokens_per_second_text(const v1::Job& job);

// Seconds until the last step at the pace of the run so far; negative when it cannot be known yet.
double seconds_left(const v1::Job& job);

// Seconds from a moment in Unix milliseconds to `now_unix_ms`, never negative.
double seconds_since(int64_t unix_ms, int64_t now_unix_ms);

}  // namespace penstock::client
