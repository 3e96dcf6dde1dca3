// Jobs and workers as tables and as descriptions, in the manner of kubectl. Pure: the time comes from outside.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "penstock/v1/jobs.pb.h"
#include "penstock/v1/workers.pb.h"
#include "plan/render/table.h"

namespace penstock::client {

enum class TableWidth { Narrow, Wide };

// NAME STATE STEP LOSS TOKENS/S AGE; wide adds SCHEDULE, RANKS, ATTEMPT and at most 80 columns of REASON.
plan::Table job_table(const std::vector<v1::Job>& jobs, int64_t now_unix_ms, TableWidth width);

// NAME STATE DEVICE JOB RANK AGE; wide adds PID, EXECUTOR, HOST and METRICS.
plan::Table worker_table(const std::vector<v1::Worker>& workers, int64_t now_unix_ms, TableWidth width);

std::string describe_job(const v1::Job& job, int64_t now_unix_ms);
// `devices`: what the coordinator lists of one worker, a device each; at least one.
std::string describe_worker(std::span<const v1::Worker> devices, int64_t now_unix_ms);

}  // namespace penstock::client
