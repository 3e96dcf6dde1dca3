// The core's figures. Everything that can grow has its bound here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/clock.h"
#include "coordinator/core/jobs/rebalancing.h"
#include "proto/codec/limits.h"

namespace penstock::coordinator {

struct Options {
  std::string instance = "coordinator";  // told to workers, for their logs

  // A worker is lost after `leases_missed` leases of silence.
  Duration lease = 2s;
  int leases_missed = 3;
  Duration lost_worker_kept = 600s;  // then it leaves `get workers`

  // The longest that the ranks of a planned attempt may prepare before it fails.
  Duration preparing_limit = 300s;
  // A rank that reports its own failure may only feel another one's death: the better-founded report (a
  // signal, a lost worker) gets this long to arrive before the job fails with the first.
  Duration settling = 300ms;
  // An executor that was told to stop is told again at this interval...
  Duration abort_retry = 2s;
  // ...and is taken for gone after this: the orphan bound of executors (30 s) and a margin.
  Duration stopping_limit = 40s;

  // No committed step for this long, and for this many times the median of the last steps: the job says so.
  Duration stalled_after = 30s;
  int stalled_steps = 5;

  QuestionLimits question{};  // on the split of a job whose file says `rebalance:`

  Duration placing_interval = 20ms;  // the queue is looked through at most this often

  // Below it, absolute, a job's final weights are kept: NAME/weights. "": they are not.
  std::string weights_root{};

  size_t assigned_at_once = 8;  // ranks told in one turn: an assignment may be large

  size_t jobs_live = 1000;   // queued or running; beyond, submit is refused
  size_t jobs_ended = 1000;  // the oldest ended job is retired beyond
  size_t events_per_job = 100;
  int notes_per_job = 10;  // consecutive events that are no transition; beyond, the last one is replaced
  size_t log_lines_per_job = 10'000;
  size_t log_bytes_per_job = 4u << 20;
  size_t log_bytes_of_ended = 64u << 20;  // all ended jobs together; the oldest lose their logs beyond
  size_t log_line_bytes = codec::kLongestLogLine;
  size_t losses_of_ended =
      4u << 20;  // all ended jobs together; the oldest have theirs in the store alone beyond
  size_t trace_bytes_per_job = 48u << 20;    // less than a client takes in one answer
  size_t trace_bytes_of_ended = 256u << 20;  // all ended jobs together; the oldest lose their traces beyond
  size_t measurement_bytes_of_ended = 64u << 20;  // all ended jobs together, as above
  // Step reports of one job that wait for the slowest rank's: at least 64 steps of them. A rank further ahead
  // fails the job. Generous, since short steps and one late stream come far apart.
  int64_t reports_ahead = 1 << 16;

  size_t workers = 16'384;
  size_t devices_per_worker = codec::kMostDevices;
  size_t worker_name_bytes = codec::kLongestName;

  size_t look_ups_pending = 65'536;
  size_t broker_value_bytes = codec::kLargestBrokerValueBytes;
  size_t broker_item_bytes = 1024;  // of a communicator's and an item's name
  size_t broker_bytes_per_attempt = 64u << 20;

  size_t answers_pending = 4096;  // calls that wait for the store
  // Such a call is answered with the error after this: when the store says why it does not commit, and when not.
  Duration store_patience = 3s;
  Duration store_patience_unexplained = 10s;
  size_t transactions_pending = 4096;  // saves that are not durable yet; beyond, submit is refused
};

}  // namespace penstock::coordinator
