#include "client/main/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "client/commands/commands.h"
#include "client/commands/terminal.h"
#include "client/main/connection_option.h"
#include "client/main/data_options.h"
#include "client/main/help.h"
#include "client/help_format/help_format.h"
#include "client/main/planning_options.h"

namespace penstock::client {
namespace {

constexpr int kExitUnwritten = 1;  // what was printed has not arrived
constexpr int kExitUsage = 2;

// A command's options live as long as the parser that fills them in; its result is read once it has run.
using Result = int;

template <typename Options>
CLI::App* add_command(CLI::App& app, const Help& help, Result& result, int (*run)(const Options&),
                      const std::function<void(CLI::App&, Options&)>& declare) {
  CLI::App* command = app.add_subcommand(help.name, help.summary);
  command->footer(help.examples);
  const auto options = std::make_shared<Options>();
  declare(*command, *options);
  command->callback([options, run, &result] { result = run(*options); });
  return command;
}

// A value that is offered. One that a later piece brings is known too, so that the command refuses it by name.
CLI::Validator one_of(const std::vector<std::string>& offered, const std::vector<std::string>& later = {}) {
  const auto holds = [](const std::vector<std::string>& words, const std::string& word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  const std::string choice = "{" + join(offered, ",") + "}";
  return CLI::Validator(
      [=](std::string& word) {
        return holds(offered, word) || holds(later, word) ? "" : fmt::format("{} not in {}", word, choice);
      },
      choice);
}

void declare_up(CLI::App& command, UpOptions& options) {
  command
      .add_option("--workers", options.workers,
                  "Worker daemons (default: the ranks of the job to run, else 4; of emulated devices 1)")
      ->check(CLI::Range(1, 1024));
  command.add_option("--threads", options.threads, "Compute threads of a worker, where the job does not say")
      ->check(CLI::Range(1, 1024));
  command
      .add_option("--device", options.device,
                  "What the ranks run on (default: as the job to run says, else cpu; later: cuda)")
      ->check(one_of({"cpu", "emulated"}, {"cuda"}));
  command.add_option("--state", options.state, "Folder of the service's state and logs")
      ->type_name("DIR")
      ->capture_default_str();
  command
      .add_option("--coordinator-port", options.coordinator_port,
                  "Port of the coordinator (default: a free one)")
      ->check(CLI::Range(0, 65535));
  command
      .add_option("--run", options.run,
                  "Submit this job file, follow it, stop everything, exit with its result")
      ->type_name("FILE");
  command.add_option("-o,--output", options.output, "text, or json: one line last on stdout")
      ->check(one_of({"text", "json"}))
      ->capture_default_str();
}

void declare_submit(CLI::App& command, SubmitOptions& options) {
  command.add_option("file", options.file, "Job file (YAML)")->required()->type_name("FILE");
  command.add_flag("--follow", options.follow, "Show progress until the job has ended; exit with its result");
  command.add_flag("--dry-run", options.dry_run, "Check only; queue nothing");
  add_costs(command, options.costs);
  add_connection(command, options.connection);
}

void declare_get(CLI::App& command, GetOptions& options) {
  command.add_option("kind", options.kind, "jobs, workers, job NAME or worker NAME")
      ->required()
      ->check(one_of({"jobs", "workers", "job", "worker"}));
  command.add_option("name", options.name, "Only this one")->type_name("NAME");
  command.add_option("-o,--output", options.output, "Format")
      ->check(one_of({"table", "wide", "json", "yaml", "name"}))
      ->capture_default_str();
  command.add_flag("-w,--watch", options.watch, "Go on, and print what changes");
  add_connection(command, options.connection);
}

void declare_describe(CLI::App& command, DescribeOptions& options) {
  command.add_option("kind", options.kind, "job or worker")->required()->check(one_of({"job", "worker"}));
  command.add_option("name", options.name, "Its name")->required()->type_name("NAME");
  add_connection(command, options.connection);
}

void declare_job(CLI::App& command, JobOptions& options) {
  command.add_option("job", options.name, "Name of the job")->required()->type_name("JOB");
  add_connection(command, options.connection);
}

void declare_worker(CLI::App& command, WorkerOptions& options) {
  command.add_option("worker", options.name, "Name of the worker")->required()->type_name("WORKER");
  add_connection(command, options.connection);
}

void declare_resume(CLI::App& command, ResumeOptions& options) {
  command.add_option("job", options.name, "Name of the job")->required()->type_name("JOB");
  command
      .add_option("--with", options.file,
                  "Go on with this job file: another split, schedule or number of ranks")
      ->type_name("FILE");
  add_costs(command, options.costs);
  add_connection(command, options.connection);
}

void declare_logs(CLI::App& command, LogsOptions& options) {
  command.add_option("job", options.name, "Name of the job")->required()->type_name("JOB");
  command.add_option("--rank", options.rank, "Only this rank")->check(CLI::Range(0, 65535));
  command.add_flag("-f,--follow", options.follow, "Go on until the job has ended");
  add_connection(command, options.connection);
}

void declare_trace(CLI::App& command, TraceOptions& options) {
  command.add_option("job", options.name, "Name of the job")->required()->type_name("JOB");
  command.add_option("--step", options.step, "The step (default: the newest one that is traced)")
      ->check(CLI::NonNegativeNumber);
  command
      .add_option("-o,--output", options.output, "json, or a file to write the trace to (Perfetto's JSON)")
      ->type_name("json|FILE");
  add_connection(command, options.connection);
}

void declare_shape(CLI::App& command, ScheduleOptions& options) {
  command.add_option("name", options.name, "Schedule: " + schedule_names_text() + ", or file:PATH")
      ->type_name("NAME")
      ->required();
  command.add_option("-p,--pipeline", options.pipeline, "Ranks");
  command.add_option("-m,--microbatches", options.microbatches, "Microbatches of an optimizer step");
  command.add_option("-s,--stages-per-rank", options.stages_per_rank,
                     "Stages on a rank (default: the family's own)");
  command.add_option("--updates", options.updates, "Optimizer steps in the program")->capture_default_str();
  command
      .add_option("--extra-warmup,--extra-warm-up-forwards", options.extra_warmup,
                  "1f1b-v: forwards held above its peak, one number or one a rank")
      ->type_name("LIST");
}

void declare_costs(CLI::App& command, ScheduleOptions& options) {
  command
      .add_option(
          "--costs", options.costs,
          "F,I,W[,PAIR]: time of a forward, input gradient, weight gradient, overlapped pair (default F+I+W)")
      ->type_name("LIST")
      ->capture_default_str();
  command
      .add_option("--stage-costs", options.stage_costs,
                  "Costs of each stage, in place of --costs (JSON): "
                  "[{\"forward\": F, \"input_gradient\": I, \"weight_gradient\": W}, ...]")
      ->type_name("FILE")
      ->excludes("--costs");
  command.add_option("--latency", options.latency, "Added to every transfer between ranks")
      ->type_name("TIME")
      ->capture_default_str();
  command.add_option("--bandwidth", options.bandwidth, "Bytes that a link passes in a unit of time, as 50GB")
      ->type_name("BYTES");
  command.add_option("--message-bytes", options.message_bytes, "Bytes of a tensor between stages")
      ->type_name("BYTES");
  command
      .add_option(
          "--contention,--slowdown", options.contention,
          "What a posted two-sided receive does to the compute beside it until its match: a slow-down as 1.1, "
          "or the thread blocks that it holds, as 4/132")
      ->type_name("X");
  command.add_flag("--one-sided", options.one_sided, "One-sided transfers: nothing waits beside the compute");
  command.add_option("--timeline", options.timeline, "When actions start")
      ->check(one_of({"earliest", "aligned"}))
      ->capture_default_str();
}

void declare_search(CLI::App& command, ScheduleOptions& options) {
  command
      .add_option("--memory-limit", options.memory_limit,
                  "zb-auto, v-auto: what a rank may hold, in forwards of one stage; one number or one a rank "
                  "(default: no limit)")
      ->type_name("LIST");
  command
      .add_option("--memory-deltas", options.memory_deltas,
                  "zb-auto, v-auto: what F, I and W add to it; the zero-bubble papers have 1,-0.5,-0.5")
      ->type_name("LIST")
      ->capture_default_str();
  command
      .add_option("--search-seconds,--time-limit", options.search_seconds,
                  "zb-auto, v-auto: how long to look for better ones")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  command
      .add_option(
          "--search-evaluations", options.search_evaluations,
          "zb-auto, v-auto: how many to look at, for results that repeat (0: as many as the time allows)")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000'000}))
      ->capture_default_str();
  command.add_option("--seed", options.seed, "zb-auto, v-auto: of the search")->capture_default_str();
}

void declare_memory(CLI::App& command, ScheduleOptions& options) {
  command
      .add_option(
          "--bytes-per-activation", options.bytes_per_activation,
          "Bytes that a forward of one stage keeps, as 10GB: adds the peak bytes of every rank. This and the "
          "next two: one number, or one a rank")
      ->type_name("LIST");
  command.add_option("--static-bytes", options.static_bytes, "Bytes that a rank holds all the time")
      ->type_name("LIST");
  command
      .add_option("--memory-budget", options.memory_budget,
                  "Bytes that a rank may hold: says which ranks fit")
      ->type_name("LIST");
}

void declare_schedule(CLI::App& command, ScheduleOptions& options) {
  declare_shape(command, options);
  declare_costs(command, options);
  declare_search(command, options);
  declare_memory(command, options);
  command.add_option("-o,--output", options.output, "Format")
      ->check(one_of({"text", "json", "svg", "perfetto", "torch-csv", "torch-csv-comms"}))
      ->capture_default_str();
}

void declare_verify(CLI::App& command, VerifyOptions& options) {
  command
      .add_option("file", options.file,
                  "Program: JSON of `penstock schedule -o json`, or PyTorch's schedule CSV")
      ->required()
      ->type_name("FILE");
  command.add_option("--format", options.format, "Format of the file; auto tells by its content")
      ->check(one_of({"auto", "json", "torch-csv", "torch-csv-comms"}))
      ->capture_default_str();
  command.add_option("-o,--output", options.output, "Format of the verdict")
      ->check(one_of({"text", "json"}))
      ->capture_default_str();
}

void declare_layout(CLI::App& command, LayoutOptions& options, const std::vector<std::string>& outputs) {
  options.output = outputs.front();
  command
      .add_option(
          "layout", options.layout,
          "Megatron's string, a JSON list of a stage's items (Megatron's, torchtitan's or a job file's names), "
          "a .json file of one, or a job file (.yaml)")
      ->required()
      ->type_name("LAYOUT");
  command
      .add_option("-p,--pipeline", options.pipeline, "Ranks (default: the job file's, else one stage a rank)")
      ->check(CLI::Range(1, 65536));
  command.add_option("--num-layers", options.num_layers, "Decoder layers that there must be")
      ->check(CLI::Range(0, 1 << 20));
  command
      .add_option("--mtp-num-layers", options.mtp_num_layers,
                  "Multi-token prediction layers that there must be")
      ->check(CLI::Range(0, 1 << 20));
  command.add_option("-o,--output", options.output, "Format")->check(one_of(outputs))->capture_default_str();
}

void add_layout(CLI::App& app, Result& result) {
  const Help help = help_of_layout();
  CLI::App* command = app.add_subcommand(help.name, help.summary);
  command->footer(help.examples);
  command->require_subcommand(1);
  add_command<LayoutOptions>(*command, help_of_layout_parse(), result, layout,
                             [](CLI::App& parse, LayoutOptions& options) {
                               declare_layout(parse, options, {"text", "json"});
                             });
  add_command<LayoutOptions>(*command, help_of_layout_format(), result, layout,
                             [](CLI::App& format, LayoutOptions& options) {
                               declare_layout(format, options, {"megatron", "torchtitan", "split"});
                             });
}

void add_output(CLI::App& command, std::string& output) {
  command.add_option("-o,--output", output, "Format: text, or json in one line")
      ->check(one_of({"text", "json"}))
      ->capture_default_str();
}

void declare_checkpoint(CLI::App& command, CheckpointOptions& options) {
  command.add_option("source", options.source, "A folder, or else a job with weights or a checkpoint")
      ->required()
      ->type_name("DIR|JOB");
  add_output(command, options.output);
  add_connection(command, options.connection);
}

void declare_checkpoint_import(CLI::App& command, CheckpointImportOptions& options) {
  command.add_option("source", options.source, "A folder, or else a job with weights or a checkpoint")
      ->required()
      ->type_name("DIR|JOB");
  command.add_option("target", options.target, "New or empty folder: becomes a checkpoint")
      ->type_name("[OUT]");
  add_output(command, options.output);
  add_connection(command, options.connection);
}

void declare_checkpoint_export(CLI::App& command, CheckpointExportOptions& options) {
  command.add_option("source", options.source, "A folder, or else a job with weights or a checkpoint")
      ->required()
      ->type_name("JOB|DIR");
  command.add_option("target", options.target, "New or empty folder")->required()->type_name("OUT");
  command.add_option("--dtype", options.dtype, "Of the stored weights")
      ->check(one_of({"float32", "bfloat16"}))
      ->capture_default_str();
  command
      .add_option("--shard-bytes", options.shard_bytes,
                  "Most bytes of tensors in a file; a larger tensor is alone")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 60))
      ->capture_default_str();
  command.add_flag("--optimizer", options.optimizer,
                   "The optimizer's state too: a whole checkpoint, bit for bit");
  add_output(command, options.output);
  add_connection(command, options.connection);
}

void declare_checkpoint_list(CLI::App& command, CheckpointListOptions& options) {
  add_output(command, options.output);
  add_connection(command, options.connection);
}

void add_checkpoint(CLI::App& app, Result& result) {
  CLI::App* command = app.add_subcommand(help_of_checkpoint().name, help_of_checkpoint().summary);
  command->footer(help_of_checkpoint().examples);
  command->require_subcommand(1);
  add_command<CheckpointListOptions>(*command, help_of_checkpoint_list(), result, checkpoint_list,
                                     declare_checkpoint_list);
  add_command<CheckpointExportOptions>(*command, help_of_checkpoint_export(), result, checkpoint_export,
                                       declare_checkpoint_export);
  add_command<CheckpointImportOptions>(*command, help_of_checkpoint_import(), result, checkpoint_import,
                                       declare_checkpoint_import);
  add_command<CheckpointOptions>(*command, help_of_checkpoint_verify(), result, checkpoint_verify,
                                 declare_checkpoint);
}

// "penstock: REASON", as every other error.
std::string failure_text(const CLI::App* app, const CLI::Error& failure) {
  std::string command = app->get_display_name();
  for (const CLI::App* parsed : app->get_subcommands()) command += " " + parsed->get_name();
  return fmt::format("penstock: {}; see `{} --help`\n", failure.what(), command);
}

// CLI11 would say that a command is missing, not that it does not know this one.
bool is_unknown_command(const CLI::App& app, const std::string& word) {
  if (word.empty() || word.front() == '-') return false;
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == word) return false;
    names.push_back(command->get_name());
  }
  const std::string nearest = nearest_name(word, names);
  std::fprintf(stderr, "penstock: unknown command %s%s; see `penstock --help`\n", word.c_str(),
               nearest.empty() ? "" : fmt::format(" (did you mean {}?)", nearest).c_str());
  return true;
}

