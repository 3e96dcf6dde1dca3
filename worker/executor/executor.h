// The executor: the child process that a daemon starts for one assignment, which owns its devices, memory and
// communicators. One rank of one attempt; it never runs a second one.
//
// Life: reads its ExecutorAssignment, checks it, prepares, says RankReady, trains with a StepReport each
// step, ends together with the other ranks, says RankFinished and returns 0. Whatever fails is said once, as
// RankFailed with the step and the reason, and 1 is returned.
//
// Dies with its daemon, by two independent means: the kernel's signal, and the end of file on `fd`.
#pragma once

#include <sys/types.h>

namespace penstock::worker {

// `fd`: the frame socket to the daemon. `parent`: the daemon's pid. Returns the exit code of the process,
// which must end then. Thread: the process's main one; call once.
int run_executor(int fd, pid_t parent);

}  // namespace penstock::worker
