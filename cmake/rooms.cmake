# The rooms of the house and who may include whom. Adding an arrow is a design decision: say why in the commit.
set(status_libraries absl::status absl::statusor fmt::fmt)

penstock_room(base LIBRARIES ${status_libraries} spdlog::spdlog)
penstock_room(base/json USES base LIBRARIES nlohmann_json::nlohmann_json)
penstock_room(base/digest USES base LIBRARIES penstock_xxhash)
penstock_room(base/safetensors USES base base/json)
penstock_room(base/checkpoint USES base base/digest base/json base/safetensors LIBRARIES nlohmann_json::nlohmann_json)
penstock_room(base/token_files USES base)
penstock_room(base/tokenizer USES base LIBRARIES penstock_sentencepiece)
penstock_room(base/metrics USES base LIBRARIES prometheus-cpp::core civetweb::civetweb-cpp)

# plan: pure domain. No threads, sockets, clock or CUDA.
penstock_room(plan/spec USES base base/digest plan/schedule LIBRARIES yaml-cpp)
penstock_room(plan/schedule USES base)
penstock_room(plan/verification USES base plan/schedule)
penstock_room(plan/simulation USES base plan/schedule TEST_USES plan/verification)
penstock_room(plan/measurement USES base plan/schedule plan/simulation)
penstock_room(plan/generation USES base plan/schedule plan/simulation TEST_USES plan/verification)
penstock_room(plan/cost USES base plan/spec plan/schedule)
penstock_room(plan/partition USES base)
penstock_room(plan/calibration USES base TEST_USES plan/schedule plan/simulation)
penstock_room(plan/diagnosis USES base TEST_USES plan/partition plan/calibration)
penstock_room(plan/planning USES base plan/schedule plan/simulation plan/generation plan/partition)
penstock_room(plan/interop USES base base/json plan/spec plan/schedule plan/verification plan/simulation plan/cost plan/generation
  plan/partition plan/calibration plan/diagnosis plan/planning
  LIBRARIES nlohmann_json::nlohmann_json)
# interop: the bytes of a job's layers; cost: whether its ranks have memory for them.
penstock_room(plan/rebalancing USES base plan/spec plan/cost plan/calibration plan/diagnosis plan/planning plan/interop
  TEST_USES plan/simulation)
# What is known of a job before it runs, and what it may choose then: costs by any source, plans, the job file's `auto`.
penstock_room(plan/forecast USES base plan/spec plan/schedule plan/simulation plan/cost plan/partition plan/calibration plan/planning
  plan/interop plan/rebalancing)
penstock_room(plan/render USES base plan/schedule plan/simulation TEST_LIBRARIES nlohmann_json::nlohmann_json)

penstock_room(proto/codec USES base plan/spec plan/schedule proto)

penstock_room(kernels/device USES base LIBRARIES OpenMP::OpenMP_CXX)
penstock_room(kernels/tensor USES base)
penstock_room(kernels/ops USES base kernels/device kernels/tensor LIBRARIES penstock_dnnl)

# worker: of plan it sees spec, schedule, verification and cost only.
penstock_room(worker/transport USES base)
penstock_room(worker/transport/gloo USES base worker/transport LIBRARIES gloo)
# kernels/device: what the host has left, before shared memory is taken.
penstock_room(worker/transport/shared_memory USES base kernels/device worker/transport)
# What ranks of a group do together over messages: rows to the ranks of their experts, sums in the order of ranks.
penstock_room(worker/collectives USES base kernels/device kernels/tensor kernels/ops worker/transport)
penstock_room(worker/buffers USES base kernels/device)
penstock_room(worker/data USES base base/token_files plan/spec LIBRARIES penstock_xxhash)
penstock_room(worker/model USES base plan/spec plan/schedule kernels/device kernels/tensor kernels/ops worker/transport worker/collectives
  worker/buffers worker/data LIBRARIES penstock_xxhash TEST_USES plan/cost plan/schedule)
penstock_room(worker/optimizer USES base plan/spec kernels/device kernels/tensor kernels/ops worker/model)
penstock_room(worker/checkpoint USES base base/checkpoint base/safetensors plan/spec proto/codec kernels/device
  kernels/tensor worker/model TEST_USES kernels/ops worker/data)
penstock_room(worker/telemetry USES base plan/spec plan/schedule proto/codec)
# What stands in the place of a device that computes; executor puts it under the same session.
penstock_room(worker/emulation USES base plan/spec plan/schedule worker/transport worker/model)
penstock_room(worker/executor USES base plan/spec plan/schedule plan/verification plan/cost proto/codec
  kernels/device kernels/tensor kernels/ops
  worker/transport worker/transport/gloo worker/transport/shared_memory worker/collectives worker/buffers worker/data worker/model worker/optimizer worker/checkpoint
  worker/telemetry worker/emulation TEST_USES plan/simulation base/checkpoint base/safetensors)
penstock_room(worker/agent USES base base/metrics proto proto/codec
  LIBRARIES gRPC::grpc++ gRPC::grpc++_reflection)
penstock_program(penstock-worker worker/main USES base base/metrics plan/spec proto/codec worker/agent worker/executor
  LIBRARIES CLI11::CLI11)

