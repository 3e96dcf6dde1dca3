#include "worker/executor/executor.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "plan/schedule/families.h"
#include "plan/schedule/forward_only.h"
#include "plan/spec/job_spec.h"
#include "plan/spec/parameters.h"
#include "worker/executor/check_assignment.h"
#include "worker/executor/testing/fake_daemon.h"
#include "worker/executor/testing/memory_account.h"

namespace penstock::worker {
namespace {

// A folder of this test process alone: tests run side by side. Forked executors leave it alone.
class TestFolder {
 public:
  TestFolder() { std::filesystem::create_directories(path_); }
  ~TestFolder() {
    if (getpid() == owner_) std::filesystem::remove_all(path_);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  pid_t owner_ = getpid();
  std::filesystem::path path_ =
      std::filesystem::path(::testing::TempDir()) / fmt::format("penstock_executor_{}", owner_);
};

const std::filesystem::path& test_folder() {
  static const TestFolder folder;
  return folder.path();
}

// A tiny Llama over a text that repeats itself now and then, so that there is something to learn.
std::string text_file() {
  const std::string path = test_folder() / "executor_test.txt";
  std::ofstream text(path);
  for (int i = 0; i < 600; ++i) text << "line " << i % 17 << " of the water book; ";
  return path;
}

struct Variant {
  std::string schedule = "1f1b";
  int ranks = 1;
  int stages_per_rank = 1;
  int threads = 1;
  int seed = 1;
  int steps = 6;
  std::string split = "auto";
  std::string dtype = "float32";
  std::string extra{};  // lines added to the job file
  std::string model{};  // keys added to its model
  int microbatch_size = 2;
  std::string p2p = "two-sided";
  std::string optimizer_step = "barrier";
  double clip = 1.0;

