// A small world around the core for tests: a clock, a store that says durable when told, and words for
// events.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "coordinator/core/assignment/assignment.h"
#include "coordinator/core/core.h"
#include "plan/spec/parameters.h"
#include "plan/spec/rank_place.h"

namespace penstock::coordinator::testing {

// The model's parameters as a pack of cards, shared out among the ranks of each pipeline: those of `rank`, which has only
// its own experts.
inline std::vector<ParameterDigest> digests_of(const plan::JobSpec& spec, RankIndex rank) {
  const plan::RankPlace place = plan::place_of_rank(spec.parallel, rank);
  const plan::ExpertRange experts = plan::experts_at(spec, place);
  std::vector<ParameterDigest> digests;
  for (const plan::ParameterSpec& parameter : plan::model_parameters(spec.model)) {
    if (parameter.index % spec.parallel.pipeline != place.pipeline_rank.value) continue;
    if (parameter.is_dense() || experts.holds(parameter.expert))
      digests.push_back({parameter.index, {static_cast<uint8_t>(parameter.index)}});
  }
  return digests;
}

struct JobShape {
  std::string name = "tiny";
  int pipeline = 2;
  int expert = 1;
  int data = 1;
  bool has_experts = false;  // 4 in one block; always where expert is above 1
  int steps = 3;
  std::string schedule = "1f1b";
  int seed = 1;
  std::string train = "";  // keys added to its section: ", optimizer: {lr: 1}"
  std::string device = "{kind: cpu}";
  std::string extra{};     // lines added to the job file
  std::string parallel{};  // keys added to its section, as in train

  int ranks() const { return pipeline * expert * data; }
};

inline std::string job_yaml(const JobShape& shape) {
  return fmt::format(
      "name: {}\n"
      "model: {{vocab_size: 256, hidden_size: 8, num_hidden_layers: 4, num_attention_heads: 2, "
      "num_key_value_heads: 1, intermediate_size: 16, max_position_embeddings: 8{}}}\n"
      "data: {{source: /data/text.txt, sequence_length: 8}}\n"
      "train: {{steps: {}, global_batch_size: 4, microbatch_size: 1, dtype: float32, seed: {}{}}}\n"
      "parallel: {{pipeline: {}, expert: {}, data: {}, schedule: {}{}}}\n"
      "device: {}\n{}",
      shape.name,
      shape.has_experts || shape.expert > 1
          ? ", moe: {num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 8, layers: [1]}"
          : "",
      shape.steps, shape.seed, shape.train, shape.pipeline, shape.expert, shape.data, shape.schedule,
      shape.parallel, shape.device, shape.extra);
}

inline std::shared_ptr<const plan::JobSpec> job_spec(const JobShape& shape) {
  auto spec = plan::parse_job_spec(job_yaml(shape));
  EXPECT_TRUE(spec.ok()) << spec.status();
  return std::make_shared<const plan::JobSpec>(*std::move(spec));
}

inline Registration registration(const std::string& worker, int64_t incarnation = 1, int devices = 1,
                                 const std::string& host = "") {
  Registration r;
  r.worker = worker;
  r.host_id = host.empty() ? "host-of-" + worker : host;
  r.incarnation = incarnation;
  r.pid = 1000;
  for (int d = 0; d < devices; ++d) r.devices.push_back({"cpu", d, "test"});
  return r;
}

// A coordinator whose state has a folder: weights and checkpoints are kept.
inline Options with_state() {
  Options options;
  options.weights_root = "/state/jobs";
  return options;
}

class World {
 public:
  explicit World(Options options = {}) { state.options = options; }