# coordinator: one pure core, a controller around it.
penstock_room(coordinator/core USES base plan/spec plan/schedule plan/verification plan/cost proto/codec)
penstock_room(coordinator/store USES base coordinator/core LIBRARIES SQLite::SQLite3)
penstock_room(coordinator/telemetry USES base base/metrics coordinator/core)
penstock_room(coordinator/weights USES base base/checkpoint base/digest base/safetensors plan/spec plan/interop proto/codec)
penstock_room(coordinator/rebalancing USES base plan/spec plan/diagnosis plan/rebalancing coordinator/core
  TEST_USES plan/schedule plan/simulation)
penstock_room(coordinator/controller USES base coordinator/core coordinator/rebalancing coordinator/store coordinator/telemetry
  coordinator/weights
  proto/codec TEST_USES base/checkpoint base/safetensors plan/spec)
penstock_room(coordinator/rpc USES base base/metrics proto proto/codec coordinator/core coordinator/controller
  LIBRARIES gRPC::grpc++ gRPC::grpc++_reflection nlohmann_json::nlohmann_json)
penstock_program(penstock-coordinator coordinator/main USES base base/metrics coordinator/core coordinator/store
  coordinator/telemetry coordinator/controller coordinator/rpc LIBRARIES CLI11::CLI11 nlohmann_json::nlohmann_json)

# client: what is said (pure), the connection to the service, the processes of `up`, one file a command, and the
# command line, which is the only place that includes CLI11.
# interop: a diagnosis as JSON. proto/codec: how much a trace holds.
penstock_room(client/present USES base plan/spec plan/schedule plan/simulation plan/measurement plan/diagnosis plan/rebalancing
  plan/interop plan/render proto proto/codec LIBRARIES nlohmann_json::nlohmann_json)

penstock_room(client/connection USES base client/present proto LIBRARIES gRPC::grpc++)
penstock_room(client/local_service USES base LIBRARIES nlohmann_json::nlohmann_json)
penstock_room(client/commands USES base base/checkpoint base/token_files base/safetensors plan/spec plan/schedule plan/verification plan/simulation plan/generation
  plan/cost plan/partition plan/calibration plan/diagnosis plan/measurement plan/planning plan/rebalancing plan/forecast plan/interop plan/render proto client/present client/connection client/local_service LIBRARIES nlohmann_json::nlohmann_json)
# How `--help` is laid out.
penstock_room(client/help_format USES base LIBRARIES CLI11::CLI11)
penstock_program(penstock client/main USES base client/commands client/help_format LIBRARIES CLI11::CLI11 TEST_LIBRARIES
  nlohmann_json::nlohmann_json)

# `penstock data prepare` is a program of its own: SentencePiece and our protocol do not go into one process.
penstock_room(client/prepare USES base base/token_files base/tokenizer)
penstock_program(penstock-prepare client/prepare/main USES base base/token_files client/prepare
  LIBRARIES CLI11::CLI11 nlohmann_json::nlohmann_json)

# tests/fuzz: inputs that nobody meant to write, through every reader of outside input; runs under the sanitizers.
penstock_room(tests/fuzz USES base base/digest base/checkpoint base/token_files base/safetensors plan/spec plan/schedule plan/verification plan/partition
  plan/calibration plan/diagnosis plan/interop proto/codec)
# tests/hugging_face: folders that transformers wrote, from their config.json to the logits.
penstock_room(tests/hugging_face USES base base/safetensors plan/spec plan/interop kernels/device kernels/tensor kernels/ops
  worker/data worker/model worker/checkpoint)
# tests/programs: the verifier and the lowering against a separate checker, on damaged programs of all families.
penstock_room(tests/programs USES base plan/schedule plan/verification plan/simulation)
# tests/speed: benchmarks of several rooms together.
penstock_room(tests/speed USES base plan/schedule plan/verification plan/simulation)
# tests/perf: programs that print the numbers of tests/perf/run.
penstock_room(tests/perf/job USES base plan/spec plan/schedule proto/codec)
penstock_room(tests/perf/measure USES base kernels/device kernels/tensor LIBRARIES penstock_dnnl)
penstock_program(penstock-perf-experts tests/perf/experts USES base kernels/device kernels/tensor kernels/ops tests/perf/measure
  LIBRARIES CLI11::CLI11 nlohmann_json::nlohmann_json)
penstock_program(penstock-perf-pipeline tests/perf/pipeline USES base plan/schedule plan/simulation proto/codec
  plan/spec worker/transport worker/transport/gloo worker/transport/shared_memory worker/executor tests/perf/job tests/perf/measure LIBRARIES CLI11::CLI11 nlohmann_json::nlohmann_json)
penstock_program(penstock-perf-checkpoint tests/perf/checkpoint USES base proto/codec worker/transport worker/executor
  tests/perf/job tests/perf/measure LIBRARIES CLI11::CLI11 nlohmann_json::nlohmann_json)
penstock_program(penstock-perf-planner tests/perf/planner USES base plan/partition plan/planning tests/perf/measure
  LIBRARIES CLI11::CLI11 nlohmann_json::nlohmann_json)
penstock_program(penstock-perf-schedule tests/perf/schedule USES base plan/schedule plan/verification plan/simulation
  LIBRARIES CLI11::CLI11 nlohmann_json::nlohmann_json)
penstock_program(penstock-perf-step tests/perf/step USES base proto/codec kernels/device kernels/tensor worker/transport
  worker/executor tests/perf/job tests/perf/measure LIBRARIES CLI11::CLI11 nlohmann_json::nlohmann_json)
penstock_room(tests/architecture USES base LIBRARIES nlohmann_json::nlohmann_json)
