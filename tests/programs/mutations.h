// One piece of damage to a valid program: what a wrong generator, a damaged file or a hostile peer could make.
#pragma once

#include "plan/schedule/lowered.h"
#include "plan/schedule/program.h"
#include "plan/verification/testing/random_programs.h"

namespace penstock::checking {

void mutate(plan::ComputeProgram& program, plan::judging::Random& random);

// Instructions, slots and pools; the links' counts and digests stay as they were.
void mutate(plan::LoweredProgram& program, plan::judging::Random& random);

// Tells the links of whatever the instructions are now, as a lowering would: then nothing but the rules about
// the instructions can refuse them.
void describe_links_again(plan::LoweredProgram& program);

}  // namespace penstock::checking