  friend void PrintTo(const Variant& variant, std::ostream* out) {
    *out << variant.schedule << " P=" << variant.ranks << " V=" << variant.stages_per_rank
         << " threads=" << variant.threads << " split=" << variant.split << " " << variant.dtype;
  }
};

std::string job_file(const Variant& variant) {
  return fmt::format(R"(name: tiny
model: {{vocab_size: 256, hidden_size: 32, num_hidden_layers: 6, num_attention_heads: 4, num_key_value_heads: 2,
         intermediate_size: 48, max_position_embeddings: 32, rope_theta: 10000, rms_norm_eps: 1e-5{}}}
data: {{source: {}, tokenizer: bytes, sequence_length: 16}}
train: {{steps: {}, global_batch_size: 8, microbatch_size: {}, dtype: {}, seed: {},
         optimizer: {{name: adamw, lr: 1e-2, clip_grad_norm: {}}}, lr_schedule: {{name: cosine, warmup_steps: 2}}}}
parallel: {{pipeline: {}, stages_per_rank: {}, schedule: {}, split: {}, p2p: {{mode: {}}}, optimizer_step: {}}}
device: {{kind: cpu, threads: {}}}
{})",
                     variant.model, text_file(), variant.steps, variant.microbatch_size, variant.dtype,
                     variant.seed, variant.clip, variant.ranks, variant.stages_per_rank, variant.schedule,
                     variant.split, variant.p2p, variant.optimizer_step, variant.threads, variant.extra);
}

std::vector<ExecutorAssignment> assignments_of(const Variant& variant) {
  const std::string yaml = job_file(variant);
  const plan::JobSpec job = plan::parse_job_spec(yaml).value();
  const plan::ComputeProgram program =
      plan::generate(
          {variant.schedule, variant.ranks, static_cast<int>(job.microbatches()), variant.stages_per_rank})
          .value();
  const bool barrier = variant.optimizer_step == "barrier";
  const plan::LoweredProgram lowered =
      plan::lower(program, {.step_rule = barrier ? plan::StepRule::Barrier : plan::StepRule::PostValidated})
          .value();
  std::optional<plan::LoweredProgram> validation;
  if (job.validation.every > 0) {
    const auto microbatches = static_cast<int>(job.validation.microbatches);
    validation = plan::lower(plan::forward_only(program, microbatches)).value();
  }
  std::vector<ExecutorAssignment> assignments;
  for (const plan::RankProgram& of_rank : lowered.ranks) {
    Assignment assignment{.attempt = {"tiny", 1, 7},
                          .rank = of_rank.rank,
                          .device = 0,
                          .spec_yaml = yaml,
                          .split = job.parallel.split,
                          .program = of_rank,
                          .first_step = 0,
                          .rank_hosts = std::vector<std::string>(variant.ranks, "here")};
    if (validation) {
      assignment.validation = validation->ranks[static_cast<size_t>(of_rank.rank.value)];
    }
    assignments.push_back({std::move(assignment), "127.0.0.1", "worker"});
  }
  return assignments;
}

// What a run leaves behind: to be the same, bit for bit, however it was cut.
struct Result {
  std::vector<double> losses;
  std::vector<std::pair<int64_t, double>> validation;  // after which step
  std::vector<double> gradient_norms;
  std::map<int, std::array<uint8_t, 16>> digests;  // by parameter
  bool operator==(const Result&) const = default;
};

bool has_loss(const ExecutorOutcome& outcome) {
  return !outcome.steps.empty() && outcome.steps.front().loss.has_value();
}

// Of two replicas of the loss stage each tells its part, in rank order.
void add_losses(const std::vector<StepReport>& steps, std::vector<double>& losses) {
  losses.resize(steps.size());
  for (size_t i = 0; i < steps.size(); ++i) losses[i] += steps[i].loss.value();
}

Result result_of(const std::vector<ExecutorOutcome>& outcomes) {
  Result result;
  for (const ExecutorOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.exit_code, 0) << (outcome.failed ? outcome.failed->reason : "");
    EXPECT_TRUE(outcome.ready.has_value());
    EXPECT_TRUE(outcome.finished.has_value());
    if (!outcome.finished) continue;
    for (const ParameterDigest& digest : outcome.finished->digests) {
      const auto [known, is_new] = result.digests.emplace(digest.parameter, digest.digest);
      EXPECT_TRUE(is_new || known->second == digest.digest)
          << "replicas differ in parameter " << digest.parameter;
    }
    if (has_loss(outcome)) add_losses(outcome.steps, result.losses);
    for (const StepReport& report : outcome.steps) {
      if (report.validation_loss) result.validation.emplace_back(report.step, *report.validation_loss);
    }
    if (!result.gradient_norms.empty()) {
      for (size_t i = 0; i < outcome.steps.size(); ++i) {
        EXPECT_EQ(outcome.steps[i].gradient_norm, result.gradient_norms.at(i)) << "ranks clip differently";
      }
    }
    result.gradient_norms.clear();
    for (const StepReport& report : outcome.steps) result.gradient_norms.push_back(report.gradient_norm);
  }
  return result;
}

Result train(const Variant& variant) {
  const std::vector<ExecutorAssignment> assignments = assignments_of(variant);
  const std::vector<ExecutorOutcome> outcomes = FakeDaemon(assignments).serve();
  expect_predicted_memory(assignments, outcomes);
  return result_of(outcomes);
}

const Result& reference() {
  static const Result result = train({.schedule = "naive"});
  return result;
}

TEST(Executor, training_lowers_the_loss_and_reports_every_step) {
  const Result& result = reference();
  ASSERT_EQ(result.losses.size(), 6u);
  EXPECT_NEAR(result.losses.front(), 5.545, 0.2) << "ln 256 before anything is learnt";
  EXPECT_LT(result.losses.back(), 0.95 * result.losses.front());
  const auto parameters = plan::model_parameters(plan::parse_job_spec(job_file({}))->model);
  EXPECT_EQ(result.digests.size(), parameters.size());
  for (const double norm : result.gradient_norms) EXPECT_GT(norm, 0);
}

class ExecutorOverCuts : public ::testing::TestWithParam<Variant> {};

TEST_P(ExecutorOverCuts, same_bits_as_on_one_rank) {
  // The numerics contract, through every layer of the executor: losses, norms and weights do not know the
  // cut.
  EXPECT_EQ(train(GetParam()), reference());
}

INSTANTIATE_TEST_SUITE_P(
    Cuts, ExecutorOverCuts,
    ::testing::Values(
        Variant{.schedule = "1f1b", .ranks = 1, .threads = 2}, Variant{.schedule = "gpipe", .ranks = 2},
        Variant{.schedule = "1f1b", .ranks = 2, .split = "[[embedding, 0, 1, 2, 3, 4], [5, head]]"},
        Variant{.schedule = "naive", .ranks = 4}, Variant{.schedule = "1f1b", .ranks = 4, .threads = 2},
        Variant{.schedule = "interleaved-1f1b", .ranks = 2, .stages_per_rank = 2},
        Variant{.schedule = "interleaved-1f1b", .ranks = 4, .stages_per_rank = 2},
        Variant{.schedule = "1f1b", .ranks = 2, .p2p = "one-sided"},
        Variant{.schedule = "interleaved-1f1b", .ranks = 4, .stages_per_rank = 2, .p2p = "one-sided"}),
    [](const auto& tested) {
      const Variant& v = tested.param;
      std::string name = fmt::format("{}_p{}_v{}_t{}{}", v.schedule, v.ranks, v.stages_per_rank, v.threads,
                                     v.split == "auto" ? "" : "_uneven");
      if (v.p2p != "two-sided") name += "_" + v.p2p;
      for (char& c : name) c = c == '-' ? '_' : c;
      return name;
    });

// Everything that a model may say, at once, in batches that do not divide, and validated as it trains.
Variant everything() {
  Variant variant;
  variant.model = ", tie_word_embeddings: true, qk_norm: true, head_dim: 10, hidden_dropout: 0.1";
  variant.microbatch_size = 3;
  variant.extra = fmt::format("validation: {{source: {}, every: 4, microbatches: 2}}\n", text_file());
  return variant;
}

// The bound that README states for the schedules that add gradients up in another order.
constexpr double kToleranceOfAnotherOrder = 1e-6;

double largest_relative_difference(const std::vector<double>& found, const std::vector<double>& expected) {
  EXPECT_EQ(found.size(), expected.size());
  double largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(found[i] - expected[i]) / expected[i]);
  }
  return largest;
}