  // Applies the event and returns its commands; plans are answered and saves become durable at once unless
  // the fields below say otherwise. All commands are kept in `sent` too.
  std::vector<Command> tell(Event event) {
    std::vector<Command> commands = apply(state, std::move(event), now);
    std::vector<Command> all = commands;
    for (const Command& command : commands) {
      sent.push_back(command);
      if (const auto* save = std::get_if<Save>(&command)) {
        saved = save->ticket;
        for (const Write& write : save->writes) archive.apply(write);
      }
      if (const auto* plan = std::get_if<PlanAttempt>(&command); plan && plans_at_once) {
        AttemptPlanned planned{plan->job, plan->order, ok_status(), *plan_attempt(*plan->spec)};
        const plan::StartSpec& from = plan->spec->restart.from;
        if (!from.path.empty()) {
          planned.first_step = from.step;
          planned.load_from = from.path;
          planned.other_job = "other";
        }
        planned.fingerprint = checkpoint_fingerprint;
        if (plan->question && considers) planned.split = considers(*plan->question);
        if (planned.split && planned.split->spec) planned.plan = *plan_attempt(*planned.split->spec);
        if (plan->checkpoints.latest_step > from.step && newest_checkpoint > 0) {
          planned.other_job = "";
          planned.first_step = newest_checkpoint;
          planned.load_from =
              fmt::format("{}/step-{:09}", plan->checkpoints.place.directory, newest_checkpoint);
        }
        append(all, tell(std::move(planned)));
      }
      if (const auto* asked = std::get_if<ConsiderSplit>(&command); asked && considers)
        append(all, tell(SplitConsidered{asked->job, asked->order, considers(asked->question)}));
      if (std::holds_alternative<CallAgain>(command) && assigns_at_once) append(all, tell(AssignMore{}));
    }
    if (durable_at_once && saved > durable) append(all, make_durable());
    return all;
  }
  std::vector<Command> make_durable() {
    durable = saved;
    return tell(StoreDurable{saved});
  }
  std::vector<Command> tick(Duration by = 100ms) {
    now.time += by;
    now.unix_ms += std::chrono::duration_cast<std::chrono::milliseconds>(by).count();
    return tell(Tick{});
  }

  SessionId open(const Registration& r) {
    const SessionId session = ++last_session;
    tell(SessionOpened{session, r});
    sessions[r.worker] = session;
    incarnations[r.worker] = r.incarnation;
    tick();
    return session;
  }
  // Fresh workers worker-0, worker-1, ...
  void open_workers(int count) {
    for (int w = 0; w < count; ++w) open(registration(fmt::format("worker-{}", w)));
  }
  std::vector<Command> say(const std::string& worker, WorkerMessage message) {
    return tell(SessionSaid{sessions.at(worker), std::move(message)});
  }
  std::string submit(const JobShape& shape, const std::string& request_id = "") {
    for (const Command& command : tell(Submit{++last_reply, "ann", request_id, job_spec(shape)})) {
      if (const auto* answer = std::get_if<AnswerSubmit>(&command)) {
        EXPECT_TRUE(answer->outcome.ok()) << answer->outcome.status();
        return answer->outcome.ok() ? answer->outcome->name : "";
      }
    }
    return "";
  }

  const Job& job(const std::string& name) { return state.jobs.at(name); }
  JobState state_of(const std::string& name) { return job(name).status.state; }
  std::string reason_of(const std::string& name) { return job(name).status.reason; }
  bool has_told(const std::string& name, const std::string& words) {
    const auto& events = job(name).events;
    return std::any_of(events.begin(), events.end(), [&](const JobEventView& event) {
      return event.reason.find(words) != std::string::npos;
    });
  }
  int64_t refused(Refusal why) const { return state.refused[static_cast<size_t>(why)]; }

  const RankPlacement& place_of(const std::string& name, int rank) {
    return job(name).placed.at(static_cast<size_t>(rank));
  }
  AttemptKey key(const std::string& name, int rank) {
    return {name, job(name).status.attempt, place_of(name, rank).incarnation};
  }
  std::vector<Command> ready(const std::string& name, int rank) {
    return say(place_of(name, rank).worker, RankReady{key(name, rank), RankIndex(rank), 4000 + rank, "test"});
  }
  StepReport step_report(const std::string& name, int rank, int64_t step) {
    StepReport report;
    report.attempt = key(name, rank);
    report.rank = RankIndex(rank);
    report.step = step;
    report.wall_seconds = 0.5;
    report.wait_seconds = 0.125;
    report.memory = {{"parameters", 100}, {"gradients", 50}};
    // Its part of the step's loss, of those of all pipelines.
    const plan::ParallelSpec& parallel = job(name).spec->parallel;
    const plan::RankPlace place = plan::place_of_rank(parallel, RankIndex(rank));
    if (place.pipeline_rank.value == parallel.pipeline - 1)
      report.loss = (4.0 - 0.25 * static_cast<double>(step)) / parallel.pipelines();
    report.stages = {{StageIndex(place.pipeline_rank.value), 0.010, 0.020, 0, 0, 2, 2}};
    return report;
  }
  std::vector<Command> report(const std::string& name, int rank, int64_t step) {
    return say(place_of(name, rank).worker, step_report(name, rank, step));
  }
  std::vector<Command> trace(const std::string& name, int rank, int64_t step) {
    StepTrace trace;
    trace.attempt = key(name, rank);
    trace.rank = RankIndex(rank);
    trace.step = step;
    trace.clock = "boot";
    return say(place_of(name, rank).worker, trace);
  }
  std::vector<Command> finish(const std::string& name, int rank) {
    return say(place_of(name, rank).worker,
               RankFinished{key(name, rank), RankIndex(rank), digests_of(*job(name).spec, RankIndex(rank))});
  }
  std::vector<Command> stopped(const std::string& name, int rank) {
    return say(place_of(name, rank).worker, ExecutorStopped{key(name, rank), RankIndex(rank)});
  }
  std::vector<Command> wrote(const std::string& name, int rank, int64_t step,
                             const std::string& problem = "") {
    return say(place_of(name, rank).worker,
               CheckpointWritten{key(name, rank), RankIndex(rank), step, problem});
  }
  std::vector<Command> kill_rank(const std::string& name, int rank, int64_t step) {
    return say(place_of(name, rank).worker,
               RankFailed{key(name, rank), RankIndex(rank), step, "ended", -1, 9});
  }

