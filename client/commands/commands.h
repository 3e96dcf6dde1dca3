// The commands of `penstock`: options in, exit code out. One file each; client/main fills in the options.
//
// Results go to stdout, errors and progress to stderr. Exit codes: 0 done; 1 failed; 2 refused (bad options,
// a job file with problems, a thing that is not built yet). Commands that follow a job exit with its result:
// 0 succeeded, 1 failed, 2 refused, 3 cancelled, 4 no progress; 130 when Ctrl-C ended the following, not the
// job. What cannot be written to stdout ends a command with 1.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace penstock::client {

// Where the coordinator is; "": PENSTOCK_COORDINATOR, else 127.0.0.1:7070.
struct ConnectionOptions {
  std::string coordinator;
};

// What layers cost, for commands that plan before a job runs.
struct CostOptions {
  // A file of layer costs or of their types, or jobs of the service by what they measured: NAME or job:NAME. Empty: the job's
  // emulated costs, else the device's rates.
  std::vector<std::string> profiles;
  std::string device_flops;      // operations a second, as 312T; "": plan/cost/operations.h
  std::string device_bandwidth;  // bytes a second between a device and its memory, as 2TB
};

struct UpOptions {
  std::optional<int> workers;  // default: the ranks of the job to run, else 4; of emulated devices 1
  std::optional<int> threads;
  std::string device;  // cpu | emulated; "": what the job to run asks for, else cpu
  std::string state = ".penstock";
  int coordinator_port = 0;  // 0: a free one
  std::string run;           // job file; "": serve until interrupted
  std::string output = "text";
};
int up(const UpOptions& options);

struct SubmitOptions {
  ConnectionOptions connection;
  std::string file;
  bool follow = false;
  bool dry_run = false;
  CostOptions costs;
};
int submit(const SubmitOptions& options);

struct GetOptions {
  ConnectionOptions connection;
  std::string kind;  // jobs | workers | job | worker
  std::string name;  // "": all of them
  std::string output = "table";
  bool watch = false;
};
int get(const GetOptions& options);

struct DescribeOptions {
  ConnectionOptions connection;
  std::string kind;  // job | worker
  std::string name;
};
int describe(const DescribeOptions& options);

struct JobOptions {
  ConnectionOptions connection;
  std::string name;
};
int watch(const JobOptions& options);
int cancel(const JobOptions& options);
int pause(const JobOptions& options);

struct WorkerOptions {
  ConnectionOptions connection;
  std::string name;
};
int drain(const WorkerOptions& options);
int uncordon(const WorkerOptions& options);

struct ResumeOptions {
  ConnectionOptions connection;
  std::string name;
  std::string file;   // to go on with; "": as it was
  CostOptions costs;  // of what the file leaves to auto and the job was not planned for
};
int resume(const ResumeOptions& options);

struct LogsOptions {
  ConnectionOptions connection;
  std::string name;
  int rank = -1;  // -1: all
  bool follow = false;
};
int logs(const LogsOptions& options);

struct TraceOptions {
  ConnectionOptions connection;
  std::string name;
  std::optional<int64_t> step;  // default: the newest one that is traced
  std::string output;           // "": a table; json; else a file for ui.perfetto.dev, beside the table
};
int trace(const TraceOptions& options);

struct CurvesOptions {
  ConnectionOptions connection;
  std::string name;
  std::string output = "text";  // text | json | svg
};
int curves(const CurvesOptions& options);

struct RebalanceOptions {
  ConnectionOptions connection;
  std::string name;
  bool apply = false;
  int wait_seconds = 600;       // for the next checkpoint
  std::string output = "text";  // text | json | job: the whole job file with the split
};
// With `apply` exit code 5 where the job stays as it is: nothing better is known, or it has ended. 1, and nothing is done, where a
// person has paused it.
int rebalance(const RebalanceOptions& options);

struct ScheduleOptions {
  std::string name;
  std::optional<int> pipeline;
  std::optional<int> microbatches;
  int stages_per_rank = 0;   // 0: the family's own
  int updates = 1;           // optimizer steps in the program
  std::string extra_warmup;  // of 1f1b-v: forwards by rank, or one for all

  std::string costs = "1,1,1";  // F,I,W[,PAIR]
  std::string stage_costs;      // a file of them, in place of costs
  std::string latency = "0";
  std::string bandwidth;      // bytes a unit of time
  std::string message_bytes;  // of a tensor between stages
  std::string contention;     // a slow-down such as 1.1, or thread blocks such as 4/132
  bool one_sided = false;
  std::string timeline = "earliest";

  std::string memory_limit;  // of searched schedules: forwards by rank, or one for all; "": none
  std::string memory_deltas = "1,0,-1";
  double search_seconds = 2;
  int64_t search_evaluations = 0;  // 0: as many as the time allows
  uint64_t seed = 1;