// The others compute with older weights: another curve.
std::vector<std::string> synchronous_schedules() {
  std::vector<std::string> names = plan::schedule_names();
  std::erase_if(names, [](const std::string& name) { return name.starts_with("pipedream"); });
  return names;
}

TEST(Executor, every_synchronous_schedule_has_the_curve_of_one_rank) {
  for (const std::string& name : synchronous_schedules()) {
    SCOPED_TRACE(name);
    const auto stages = plan::generate({.name = name, .ranks = 4, .microbatches = 4})->stages_per_rank;
    const Result result = train({.schedule = name, .ranks = 4, .stages_per_rank = stages});
    if (plan::adds_in_an_order_of_its_own(name)) {
      EXPECT_LE(largest_relative_difference(result.losses, reference().losses), kToleranceOfAnotherOrder);
    } else {
      EXPECT_EQ(result, reference());
    }
  }
}

TEST(Executor, they_have_that_curve_in_bfloat16_with_odd_batches_whatever_a_model_and_a_link_say) {
  Variant variant = everything();
  variant.dtype = "bfloat16";
  const Result expected = train(variant);
  variant.p2p = "one-sided";
  for (const std::string& name : synchronous_schedules()) {
    if (plan::adds_in_an_order_of_its_own(name)) continue;
    SCOPED_TRACE(name);
    variant.schedule = name;
    variant.ranks = 2;
    variant.stages_per_rank = plan::generate({.name = name, .ranks = 2, .microbatches = 3})->stages_per_rank;
    EXPECT_EQ(train(variant), expected);
  }
}

