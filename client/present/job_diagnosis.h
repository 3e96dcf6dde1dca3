// Why a job is slow, for the terminal and for programs. Pure.
#pragma once

#include <optional>
#include <string>

#include "client/present/job_json.h"
#include "plan/diagnosis/diagnose.h"
#include "plan/diagnosis/memory_balance.h"
#include "plan/diagnosis/routing_drift.h"

namespace penstock::client {

// Where a straggler runs.
struct Suspect {
  std::string worker;
  int rank = 0;  // in the job
  double load =
      0;  // rows of its experts to those of the mean rank of its group; 0: every rank has all experts
};

struct JobDiagnosis {
  plan::Diagnosis times;
  std::optional<Suspect> suspect;  // of a straggler whose worker is known
  plan::MemoryBalance memory;      // nothing said: not measured
  plan::RoutingJudgement routing;  // unknown: a job without experts, or with too few steps
};

// "imbalance: ..." with the table of stages; `name` in front where several traces are told.
std::string diagnosis_text(const std::string& name, const plan::Diagnosis& diagnosis);
std::string diagnosis_text(const JobDiagnosis& diagnosis);

// As plan/interop/stage_trace.h has it, and memory {imbalanced, fullest_rank, ratio_to_median, because, advice}, routing {verdict,
// stage, load, stage_ms, correlation, because, advice} and suspect {worker, rank, speed, load} where they are known.
Json diagnosis_json(const JobDiagnosis& diagnosis);

}  // namespace penstock::client
