#include "worker/telemetry/trace_recorder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/check.h"
#include "proto/codec/limits.h"

namespace penstock::worker {
namespace {

constexpr int64_t kWarmStep = 2;

// Processes with the same one share CLOCK_MONOTONIC. Where the host does not say, nobody shares it.
std::string clock_name() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot.empty() ? "process-" + std::to_string(getpid()) : boot;
}

size_t count_of(const plan::RankProgram& program, plan::InstructionKind kind) {
  return static_cast<size_t>(
      std::count_if(program.instructions.begin(), program.instructions.end(),
                    [&](const plan::Instruction& instruction) { return instruction.kind == kind; }));
}

}  // namespace

bool is_traced(const plan::JobSpec& job, StepIndex first, int updates) {
  const int64_t every = job.trace.every;
  if (every == 0) return false;
  const int64_t begin = first.value, end = begin + updates;
  const int64_t warm = std::min(kWarmStep, job.train.steps - 1);
  const int64_t next =
      std::max<int64_t>(1, (begin + every - 1) / every) * every;  // the first multiple from here on
  return (warm >= begin && warm < end) || next < end;
}

TraceRecorder::TraceRecorder(const plan::RankProgram& program, StepTrace& trace) : trace_(trace) {
  const size_t works = count_of(program, plan::InstructionKind::Compute);
  const size_t waits = count_of(program, plan::InstructionKind::WaitReceive);
  if (std::max(works, waits) > codec::kMostTraced) {
    why_not_ = fmt::format(
        "no step is traced: the rank has {} works and {} waits in a run of its program, and a trace holds {} of each",
        works, waits, codec::kMostTraced);
    return;
  }
  trace_.clock = clock_name();
  trace_.works.reserve(works);
  trace_.waits.reserve(waits);
  trace_.layers.reserve(program.buffers.size() * plan::kLayerTypes);
}

void TraceRecorder::begin(StepIndex step, const Clock& clock) {
  trace_.step = step.value;
  forget_works();
  began_ = clock.now();
  trace_.monotonic_ns = began_.time_since_epoch().count();
  trace_.unix_ns = clock.unix_milliseconds() * 1'000'000;
  recording_ = has_room();
}

void TraceRecorder::forget_works() {
  trace_.works.clear();
  trace_.waits.clear();
  trace_.layers.clear();
}

void TraceRecorder::add_work(const plan::Work& work, TimePoint start, TimePoint end, Duration cpu) {
  PENSTOCK_CHECK_LT(trace_.works.size(), trace_.works.capacity());
  trace_.works.push_back({work, since_begin(start), since_begin(end), cpu.count()});
}

void TraceRecorder::add_wait(const plan::Instruction& wait, TimePoint start, TimePoint end) {
  PENSTOCK_CHECK_LT(trace_.waits.size(), trace_.waits.capacity());
  trace_.waits.push_back(
      {wait.work.stage, wait.flow, wait.work.microbatch, since_begin(start), since_begin(end)});
}

}  // namespace penstock::worker
