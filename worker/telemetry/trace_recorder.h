// When each action of a rank ran, and how long it waited for each tensor before it, in the steps that are traced.
//
// Times are those of CLOCK_MONOTONIC, which all processes of a host share; ranks of other hosts are lined up by the wall
// clock at the trace's begin, so as well as the hosts' clocks agree (a millisecond or so).
// Limits: room for the whole program is made at construction; recording allocates nothing. A program with more than
// codec::kMostTraced works or waits is not traced. Thread: the interpreter's.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/ids.h"
#include "plan/schedule/lowered.h"
#include "plan/spec/job_spec.h"
#include "proto/codec/messages.h"

namespace penstock::worker {

// Whether the run of a program that spans the steps [first, first + updates) is traced: it holds step 2, when all is warm
// (the last one where there are fewer), or a multiple of trace.every.
bool is_traced(const plan::JobSpec& job, StepIndex first, int updates);

class TraceRecorder {
 public:
  // Records into `trace`, whose attempt and rank stay as they are; both outlive it.
  TraceRecorder(const plan::RankProgram& program, StepTrace& trace);

  // False: the program has more works than a trace holds, as why_not() says, which is "" else.
  bool has_room() const { return why_not_.empty(); }
  const std::string& why_not() const { return why_not_; }

  void begin(StepIndex step, const Clock& clock);
  void end() { recording_ = false; }

  // What was recorded of the step is undone, and comes again.
  void forget_works();

  bool recording() const { return recording_; }
  void add_work(const plan::Work& work, TimePoint start, TimePoint end, Duration cpu);
  void add_layer(const TracedLayer& layer) { trace_.layers.push_back(layer); }
  // Of `wait`, a WaitReceive.
  void add_wait(const plan::Instruction& wait, TimePoint start, TimePoint end);

 private:
  int64_t since_begin(TimePoint time) const { return (time - began_).count(); }

  StepTrace& trace_;
  std::string why_not_;
  bool recording_ = false;
  TimePoint began_{};
};

}  // namespace penstock::worker
