// Says whether a program is valid, from the definitions: sets of what has to be there, intervals of what is
// held, and a graph of what waits for what, which must have no circle. Slow, and written apart from
// plan/verification, which runs programs instead: they share the plain data types and nothing else.
#pragma once

#include <string>

#include "plan/schedule/lowered.h"
#include "plan/schedule/program.h"

namespace penstock::checking {

// "" when the program is valid, else why not. Any values, as from a file.
std::string check(const plan::ComputeProgram& program);

struct Checked {
  std::string why;  // "" when every rule but those about waiting holds
  // Whether the ranks come to their ends; meaningful when `why` is empty.
  bool buffered = false;
  bool rendezvous = false;
  bool in_order_queue = false;
};
Checked check(const plan::LoweredProgram& program);

}  // namespace penstock::checking
