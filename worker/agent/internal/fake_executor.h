// Tests' stand-in for an executor: this test program run again with --executor, which plays the script that
// its assignment carries in place of a job file, a command a line:
//   ready | step K | finish | fail TEXT | print TEXT | flood LINES | exit CODE | abort | wait | linger
//   hang-up | inspect | garbage
//   publish ITEM VALUE | look-up RANK ITEM TIMEOUT_MS (both print "ITEM: CODE VALUE")
#pragma once

namespace penstock::worker {

// Plays until the script ends; returns the exit code.
int play_executor(int fd);

}  // namespace penstock::worker
