// Why a job is slow, for the terminal and for programs. Pure.
#pragma once

#include <string>
#include <vector>

#include "client/present/job_json.h"
#include "client/present/suspects.h"
#include "plan/diagnosis/diagnose.h"
#include "plan/diagnosis/memory_balance.h"
#include "plan/diagnosis/routing_drift.h"

namespace penstock::client {

struct JobDiagnosis {
  plan::Diagnosis times;
  std::vector<Suspect> suspects;
  plan::MemoryBalance memory;      // nothing said: not measured
  plan::RoutingJudgement routing;  // unknown: a job without experts, or with too few steps
};

// "imbalance: ..." with the table of stages, then what else was found; `name` in front where several traces are told.
std::string diagnosis_text(const std::string& name, const plan::Diagnosis& diagnosis);
std::string diagnosis_text(const JobDiagnosis& diagnosis);

// As plan/interop/stage_trace.h has it, and memory {imbalanced, fullest_rank, ratio_to_median, because, advice}, routing {verdict,
// stage, load, stage_ms, correlation, because, advice} and suspects [{verdict, worker, ranks, healthy_ranks, speed, load}] where
// they are known.
Json diagnosis_json(const JobDiagnosis& diagnosis);

}  // namespace penstock::client
