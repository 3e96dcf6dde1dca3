// Where what is slow runs: the workers of stragglers and of slow replicas, and whether their experts' rows explain it. Pure.
#pragma once

#include <string>
#include <vector>

#include "penstock/v1/jobs.pb.h"
#include "plan/diagnosis/diagnose.h"
#include "plan/spec/job_spec.h"

namespace penstock::client {

struct Suspect {
  plan::Finding finding = plan::Finding::Straggler;  // or a slow replica
  std::string worker;
  std::vector<int> ranks;          // of the job: the slow ones that it runs, the slowest first
  std::vector<int> healthy_ranks;  // that it runs too
  double factor = 0;               // of the slowest: its time to what others take
  double load =
      0;  // rows of its experts to those of the mean rank of its group; 0: every rank has all experts
};

// The slowest first; none whose worker is not known.
std::vector<Suspect> suspects_of(const plan::Diagnosis& diagnosis, const plan::JobSpec& job,
                                 const v1::MeasurementsResponse& measurements);

// Its rank takes no longer than its rows do.
bool is_explained_by_rows(const Suspect& suspect);

// What to do about those of a finding, a line for each; "" where there are none.
std::string suspects_text(const std::vector<Suspect>& suspects, plan::Finding finding);

}  // namespace penstock::client
