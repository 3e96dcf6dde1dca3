// What follows from levels, slow ranks and variation, in sentences with their numbers. Pure.
#pragma once

#include <string>
#include <vector>

#include "plan/diagnosis/diagnose.h"
#include "plan/diagnosis/internal/effects.h"
#include "plan/diagnosis/internal/rank_times.h"

namespace penstock::plan::internal {

// The main one first; of `diagnosis` the spread and the correlation are read.
std::vector<Judgement> verdicts_of(const RankTimes& times, const Effects& effects,
                                   const Diagnosis& diagnosis);

std::vector<std::string> notes_of(const StageTrace& trace, const RankTimes& times, const Effects& effects,
                                  const Diagnosis& diagnosis);

}  // namespace penstock::plan::internal