  std::string bytes_per_activation;
  std::string static_bytes;
  std::string memory_budget;

  std::string output = "text";
};
int schedule(const ScheduleOptions& options);
std::vector<std::string> known_schedules();  // names that this version builds

struct LayoutOptions {
  std::string layout;           // a Megatron string, a JSON list, a file of one, or a job file
  std::optional<int> pipeline;  // default: the job file's, else one stage a rank
  std::optional<int> num_layers;
  std::optional<int> mtp_num_layers;
  std::string output = "text";  // text | json | megatron | torchtitan | split
};
int layout(const LayoutOptions& options);

struct PartitionOptions {
  std::string file;
  int pipeline = 1;
  int stages_per_rank = 1;
  std::string placement;  // loop | v; "": the schedule's
  std::optional<int> microbatches;
  std::string schedule;  // whose in-flight counts hold; "": 1f1b, or its sibling for more stages a rank
  std::string memory_budget;
  std::vector<int> current;  // boundaries, for the tie-break
  bool allow_empty = false;
  std::string output = "text";
};
// Exit code 1: nothing fits into the budget; says the smallest that works.
int partition(const PartitionOptions& options);

// The shape of a job without a file of its own: a Hugging Face config, and what it does not say.
struct ModelShapeOptions {
  std::string config;  // "": there is a job file
  int pipeline = 0;
  int expert = 1;
  int data = 1;
  int64_t global_batch_size = 0;
  std::string microbatch_size = "1";  // or auto
  int64_t sequence_length = 0;
  std::string dtype = "bfloat16";
  // Those of the above that were given: "--pipeline", with their field in a job file.
  std::vector<std::pair<std::string, std::string>> given{};
};

struct PlanOptions {
  ConnectionOptions connection;
  std::string file;  // job file; "": shape
  ModelShapeOptions shape;
  CostOptions costs;
  std::string memory_budget;         // "": the job's
  std::optional<double> latency_ms;  // of a message; none: what the costs say
  double search_seconds = 0;         // of zb-auto and v-auto together; 0: without them
  std::string output = "table";
};
// Exit code 1: no plan fits into the budget; says the smallest that works.
int plan_job(const PlanOptions& options);

struct FitOptions {
  std::string file;
  std::string output = "text";
};
int fit(const FitOptions& options);

struct DiagnoseOptions {
  ConnectionOptions connection;
  std::string job;
  std::string trace;
  std::string output = "text";
};
int diagnose(const DiagnoseOptions& options);

struct VerifyOptions {
  std::string file;
  std::string format = "auto";
  std::string output = "text";
};
int verify(const VerifyOptions& options);

// A checkpoint: a Hugging Face folder, as a job that has succeeded leaves one. JOB|DIR names either.
struct CheckpointOptions {
  ConnectionOptions connection;
  std::string source;  // JOB|DIR
  std::string output = "text";
};
// Every tensor once, shapes, sizes, finite values; prints the digest of the weights. Exit code 1: invalid.
int checkpoint_verify(const CheckpointOptions& options);

struct CheckpointImportOptions {
  ConnectionOptions connection;
  std::string source;  // JOB|DIR
  std::string target;  // new or empty folder; "": nothing is written
  std::string output = "text";
};
// Checks names and shapes and prints the job file's section that starts from it: with its weights alone, or from the
// checkpoint that it makes of it, of step 0, or with all that the source has where it is one.
int checkpoint_import(const CheckpointImportOptions& options);

struct CheckpointExportOptions {
  ConnectionOptions connection;
  std::string source;             // JOB|DIR
  std::string target;             // new or empty folder
  std::string dtype = "float32";  // float32 | bfloat16
  int64_t shard_bytes = 5'000'000'000;
  bool optimizer = false;  // its state too: a whole checkpoint
  std::string output = "text";
};
int checkpoint_export(const CheckpointExportOptions& options);

struct CheckpointListOptions {
  ConnectionOptions connection;
  std::string output = "text";
};
int checkpoint_list(const CheckpointListOptions& options);

// Files of tokens: what they hold, every token checked. Exit code 1: a file is damaged or holds a token that it may
// not hold.
struct DataInspectOptions {
  std::vector<std::string> files;
  std::optional<int64_t> vocabulary;
  int64_t sequence_length = 0;  // 0: samples are not counted
  std::optional<int32_t> end_of_document;
  std::string format = "auto";
  std::string token_type = "uint16";  // of .bin files without an index
  std::string output = "text";
};
int data_inspect(const DataInspectOptions& options);
// Becomes the program penstock-prepare; returns only when that cannot be started.
int data_prepare(const std::vector<std::string>& arguments);

}  // namespace penstock::client