TEST(Executor, two_replicas_of_every_stage_train_one_model) {
  // Everything that a model may say: with tied embeddings both ends are on both outer ranks. Odd m: one direction has
  // one microbatch more; with one microbatch a direction has none.
  Variant variant = everything();
  for (const int microbatch_size : {3, 8}) {
    variant.microbatch_size = microbatch_size;
    const Result expected =
        train({.extra = variant.extra, .model = variant.model, .microbatch_size = microbatch_size});
    for (const Variant& shape : {Variant{.schedule = "dualpipe", .ranks = 2, .p2p = "two-sided"},
                                 Variant{.schedule = "chimera", .ranks = 2, .p2p = "one-sided"},
                                 Variant{.schedule = "dualpipe", .ranks = 4, .p2p = "one-sided"},
                                 Variant{.schedule = "chimera", .ranks = 4, .p2p = "two-sided"}}) {
      SCOPED_TRACE(fmt::format("{} P={} {} microbatches of {}", shape.schedule, shape.ranks, shape.p2p,
                               microbatch_size));
      Variant replicated = variant;
      replicated.schedule = shape.schedule;
      replicated.ranks = shape.ranks;
      replicated.p2p = shape.p2p;
      const Result found = train(replicated);  // that replicas have equal digests is looked at there
      EXPECT_LE(largest_relative_difference(found.losses, expected.losses), kToleranceOfAnotherOrder);
      EXPECT_LE(largest_relative_difference(found.gradient_norms, expected.gradient_norms), 1e-4);
      EXPECT_EQ(found.digests.size(), expected.digests.size());
      ASSERT_EQ(found.validation.size(), expected.validation.size());
      EXPECT_NEAR(found.validation.back().second, expected.validation.back().second, 1e-5);
    }
  }
}

class EverythingOverCuts : public ::testing::TestWithParam<Variant> {};

TEST_P(EverythingOverCuts, same_bits_as_on_one_rank_and_as_without_validation) {
  Variant variant = everything();
  variant.dtype = GetParam().dtype;
  static std::map<std::string, Result> on_one_rank;
  if (on_one_rank.count(variant.dtype) == 0) on_one_rank[variant.dtype] = train(variant);
  const Result& expected = on_one_rank[variant.dtype];
  EXPECT_EQ(expected.validation.size(), 2u);  // after step 3, and after the last
  EXPECT_EQ(expected.validation.front().first, 3);
  EXPECT_EQ(expected.validation.back().first, 5);
  variant.schedule = GetParam().schedule;
  variant.ranks = GetParam().ranks;
  variant.stages_per_rank = GetParam().stages_per_rank;
  variant.threads = GetParam().threads;
  variant.split = GetParam().split;
  variant.p2p = GetParam().p2p;
  EXPECT_EQ(train(variant), expected);

  variant.extra = "";
  Result unvalidated = train(variant);
  EXPECT_TRUE(unvalidated.validation.empty());
  unvalidated.validation = expected.validation;
  EXPECT_EQ(unvalidated, expected);
}

INSTANTIATE_TEST_SUITE_P(
    Cuts, EverythingOverCuts,
    ::testing::Values(
        Variant{.schedule = "1f1b", .ranks = 2}, Variant{.schedule = "gpipe", .ranks = 4, .threads = 2},
        Variant{.schedule = "gpipe", .ranks = 4, .p2p = "one-sided"},
        Variant{.schedule = "1f1b", .ranks = 2, .split = "[[embedding], [0, 1, 2, 3, 4, 5, head]]"},
        Variant{.schedule = "interleaved-1f1b", .ranks = 2, .stages_per_rank = 2},
        Variant{.schedule = "1f1b", .ranks = 2, .threads = 2, .dtype = "bfloat16"},
        Variant{.schedule = "gpipe", .ranks = 4, .dtype = "bfloat16"},
        Variant{.schedule = "interleaved-1f1b", .ranks = 2, .stages_per_rank = 2, .dtype = "bfloat16"}));