  int ranks_of(const std::string& name) { return job(name).definition.ranks; }
  void all_ready(const std::string& name) {
    for (int rank = 0; rank < ranks_of(name); ++rank) ready(name, rank);
  }
  void all_report(const std::string& name, int64_t step) {
    for (int rank = 0; rank < ranks_of(name); ++rank) report(name, rank, step);
  }
  void all_finish(const std::string& name) {
    for (int rank = 0; rank < ranks_of(name); ++rank) finish(name, rank);
  }
  // The job may be retired by the last of them.
  void all_stopped(const std::string& name) {
    for (int rank = 0, ranks = ranks_of(name); rank < ranks; ++rank) stopped(name, rank);
  }
  // All ranks report steps [first, last), and write their parts of checkpoints where they are due.
  void run_steps(const std::string& name, int64_t first, int64_t last) {
    const int64_t every = job(name).spec->checkpoint.every;
    for (int64_t step = first; step < last; ++step) {
      all_report(name, step);
      if (every == 0 || (step + 1) % every != 0) continue;
      for (int rank = 0; rank < ranks_of(name); ++rank) wrote(name, rank, step + 1);
    }
  }
  // The checkpoint of `step` is whole; later attempts find it.
  std::vector<Command> keep(const std::string& name, int64_t step) {
    const int64_t order = job(name).attempt->order;
    auto commands = tell(CheckpointCommitted{name, order, step, ok_status(), std::string(32, 'd')});
    newest_checkpoint = step;
    return commands;
  }
  // A running job on fresh workers.
  std::string run(JobShape shape = {}) {
    open_workers(shape.ranks());
    const std::string name = submit(shape);
    all_ready(name);
    EXPECT_EQ(state_of(name), JobState::Running);
    return name;
  }

  State state;
  Now now{TimePoint{} + 1h, 1'700'000'000'000};
  Archive archive;
  bool durable_at_once = true;
  bool plans_at_once = true;
  bool assigns_at_once = true;
  std::function<SplitAnswer(const SplitQuestion&)> considers{};  // questions on splits; none: they wait
  int64_t newest_checkpoint = 0;                                 // that a later attempt finds; 0: none
  std::string checkpoint_fingerprint{};                          // of what it was made with
  std::vector<Command> sent;
  Ticket saved = 0;
  Ticket durable = 0;
  std::map<std::string, SessionId> sessions;
  std::map<std::string, int64_t> incarnations;
  SessionId last_session = 0;
  ReplyId last_reply = 0;

 private:
  static void append(std::vector<Command>& to, std::vector<Command> more) {
    to.insert(to.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  }
};

template <typename T>
std::vector<T> of(const std::vector<Command>& commands) {
  std::vector<T> found;
  for (const Command& command : commands) {
    if (const T* one = std::get_if<T>(&command)) found.push_back(*one);
  }
  return found;
}

// Messages to one worker's current session, or to any when it is empty.
template <typename T>
std::vector<T> messages(const World& world, const std::vector<Command>& commands,
                        const std::string& worker = "") {
  std::vector<T> found;
  for (const SendToWorker& send : of<SendToWorker>(commands)) {
    if (!worker.empty() && send.session != world.sessions.at(worker)) continue;
    if (const T* one = std::get_if<T>(&send.message)) found.push_back(*one);
  }
  return found;
}

}  // namespace penstock::coordinator::testing
