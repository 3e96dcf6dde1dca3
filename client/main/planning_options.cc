#include "client/main/planning_options.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "client/commands/commands.h"
#include "client/main/connection_option.h"
#include "client/main/help.h"

namespace penstock::client {
namespace {

void declare_output(CLI::App& command, std::string& output) {
  command.add_option("-o,--output", output, "Format")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
}

void declare_partition(CLI::App& command, PartitionOptions& options) {
  command.add_option("file", options.file, "Costs of the layers")->required()->type_name("COSTS.json");
  command.add_option("-p,--pipeline", options.pipeline, "Ranks")->required()->check(CLI::Range(1, 4096));
  command.add_option("-s,--stages-per-rank", options.stages_per_rank, "Stages on a rank")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command
      .add_option("--placement", options.placement,
                  "Where stages stand: loop: s on rank s mod P; v: there and back (default: the schedule's)")
      ->check(CLI::IsMember({"loop", "v"}));
  command
      .add_option("-m,--microbatches", options.microbatches,
                  "Microbatches of an optimizer step (default: as many as fill the pipeline)")
      ->check(CLI::Range(1, 65536));
  command
      .add_option(
          "--schedule", options.schedule,
          "Whose in-flight counts hold (default: 1f1b; with more stages a rank interleaved-1f1b, or 1f1b-v)")
      ->type_name("NAME");
  command
      .add_option("--memory-budget", options.memory_budget,
                  "Bytes that a rank may hold, as 80GB, or a list by rank, as 80GB,40GB")
      ->type_name("LIST");
  command
      .add_option("--current", options.current,
                  "Boundaries of the split that runs: of equal ones, the one that moves least is taken")
      ->delimiter(',')
      ->type_name("LIST");
  command.add_flag("--allow-empty", options.allow_empty, "Stages may be empty, as in Megatron's layouts");
  declare_output(command, options.output);
}

// Notes that the option was given, of which a job file's `field` would be another word.
CLI::Option* noted(CLI::Option* option, ModelShapeOptions& shape, const char* field) {
  const std::string name = option->get_name();
  option->each([&shape, name, field](const std::string&) { shape.given.push_back({name, field}); });
  return option;
}

void declare_shape(CLI::App& command, ModelShapeOptions& shape) {
  command
      .add_option("--from-config", shape.config,
                  "In place of a job file: a Hugging Face config, or its folder")
      ->type_name("config.json")
      ->excludes("file");
  const auto add = [&](const char* name, auto& value, const char* text, const char* field) {
    return noted(command.add_option(name, value, text), shape, field);
  };
  add("-p,--pipeline", shape.pipeline, "With --from-config: ranks of a pipeline", "parallel.pipeline")
      ->check(CLI::Range(1, 4096));
  add("--expert", shape.expert, "With --from-config: ranks that share out the experts", "parallel.expert")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  add("--data", shape.data, "With --from-config: how often each expert is there", "parallel.data")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  add("--global-batch-size", shape.global_batch_size, "With --from-config: sequences of a step",
      "train.global_batch_size")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  add("--microbatch-size", shape.microbatch_size, "With --from-config: sequences of a microbatch, or auto",
      "train.microbatch_size")
      ->check(
          [](const std::string& word) {
            std::string number = word;
            return word == "auto" ? "" : CLI::Range(int64_t{1}, int64_t{1} << 20)(number);
          },
          "INT|auto")
      ->capture_default_str();
  add("--sequence-length", shape.sequence_length, "With --from-config: tokens of a sequence",
      "data.sequence_length")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  add("--dtype", shape.dtype, "With --from-config: of activations", "train.dtype")
      ->check(CLI::IsMember({"float32", "bfloat16"}))
      ->capture_default_str();
}

void declare_plan(CLI::App& command, PlanOptions& options) {
  command.add_option("file", options.file, "Job file (YAML)")->type_name("JOB.yaml");
  declare_shape(command, options.shape);
  add_costs(command, options.costs);
  command
      .add_option("--memory-budget", options.memory_budget,
                  "Bytes that a rank may hold, as 80GB, or a list by rank, as 80GB,40GB (default: the job's)")
      ->type_name("LIST");
  command
      .add_option("--latency-ms", options.latency_ms,
                  "Of every transfer between ranks (default: what the costs say)")
      ->check(CLI::Range(0.0, 1000.0));
  command
      .add_option("--search-seconds", options.search_seconds,
                  "Search for zb-auto and v-auto too, for so long together")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  command.add_option("-o,--output", options.output, "Format")
      ->check(CLI::IsMember({"table", "json", "job", "megatron-layout", "torchtitan"}))
      ->capture_default_str();
  add_connection(command, options.connection);
}

void declare_fit(CLI::App& command, FitOptions& options) {
  command.add_option("file", options.file, "What stages took")->required()->type_name("MEASURED.json");
  declare_output(command, options.output);
}

void declare_diagnose(CLI::App& command, DiagnoseOptions& options) {
  command.add_option("job", options.job, "A job of the service, by what its ranks measured")
      ->type_name("JOB");
  command.add_option("--trace", options.trace, "A file of times by stage, replica and microbatch")
      ->type_name("FILE");
  declare_output(command, options.output);
  add_connection(command, options.connection);
}

void declare_curves(CLI::App& command, CurvesOptions& options) {
  command.add_option("job", options.name, "Name of the job")->required()->type_name("JOB");
  command.add_option("-o,--output", options.output, "Format")
      ->check(CLI::IsMember({"text", "json", "svg"}))
      ->capture_default_str();
  add_connection(command, options.connection);
}

void declare_rebalance(CLI::App& command, RebalanceOptions& options) {
  command.add_option("job", options.name, "Name of the job")->required()->type_name("JOB");
  command.add_flag("--apply", options.apply, "Pause the job at its next checkpoint and go on with the split");
  command.add_option("--wait-seconds", options.wait_seconds, "How long to wait for that checkpoint")
      ->check(CLI::Range(1, 86'400))
      ->capture_default_str();
  command.add_option("-o,--output", options.output, "Format; job: the whole job file with the split")
      ->check(CLI::IsMember({"text", "json", "job"}))
      ->capture_default_str();
  add_connection(command, options.connection);
}

template <typename Options>
void add(CLI::App& app, const Help& help, int& result, int (*run)(const Options&),
         void (*declare)(CLI::App&, Options&)) {
  CLI::App* command = app.add_subcommand(help.name, help.summary);
  command->footer(help.examples);
  const auto options = std::make_shared<Options>();
  declare(*command, *options);
  command->callback([options, run, &result] { result = run(*options); });
}

}  // namespace

void add_costs(CLI::App& command, CostOptions& options) {
  command
      .add_option(
          "--profile", options.profiles,
          "What layers cost: a file, or a job of the service that was measured; several jobs of two sizes of "
          "microbatch give costs of any size")
      ->type_name("JOB|FILE")
      ->allow_extra_args(false);
  command
      .add_option("--device-flops", options.device_flops,
                  "Without a profile: operations a second, as 312T (default: 100G, a core)")
      ->type_name("RATE");
  command
      .add_option("--device-bandwidth", options.device_bandwidth,
                  "Without a profile: bytes a second between a device and its memory, as 2T (default: 20G)")
      ->type_name("RATE");
}

void add_planning(CLI::App& app, int& result) {
  add<PartitionOptions>(app, help_of_partition(), result, partition, declare_partition);
  add<PlanOptions>(app, help_of_plan(), result, plan_job, declare_plan);
  add<FitOptions>(app, help_of_fit(), result, fit, declare_fit);
  add<CurvesOptions>(app, help_of_curves(), result, curves, declare_curves);
  add<RebalanceOptions>(app, help_of_rebalance(), result, rebalance, declare_rebalance);
  add<DiagnoseOptions>(app, help_of_diagnose(), result, diagnose, declare_diagnose);
}

}  // namespace penstock::client