TEST(Executor, steps_without_a_barrier_are_those_behind_one_and_are_reported_in_order) {
  // A limit between the norms: some steps are taken anew, some are not; validation interrupts, the job ends.
  Variant variant{.schedule = "zb-h2", .ranks = 3, .steps = 8, .clip = 0};
  variant.extra = fmt::format("validation: {{source: {}, every: 3, microbatches: 2}}\n", text_file());
  std::vector<double> norms = train(variant).gradient_norms;
  std::nth_element(norms.begin(), norms.begin() + 4, norms.end());
  for (const double clip : {0.0, norms[4]}) {
    variant.clip = clip;
    variant.optimizer_step = "barrier";
    const Result expected = train(variant);
    const auto over = std::count_if(expected.gradient_norms.begin(), expected.gradient_norms.end(),
                                    [&](double norm) { return clip > 0 && norm > clip; });
    EXPECT_TRUE(clip == 0 || (over > 0 && over < variant.steps)) << over;
    variant.optimizer_step = "post-validated";
    for (const char* p2p : {"two-sided", "one-sided"}) {
      variant.p2p = p2p;
      const std::vector<ExecutorOutcome> outcomes = FakeDaemon(assignments_of(variant)).serve();
      EXPECT_EQ(result_of(outcomes), expected) << p2p;
      for (const ExecutorOutcome& outcome : outcomes) {
        ASSERT_EQ(outcome.steps.size(), 8u);
        for (int step = 0; step < 8; ++step) EXPECT_EQ(outcome.steps[step].step, step);
        const auto& memory = outcome.steps.back().memory;
        const bool holds_rollback = std::any_of(memory.begin(), memory.end(), [](const MemoryKind& kind) {
          return kind.kind == "rollback" && kind.bytes_peak > 0;
        });
        EXPECT_EQ(holds_rollback, outcome.steps.back().rank != RankIndex(2));
      }
    }
    variant.p2p = "two-sided";
  }
}

TEST(Executor, program_whose_steps_are_not_the_jobs_is_refused) {
  Assignment barrier = assignments_of({.ranks = 2})[0].assignment;
  const Assignment other = assignments_of({.ranks = 2, .optimizer_step = "post-validated"})[0].assignment;
  EXPECT_TRUE(check_assignment(other).ok());
  barrier.program = other.program;
  EXPECT_NE(message(check_assignment(barrier).status())
                .find("optimizer_step: expected barrier as in the job file, found post-validated"),
            std::string::npos)
      << check_assignment(barrier).status();
}

TEST(Executor, validation_program_that_does_not_fit_the_job_is_refused) {
  const auto refused = [](auto change) {
    Assignment assignment = assignments_of(everything()).front().assignment;
    change(assignment);
    return message(check_assignment(assignment).status());
  };
  EXPECT_EQ(refused([](Assignment&) {}), "");
  EXPECT_NE(
      refused([](Assignment& a) { a.validation.reset(); }).find("the job has validation, and no program"),
      std::string::npos);
  EXPECT_NE(refused([](Assignment& a) { a.validation = a.program; }).find("microbatches of the validation"),
            std::string::npos);
  EXPECT_NE(refused([](Assignment& a) {
              a.validation = plan::lower(plan::generate({"naive", 1, 2, 1}).value())->ranks[0];
            }).find("has backwards"),
            std::string::npos);
}

TEST(Executor, another_seed_is_another_run) {
  const Result other = train({.seed = 2});
  EXPECT_NE(other.losses, reference().losses);
  EXPECT_NE(other.digests, reference().digests);
}

