// The messages of the wire as plain values, for rooms that must not see generated code (coordinator core,
// executor). Fields mean what the .proto of the same name says. codec.h turns them into bytes and back.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "plan/schedule/lowered.h"
#include "plan/spec/job_spec.h"
#include "plan/spec/layer_type.h"

namespace penstock {

struct AttemptKey {
  std::string job;
  int64_t attempt = 0;
  int64_t incarnation = 0;
  auto operator<=>(const AttemptKey&) const = default;
};

struct CommunicatorKey {
  AttemptKey attempt;
  std::string communicator;
  RankIndex rank;
  std::string item;
  auto operator<=>(const CommunicatorKey&) const = default;
};

struct StageTimes {
  StageIndex stage;
  double forward_seconds = 0;
  double backward_seconds = 0;
  double input_gradient_seconds = 0;
  double weight_gradient_seconds = 0;
  int activation_slots = 0;
  int activation_slots_peak = 0;
};

struct MemoryKind {
  std::string kind;
  int64_t bytes_peak = 0;
};

// Slots for rows of one block's experts that its backward still needs, by what they hold.
struct PayloadSlots {
  StageIndex stage;
  LayerIndex layer;
  std::string kind;  // "inputs" | "output_gradients"
  int slots = 0;
  int held = 0;                     // at the end of the step
  int held_peak = 0;                // since the first step
  double oldest_lease_seconds = 0;  // the longest that any lease of the step was held
};

// Rows that came to the rank's experts of one block in the step.
struct ExpertRows {
  StageIndex stage;
  LayerIndex layer;
  int first_expert = 0;
  std::vector<int64_t> rows;  // by expert, from there on
  int64_t dropped = 0;        // choices of its own tokens that found their expert full
};

struct StepReport {
  AttemptKey attempt;
  RankIndex rank;
  int64_t step = 0;
  std::optional<double> loss;
  std::optional<double> validation_loss{};
  double wall_seconds = 0;
  double cpu_seconds = 0;
  double wait_seconds = 0;
  double optimizer_seconds = 0;  // norms and update, without the waits in between
  std::vector<StageTimes> stages;
  std::vector<MemoryKind> memory;
  double gradient_norm = 0;
  std::vector<PayloadSlots> payloads{};
  std::vector<ExpertRows> expert_rows{};
};

// One work of a traced step; times since the trace began.
struct TracedWork {
  plan::Work work;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int64_t cpu_ns = 0;
};

// A wait for a tensor of another rank, right before the work of `stage` that needs it.
struct TracedWait {
  StageIndex stage;
  plan::Flow flow = plan::Flow::Activation;
  MicrobatchIndex microbatch;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

// What a layer of a type took in a traced step: the mean over the stage's layers of that type and its microbatches.
struct TracedLayer {
  StageIndex stage;
  plan::LayerType type = plan::LayerType::Block;
  int64_t forward_ns = 0;
  int64_t backward_ns = 0;  // both halves of a split one
};

struct StepTrace {
  AttemptKey attempt;
  RankIndex rank;
  int64_t step = 0;
  std::string clock;         // whose monotonic time it is: ranks with the same one share it
  int64_t monotonic_ns = 0;  // when the trace began
  int64_t unix_ns = 0;       // the same moment on the host's wall clock
  std::vector<TracedWork> works;
  std::vector<TracedWait> waits;
  std::vector<TracedLayer> layers{};  // by stage and type, each once
};

struct RankReady {
  AttemptKey attempt;
  RankIndex rank;
  int64_t executor_pid = 0;
  std::string fingerprint;
};

struct ParameterDigest {
  int32_t parameter = 0;
  std::array<uint8_t, 16> digest{};
};

struct RankFinished {
  AttemptKey attempt;
  RankIndex rank;
  std::vector<ParameterDigest> digests;
};

// A rank has written its part of a checkpoint, or could not.
struct CheckpointWritten {
  AttemptKey attempt;
  RankIndex rank;
  int64_t step = 0;     // steps done
  std::string problem;  // "": written, and durable
};

struct RankFailed {
  AttemptKey attempt;
  RankIndex rank;
  int64_t step = -1;
  std::string reason;
  int exit_code = 0;
  int signal = 0;
};

struct LogBatch {
  AttemptKey attempt;
  RankIndex rank;
  std::vector<std::string> lines;
  int64_t dropped = 0;
};

struct DeviceSlot {
  std::string kind;
  int index = 0;
  std::string fingerprint;
};

struct Registration {
  std::string principal;
  std::string worker;
  std::string host_id;
  std::vector<DeviceSlot> devices;
  int64_t incarnation = 0;
  int64_t pid = 0;
  std::string metrics_address;
  std::string data_address;
};

// Where the final weights of a job, or its checkpoints, go. "": nowhere.
struct WeightsPlace {
  std::string directory;
  std::string marker;
};

struct Assignment {
  AttemptKey attempt;
  RankIndex rank;  // in the job; program.rank is the one in its pipeline (plan/spec/rank_place.h)
  int device = 0;
  std::string spec_yaml;
  plan::Split split;
  plan::RankProgram program;
  std::optional<plan::RankProgram> validation{};  // forward-only
  int64_t first_step = 0;
  std::vector<std::string> rank_hosts;
  WeightsPlace weights{};
  WeightsPlace checkpoints{};
  std::string load_from{};  // checkpoint that the rank starts from; "": none
};

struct ExecutorAssignment {
  Assignment assignment;
  std::string bind_address;
  std::string worker;
  int threads = 1;
};

}  // namespace penstock