// What the parser prints, help above all, goes the same way as what the commands print.
int run_and_write(int argc, char** argv) {
  CLI::App app("Penstock trains Transformers through a pipeline of workers, as a service.", "penstock");
  app.footer(overview_examples());
  app.set_version_flag("--version", "penstock 0.1.0");
  app.failure_message(failure_text);
  app.formatter(std::make_shared<HelpFormat>());
  app.require_subcommand(1);
  app.fallthrough(false);

  Result result = 0;
  add_command<UpOptions>(app, help_of_up(), result, up, declare_up);
  add_command<SubmitOptions>(app, help_of_submit(), result, submit, declare_submit);
  add_command<GetOptions>(app, help_of_get(), result, get, declare_get);
  add_command<DescribeOptions>(app, help_of_describe(), result, describe, declare_describe);
  add_command<JobOptions>(app, help_of_watch(), result, watch, declare_job);
  add_command<LogsOptions>(app, help_of_logs(), result, logs, declare_logs);
  add_command<TraceOptions>(app, help_of_trace(), result, trace, declare_trace);
  add_command<JobOptions>(app, help_of_cancel(), result, cancel, declare_job);
  add_command<JobOptions>(app, help_of_pause(), result, pause, declare_job);
  add_command<ResumeOptions>(app, help_of_resume(), result, resume, declare_resume);
  add_command<WorkerOptions>(app, help_of_drain(), result, drain, declare_worker);
  add_command<WorkerOptions>(app, help_of_uncordon(), result, uncordon, declare_worker);
  add_command<ScheduleOptions>(app, help_of_schedule(), result, schedule, declare_schedule);
  add_command<VerifyOptions>(app, help_of_verify(), result, verify, declare_verify);
  add_layout(app, result);
  add_planning(app, result);
  add_checkpoint(app, result);
  add_data(app, result);

  if (argc > 1 && is_unknown_command(app, argv[1])) return kExitUsage;
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& failure) {
    return app.exit(failure) == 0 ? 0 : kExitUsage;
  }
  return result;
}

}  // namespace

int run_command_line(int argc, char** argv) {
  const int result = run_and_write(argc, argv);
  return output_written() || result != 0 ? result : kExitUnwritten;
}

}  // namespace penstock::client