TEST(Executor, step_report_tells_times_slots_and_memory_of_its_rank) {
  const auto assignments = assignments_of({.schedule = "interleaved-1f1b", .ranks = 2, .stages_per_rank = 2});
  const std::vector<ExecutorOutcome> outcomes = FakeDaemon(assignments).serve();
  for (const ExecutorOutcome& outcome : outcomes) {
    ASSERT_EQ(outcome.steps.size(), 6u);
    const StepReport& report = outcome.steps.back();
    EXPECT_EQ(report.step, 5);
    EXPECT_EQ(report.loss.has_value(), report.rank == RankIndex(1));
    EXPECT_GT(report.cpu_seconds, 0);
    EXPECT_GT(report.wall_seconds, report.wait_seconds);
    const plan::RankProgram& program = assignments[report.rank.value].assignment.program;
    ASSERT_EQ(report.stages.size(), program.buffers.size());
    for (size_t i = 0; i < report.stages.size(); ++i) {
      EXPECT_EQ(report.stages[i].stage, program.buffers[i].stage);
      EXPECT_GT(report.stages[i].forward_seconds, 0);
      EXPECT_GT(report.stages[i].backward_seconds, 0);
      EXPECT_EQ(report.stages[i].activation_slots, program.buffers[i].activation_slots);
      EXPECT_EQ(report.stages[i].activation_slots_peak, program.buffers[i].activation_slots);
    }
    std::vector<std::string> kinds;
    for (const MemoryKind& kind : report.memory) {
      kinds.push_back(kind.kind);
      EXPECT_GT(kind.bytes_peak, 0) << kind.kind;
    }
    EXPECT_EQ(kinds, (std::vector<std::string>{"parameters", "packed", "gradients", "optimizer",
                                               "activations", "boundary", "workspace"}));
  }
}

// Each type of layer of each stage once, and no more time of all of them than the stage's works took.
void expect_layers_within_works(const Assignment& assignment, const StepTrace& trace) {
  const plan::JobSpec job = *plan::parse_job_spec(assignment.spec_yaml);
  int64_t in_works = 0, in_layers = 0;
  std::set<std::pair<StageIndex, plan::LayerType>> expected, found;
  for (const TracedWork& work : trace.works) {
    in_works += work.end_ns - work.start_ns;
    for (const plan::Item& item : assignment.split[static_cast<size_t>(work.work.stage.value)])
      expected.emplace(work.work.stage, plan::layer_type_of(job, item));
  }
  for (const TracedLayer& layer : trace.layers) {
    EXPECT_TRUE(found.emplace(layer.stage, layer.type).second);
    EXPECT_GT(layer.forward_ns, 0);
    EXPECT_GT(layer.backward_ns, 0);
    for (const plan::Item& item : assignment.split[static_cast<size_t>(layer.stage.value)]) {
      if (plan::layer_type_of(job, item) == layer.type)
        in_layers += (layer.forward_ns + layer.backward_ns) * job.microbatches();
    }
  }
  EXPECT_EQ(found, expected);
  EXPECT_LE(in_layers, in_works);
  EXPECT_GT(in_layers, in_works / 2);
}

TEST(Executor, traced_step_tells_every_work_and_wait_of_its_program_in_order) {
  for (const char* p2p : {"two-sided", "one-sided"}) {
    const auto assignments = assignments_of({.schedule = "interleaved-1f1b",
                                             .ranks = 2,
                                             .stages_per_rank = 2,
                                             .extra = "trace: {every: 4}\n",
                                             .p2p = p2p});
    for (const ExecutorOutcome& outcome : FakeDaemon(assignments).serve()) {
      ASSERT_EQ(outcome.traces.size(), 2u) << (outcome.failed ? outcome.failed->reason : "");
      EXPECT_EQ(outcome.traces[0].step, 2);
      EXPECT_EQ(outcome.traces[1].step, 4);
      for (const StepTrace& trace : outcome.traces) {
        size_t works = 0, waits = 0;
        int64_t now = 0;
        for (const plan::Instruction& expected :
             assignments[static_cast<size_t>(trace.rank.value)].assignment.program.instructions) {
          if (expected.kind == plan::InstructionKind::Compute) {
            ASSERT_LT(works, trace.works.size());
            const TracedWork& found = trace.works[works++];
            EXPECT_EQ(found.work, expected.work);
            EXPECT_GE(found.start_ns, now);
            EXPECT_GT(found.end_ns, found.start_ns);
            EXPECT_GT(found.cpu_ns, 0);
            now = found.end_ns;
          } else if (expected.kind == plan::InstructionKind::WaitReceive) {
            ASSERT_LT(waits, trace.waits.size());
            const TracedWait& found = trace.waits[waits++];
            EXPECT_EQ(found.stage, expected.work.stage);
            EXPECT_EQ(found.microbatch, expected.work.microbatch);
            EXPECT_EQ(found.flow, expected.flow);
            EXPECT_GE(found.start_ns, now);
            EXPECT_GE(found.end_ns, found.start_ns);
            now = found.end_ns;
          }
        }
        EXPECT_EQ(works, trace.works.size());
        EXPECT_EQ(waits, trace.waits.size());
        expect_layers_within_works(assignments.front().assignment, trace);
        EXPECT_GT(waits, 0u);
      }
    }
  }
}

// Refused before the first step, by the rank that finds it, with the reason.
std::string refusal_of(const ExecutorAssignment& assignment) {
  const ExecutorOutcome outcome = FakeDaemon({assignment}).serve().front();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_FALSE(outcome.ready.has_value());
  if (!outcome.failed) return "nothing was said";
  EXPECT_EQ(outcome.failed->step, -1);
  return outcome.failed->reason;
}

TEST(Executor, program_that_breaks_a_rule_is_refused_on_arrival) {
  ExecutorAssignment assignment = assignments_of({}).front();
  auto& instructions = assignment.assignment.program.instructions;
  std::vector<size_t> computes;
  for (size_t i = 0; i < instructions.size(); ++i) {
    if (instructions[i].kind == plan::InstructionKind::Compute) computes.push_back(i);
  }
  std::swap(instructions[computes[0]], instructions[computes[1]]);  // a backward before its forward
  EXPECT_NE(refusal_of(assignment).find("the program of rank 0 is refused"), std::string::npos)
      << refusal_of(assignment);
}

TEST(Executor, split_that_is_not_the_job_files_is_refused) {
  ExecutorAssignment assignment = assignments_of({.ranks = 2})[1];
  auto& split = assignment.assignment.split;
  split[1].insert(split[1].begin(), split[0].back());
  split[0].pop_back();
  EXPECT_NE(refusal_of(assignment).find("stage 0: expected items"), std::string::npos);
}

TEST(Executor, program_of_another_rank_or_of_other_microbatches_is_refused) {
  Assignment other_rank = assignments_of({.ranks = 2})[1].assignment;
  other_rank.rank = RankIndex(0);
  EXPECT_NE(message(check_assignment(other_rank).status()).find("rank 0 was given the program of rank 1"),
            std::string::npos);
  Assignment other_shape = assignments_of({.ranks = 2})[1].assignment;
  other_shape.program = plan::lower(plan::generate({"1f1b", 2, 5, 1}).value())->ranks[1];
  EXPECT_NE(message(check_assignment(other_shape).status()).find("microbatches of the program: expected 4"),
            std::string::npos);
}

TEST(Executor, one_sided_job_whose_ranks_are_on_two_hosts_is_refused) {
  ExecutorAssignment assignment = assignments_of({.ranks = 2, .p2p = "one-sided"})[0];
  assignment.assignment.rank_hosts = {"here", "there"};
  EXPECT_NE(
      refusal_of(assignment)
          .find(
              "parallel.p2p is one-sided, which stays within one host: expected all ranks on that of rank 0, "
              "here, found rank 1 on there"),
      std::string::npos)
      << refusal_of(assignment);
  assignment = assignments_of({.ranks = 2})[0];
  assignment.assignment.rank_hosts = {"here", "there"};
  EXPECT_TRUE(check_assignment(assignment.assignment).ok());
}

TEST(Executor, text_that_is_too_short_for_the_steps_is_refused_by_file_before_the_first) {
  const std::string reason = refusal_of(assignments_of({.steps = 1000}).front());
  EXPECT_NE(reason.find("executor_test.txt"), std::string::npos) << reason;
}

TEST(Executor, ranks_whose_hosts_hold_different_text_refuse_each_other) {
  // The first rank takes inputs and the last takes targets: the loss of two texts means nothing.
  auto assignments = assignments_of({.ranks = 3});
  const std::filesystem::path elsewhere = test_folder() / "elsewhere";
  std::filesystem::create_directories(elsewhere);
  std::filesystem::copy_file(text_file(), elsewhere / "executor_test.txt",
                             std::filesystem::copy_options::overwrite_existing);
  std::ofstream(elsewhere / "executor_test.txt", std::ios::app) << "and a line more";
  std::string& yaml = assignments[2].assignment.spec_yaml;
  yaml.replace(yaml.find(text_file()), text_file().size(), elsewhere / "executor_test.txt");
  const auto outcomes = FakeDaemon(assignments).serve();
  for (const int reader : {0, 2}) {
    ASSERT_TRUE(outcomes[reader].failed.has_value());
    EXPECT_FALSE(outcomes[reader].ready.has_value());
    const std::string& reason = outcomes[reader].failed->reason;
    // The slower of the two may learn it from the other.
    EXPECT_TRUE(reason.find("rank 0 and rank 2 read different data") != std::string::npos ||
                reason.find("rank 2 and rank 0 read different data") != std::string::npos)
        << reason;
    EXPECT_NE(reason.find("executor_test.txt of"), std::string::npos) << reason;
  }
}

TEST(Executor, memory_over_the_budget_is_refused_with_the_account) {
  const std::string reason = refusal_of(assignments_of({.extra = "memory_budget: 1MB\n"}).front());
  EXPECT_NE(reason.find("memory_budget of 1000000"), std::string::npos) << reason;
  EXPECT_NE(reason.find("activations"), std::string::npos) << reason;
}

TEST(Executor, killed_executor_ends_the_others_within_two_seconds_and_is_named) {
  FakeDaemon daemon(assignments_of({.schedule = "1f1b", .ranks = 3, .steps = 100}));
  TimePoint killed_at{};
  const auto outcomes = daemon.serve([&](const StepReport& report) {
    if (killed_at != TimePoint{} || report.step < 2) return;
    daemon.kill(1);
    killed_at = SystemClock().now();
  });
  EXPECT_EQ(outcomes[1].signal, SIGKILL);
  for (const int survivor : {0, 2}) {
    EXPECT_EQ(outcomes[survivor].exit_code, 1);
    ASSERT_TRUE(outcomes[survivor].failed.has_value());
    EXPECT_LT(outcomes[survivor].failed_at - killed_at, 2s);
    EXPECT_GE(outcomes[survivor].failed->step, 2);
    EXPECT_NE(outcomes[survivor].failed->reason.find("rank 1 was lost"), std::string::npos)
        << outcomes[survivor].failed->reason;
    EXPECT_NE(outcomes[survivor].failed->reason.find("(instruction "), std::string::npos);
  }
}

TEST(Executor, executor_whose_daemon_hangs_up_ends_by_itself) {
  // No orphan may go on computing: the socket's end is the second of two independent means.
  FakeDaemon daemon(assignments_of({.schedule = "1f1b", .ranks = 2, .steps = 100}));
  const auto outcomes = daemon.serve([&](const StepReport& report) {
    if (report.rank == RankIndex(0) && report.step == 2) daemon.hang_up(0);
  });
  for (const ExecutorOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_LT(outcome.steps.size(), 100u);
    EXPECT_FALSE(outcome.finished.has_value());
  }
}

}  // namespace
}  // namespace penstock::worker
