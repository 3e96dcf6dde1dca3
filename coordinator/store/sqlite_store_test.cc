#include "coordinator/store/sqlite_store.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <future>
#include <limits>
#include <mutex>
#include <random>

#include "coordinator/store/internal/store_test_fixture.h"

namespace penstock::coordinator {
namespace {

using TracesByStep = std::map<int64_t, std::vector<TraceBytes>>;
std::map<int64_t, std::vector<std::string>> texts_of(const TracesByStep& traces) {
  std::map<int64_t, std::vector<std::string>> texts;
  for (const auto& [step, ranks] : traces) {
    for (const TraceBytes& rank : ranks) texts[step].push_back(*rank);
  }
  return texts;
}

void expect_equal(const StoredJob& a, const StoredJob& b) {
  EXPECT_EQ(a.definition, b.definition);
  EXPECT_EQ(a.status, b.status) << a.definition.name;
  EXPECT_EQ(a.events, b.events);
  EXPECT_EQ(a.next_event, b.next_event);
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.losses_in_store, b.losses_in_store);
  EXPECT_EQ(a.validation, b.validation);
  EXPECT_EQ(a.stages, b.stages);
  EXPECT_EQ(a.memory, b.memory);
  EXPECT_EQ(texts_of(a.traces), texts_of(b.traces));
  EXPECT_EQ(a.measurements, b.measurements);
  EXPECT_EQ(a.placed_attempt, b.placed_attempt);
  EXPECT_EQ(a.placed_order, b.placed_order);
  EXPECT_EQ(a.placed, b.placed);
}

// Random writes about a few jobs, valid in order (losses go on where they ended).
class RandomWrites {
 public:
  explicit RandomWrites(uint64_t seed) : random_(seed) {}

  Write next() {
    const std::string job = "job-" + std::to_string(below(4));
    if (!known_.contains(job)) {
      known_[job] = {};
      return CreateJob{definition(job, ++sequence_), status()};
    }
    Job& state = known_[job];
    switch (below(19)) {
      case 18:
        return PutMemory{job, memory()};
      case 12:
      case 13:
        return PutTrace{job, below(5), traces()};
      case 14:
        return DropTrace{job, below(5)};
      case 15:
      case 16:
        return PutMeasurements{job, measurements()};
      case 17:
        return DropMeasurements{job, below(5)};
      case 0:
        known_.erase(job);
        return DropJob{job};
      case 1:
        return PutAttempt{job, below(5) + 1, below(99) + 1, placements()};
      case 2:
        return ForgetAttempt{job};
      case 3:
        return PutStages{job, stages()};
      case 4:
      case 5:
        state.events += below(3);  // the last one again, the next one, or with a gap
        return AddEvent{job, state.events, 5, {below(1000), JobState::Running, "reason", "by"}};
      case 6:
      case 7:
        return PutStatus{job, status()};
      case 8: {
        AddValidation write{job, {}};
        for (int64_t i = below(3); i >= 0; --i) write.losses.push_back({++state.validated, real()});
        return write;
      }
      default: {
        AddLosses write{job, state.losses, {}};
        for (int64_t i = below(4); i >= 0; --i) write.losses.push_back(real());
        state.losses += static_cast<int64_t>(write.losses.size());
        return write;
      }
    }
  }

 private:
  struct Job {
    int64_t events = 0;
    int64_t losses = 0;
    int64_t validated = 0;
  };
  int64_t below(int64_t bound) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(bound)); }
  double real() { return std::uniform_real_distribution<>(-1, 1)(random_) / 3; }
  std::optional<double> maybe_real() { return below(2) ? std::optional(real()) : std::nullopt; }

  JobStatus status() {
    return {.state = static_cast<JobState>(below(kJobStates)),
            .reason = "reason " + std::to_string(below(100)),
            .by = "by",
            .since_unix_ms = below(1'000'000),
            .attempt = below(9),
            .started_unix_ms = below(9),
            .step = below(1000),
            .loss = maybe_real(),
            .tokens_per_second = maybe_real(),
            .step_seconds = maybe_real(),
            .weights_digest = below(2) ? "abc" : "",
            .durable_step = below(50),
            .restarts = below(5),
            .barren_attempts = below(3),
            .exit_code = static_cast<int>(below(5))};
  }
  std::vector<RankPlacement> placements() {
    std::vector<RankPlacement> ranks;
    for (int64_t r = 0; r <= below(3); ++r)
      ranks.push_back({RankIndex(r), "worker-1", below(99), static_cast<int>(below(8))});
    return ranks;
  }
  // Bytes of any value, zeros among them.
  std::vector<TraceBytes> traces() {
    std::vector<TraceBytes> ranks(static_cast<size_t>(below(3)) + 1);
    for (TraceBytes& rank : ranks) {
      std::string bytes(static_cast<size_t>(below(9)), '\0');
      for (char& byte : bytes) byte = static_cast<char>(below(3) * 127);
      rank = std::make_shared<const std::string>(std::move(bytes));
    }
    return ranks;
  }
  AttemptMeasurements measurements() {
    AttemptMeasurements measured{.attempt = below(5), .schedule = "1f1b", .steps = below(100)};
    for (int64_t s = 0; s <= below(3); ++s) measured.stages.push_back("embedding " + std::to_string(s));
    for (int64_t i = below(5); i > 0; --i) {
      MeasuredSeries& series = measured.series.emplace_back();
      series.rank = RankIndex(below(3));
      if (below(2)) series.stage = StageIndex(below(3));
      series.kind = static_cast<MeasuredKind>(below(kMeasuredKinds));
      if (below(2)) series.layer = static_cast<plan::LayerType>(below(plan::kLayerTypes));
      series.count = below(1000);
      for (int64_t n = below(4); n > 0; --n) series.seconds.push_back(static_cast<float>(real()));
      if (below(2)) series.cpu_seconds.push_back(static_cast<float>(real()));
    }
    measured.memory = memory();
    for (int64_t layer = 0; layer < below(3); ++layer) {
      LayerLoad& load = measured.expert_loads.emplace_back();
      load.layer = LayerIndex(layer);
      load.stage = StageIndex(below(3));
      load.steps = below(100);
      for (int64_t n = below(4); n > 0; --n) load.rows.push_back(below(int64_t{1} << 40));
      for (int64_t n = below(4); n > 0; --n) load.ratio.push_back(static_cast<float>(real()));
    }
    for (int64_t n = below(4); n > 0; --n) measured.history.steps.push_back(below(1000));
    for (int64_t s = 0; s < below(3); ++s) {
      StageHistory& stage = measured.history.stages.emplace_back();
      stage.stage = StageIndex(s);
      for (int64_t n = below(4); n > 0; --n) stage.seconds.push_back(static_cast<float>(real()));
      for (int64_t n = below(4); n > 0; --n) stage.load.push_back(static_cast<float>(real()));
    }
    return measured;
  }
  std::vector<StageView> stages() {
    std::vector<StageView> views;
    for (int64_t s = 0; s <= below(3); ++s) {
      StageView view{.stage = StageIndex(s), .rank = RankIndex(s % 2), .worker = "worker-0"};
      if (below(2)) view.layers = {"embedding", "0", "1"};
      view.forward_ms = maybe_real();
      view.busy_fraction = maybe_real();
      if (below(2)) view.memory_peak_bytes = below(1'000'000);
      if (below(2)) view.activation_slots = static_cast<int32_t>(below(9));
      if (below(2)) view.payload_slots = static_cast<int32_t>(below(9));
      if (below(2)) view.payload_slots_peak = static_cast<int32_t>(below(9));
      views.push_back(std::move(view));
    }
    return views;
  }

  // Of ranks without any kind, too.
  std::vector<RankMemoryView> memory() {
    std::vector<RankMemoryView> ranks(static_cast<size_t>(below(3)));
    for (RankMemoryView& rank : ranks) {
      for (int64_t k = below(3); k > 0; --k) {
        MemoryUseView use{.kind = fmt::format("kind_{}", k)};
        if (below(2)) use.predicted_bytes = below(1'000'000);
        if (below(2)) use.peak_bytes = below(1'000'000);
        rank.push_back(std::move(use));
      }
    }
    return ranks;
  }

  std::mt19937_64 random_;
  std::map<std::string, Job> known_;
  int64_t sequence_ = 0;
};

TEST_F(SqliteStoreTest, reopened_store_answers_what_the_archive_answers) {
  // Archive is what "stored" means; whatever was written in whatever order must read back the same.
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::filesystem::remove_all(folder);
    std::filesystem::create_directory(folder);
    RandomWrites random(seed);
    std::vector<Write> writes;
    Archive archive;
    for (int i = 0; i < 100; ++i) {
      writes.push_back(random.next());
      archive.apply(writes.back());
    }
    const std::vector<StoredJob> expected = archive.jobs();
    const std::vector<StoredJob> found = written_and_read(writes);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) expect_equal(found[i], expected[i]);
  }
}

TEST_F(SqliteStoreTest, file_that_a_job_goes_on_with_takes_the_place_of_the_first) {
  JobDefinition other = definition("a", 1);
  other.spec_yaml = "name: other\n";
  other.schedule = "gpipe";
  other.ranks = 2;
  other.stages = 2;
  other.microbatches = 32;
  other.checkpoints = "/elsewhere";
  other.sums_since = 40;
  other.moves = {.undone = {"[[c]]"}};
  other.submitted_yaml = "name: a\n";
  const auto jobs = written_and_read(
      {CreateJob{definition("a", 1), {}}, CreateJob{definition("b", 2), {}}, PutDefinition{other}});
  EXPECT_EQ(jobs[0].definition, other);
  EXPECT_EQ(jobs[1].definition, definition("b", 2));
}

TEST_F(SqliteStoreTest, losses_keep_their_bits_and_no_number_is_not_zero) {
  const double inexact = 0.1 + 0.2;
  JobStatus status;
  status.loss = std::numeric_limits<double>::quiet_NaN();
  const auto jobs = written_and_read(
      {CreateJob{definition("a", 1), status}, AddLosses{"a",
                                                        0,
                                                        {inexact, std::numeric_limits<double>::quiet_NaN(),
                                                         std::numeric_limits<double>::infinity(), 5e-324}}});
  ASSERT_EQ(jobs[0].losses.size(), 4u);
  EXPECT_EQ(jobs[0].losses[0], inexact);
  EXPECT_TRUE(std::isnan(jobs[0].losses[1]));
  EXPECT_TRUE(std::isinf(jobs[0].losses[2]));
  EXPECT_EQ(jobs[0].losses[3], 5e-324);
  EXPECT_TRUE(jobs[0].status.loss && std::isnan(*jobs[0].status.loss));
}

TEST_F(SqliteStoreTest, losses_of_a_job_that_has_ended_stay_in_the_file_until_somebody_asks) {
  const std::vector<double> curve = {3.5, 0.1 + 0.2, 1.25};
  const JobStatus ended{.state = JobState::Succeeded};
  const auto jobs =
      written_and_read({CreateJob{definition("a", 1), {}}, AddLosses{"a", 0, curve}, PutStatus{"a", ended},
                        CreateJob{definition("b", 2), {}}, AddLosses{"b", 0, curve}});
  EXPECT_TRUE(jobs[0].losses.empty());
  EXPECT_EQ(jobs[0].losses_in_store, 3u);
  EXPECT_EQ(jobs[1].losses, curve);
  EXPECT_EQ(jobs[1].losses_in_store, 0u);

  auto store = open();
  (void)store->load();
  store->start([](Ticket) {}, [](Status) {});
  const auto read = [&](const std::string& job) {
    std::promise<StatusOr<std::vector<double>>> answer;
    store->read_losses(job,
                       [&](StatusOr<std::vector<double>> losses) { answer.set_value(std::move(losses)); });
    return answer.get_future().get();
  };
  EXPECT_EQ(*read("a"), curve);
  EXPECT_EQ(read("x").status().code(), StatusCode::kNotFound);
  // What was queued before is read.
  store->save({1, {AddLosses{"b", 3, {0.5}}}});
  EXPECT_EQ(read("b")->size(), 4u);
  EXPECT_TRUE(store->stop().ok());
  EXPECT_EQ(read("a").status().code(), StatusCode::kUnavailable);
}

TEST_F(SqliteStoreTest, reads_are_answered_while_a_batch_cannot_be_written) {
  const std::vector<double> curve = {3.5, 1.25};
  (void)written_and_read({CreateJob{definition("a", 1), {}}, AddLosses{"a", 0, curve}});
  auto store = open();
  (void)store->load();
  std::promise<Status> fails;
  store->start([](Ticket) {}, [&](const Status& health) { fails.set_value(health); });
  const StageView stage{.stage = StageIndex(0), .rank = RankIndex(0)};
  store->save({1, {PutStages{"a", {stage, stage}}}});  // one row twice, which no table takes
  EXPECT_FALSE(fails.get_future().get().ok());
  auto answer = std::make_shared<std::promise<StatusOr<std::vector<double>>>>();
  auto answered = answer->get_future();
  store->read_losses("a", [answer](StatusOr<std::vector<double>> losses) { answer->set_value(losses); });
  if (answered.wait_for(30s) != std::future_status::ready) ADD_FAILURE() << "it waits behind the batch";
  EXPECT_FALSE(store->stop().ok());
  const StatusOr<std::vector<double>> losses = answered.get();
  ASSERT_TRUE(losses.ok()) << losses.status();
  EXPECT_EQ(*losses, curve);
}

TEST_F(SqliteStoreTest, what_is_saved_meanwhile_is_written_before_the_next_read) {
  (void)written_and_read({CreateJob{definition("a", 1), {}}});
  auto store = open();
  (void)store->load();
  std::string order;  // the writer's, until it has stopped
  store->start([&](Ticket) { order += "saved "; }, [](Status) {});
  std::promise<void> queued, done;
  store->read_losses("a", [&](const auto&) { queued.get_future().wait(); });
  store->read_losses("a", [&](const auto&) {
    order += "first ";
    store->save({1, {PutStatus{"a", {}}}});
  });
  store->read_losses("a", [&](const auto&) {
    order += "second";
    done.set_value();
  });
  queued.set_value();
  done.get_future().wait();
  EXPECT_TRUE(store->stop().ok());
  EXPECT_EQ(order, "first saved second");
}

TEST_F(SqliteStoreTest, the_newest_validation_losses_are_kept) {
  std::vector<ValidationView> all;
  for (int64_t i = 1; i <= static_cast<int64_t>(kValidationsKept) + 5; ++i) {
    all.push_back({10 * i, 1.0 / static_cast<double>(i)});
  }
  const std::vector<ValidationView> first(all.begin(), all.begin() + 600);
  const std::vector<ValidationView> rest(all.begin() + 600, all.end());
  const auto jobs = written_and_read(
      {CreateJob{definition("a", 1), {}}, AddValidation{"a", first}, AddValidation{"a", rest}});
  EXPECT_EQ(jobs[0].validation, std::vector<ValidationView>(all.begin() + 5, all.end()));
}

TEST_F(SqliteStoreTest, validation_beyond_a_step_is_forgotten) {
  const auto jobs = written_and_read({CreateJob{definition("a", 1), {}},
                                      AddValidation{"a", {{10, 3.0}, {20, 2.0}, {30, 1.0}}},
                                      DropValidation{"a", 20}, DropValidation{"b", 0}});
  EXPECT_EQ(jobs[0].validation, (std::vector<ValidationView>{{10, 3.0}, {20, 2.0}}));
}

TEST_F(SqliteStoreTest, writes_about_unknown_jobs_change_nothing) {
  const auto jobs =
      written_and_read({PutStatus{"x", {}}, AddEvent{"x", 0, 9, {}}, AddLosses{"x", 0, {1}},
                        PutStages{"x", {StageView{}}}, PutMemory{"x", {{{"parameters", 1, 2}}}},
                        PutAttempt{"x", 1, 1, {RankPlacement{}}}, CreateJob{definition("x", 1), {}}});
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_TRUE(jobs[0].events.empty());
  EXPECT_TRUE(jobs[0].losses.empty());
  EXPECT_TRUE(jobs[0].stages.empty());
  EXPECT_TRUE(jobs[0].memory.empty());
  EXPECT_TRUE(jobs[0].placed.empty());
}

TEST_F(SqliteStoreTest, cordons_are_kept_by_worker_until_they_are_dropped) {
  written_and_read({PutCordon{"worker-1", {"ann", 7}}, PutCordon{"worker-2", {"ann", 8}},
                    PutCordon{"worker-1", {"bob", 9}}, DropCordon{"worker-2"}, DropCordon{"worker-3"}});
  const std::map<std::string, Cordon> expected = {{"worker-1", {"bob", 9}}};
  EXPECT_EQ(open()->load_cordons(), expected);
}

TEST_F(SqliteStoreTest, stop_writes_what_is_queued) {
  {
    auto store = open();
    store->start([](Ticket) {}, [](Status) {});
    for (Ticket ticket = 1; ticket <= 100; ++ticket) {
      store->save(
          {ticket,
           {CreateJob{definition("job-" + std::to_string(ticket), static_cast<int64_t>(ticket)), {}}}});
    }
    EXPECT_TRUE(store->stop().ok());
  }
  EXPECT_EQ(open()->load().size(), 100u);
}

// The writer of a process that is killed: acknowledges each ticket over a pipe once it is durable.
[[noreturn]] void write_until_killed(const std::string& path, int acknowledged) {
  auto store = open_sqlite_store(path);
  if (!store.ok()) _exit(2);
  (*store)->start(
      [&](Ticket ticket) {
        if (write(acknowledged, &ticket, sizeof ticket) != sizeof ticket) _exit(3);
      },
      [](Status) {});
  for (Ticket ticket = 1;; ++ticket) {
    (*store)->save(
        {ticket, {CreateJob{definition("job-" + std::to_string(ticket), static_cast<int64_t>(ticket)), {}}}});
    usleep(200);  // so that the queue stays short; not a wait for anything
  }
}

TEST_F(SqliteStoreTest, acknowledged_writes_survive_kill_9) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) write_until_killed(path, pipe_ends[1]);
  close(pipe_ends[1]);
  Ticket acknowledged = 0;
  for (Ticket ticket = 0;
       acknowledged < 200 && read(pipe_ends[0], &ticket, sizeof ticket) == sizeof ticket;) {
    acknowledged = ticket;
  }
  ASSERT_GE(acknowledged, 200u);
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  for (Ticket ticket = 0; read(pipe_ends[0], &ticket, sizeof ticket) == sizeof ticket;) acknowledged = ticket;
  close(pipe_ends[0]);

  const auto jobs = open()->load();
  ASSERT_GE(jobs.size(), acknowledged);
  // A prefix: nothing overtakes what was saved before it.
  for (size_t i = 0; i < jobs.size(); ++i)
    EXPECT_EQ(jobs[i].definition.sequence, static_cast<int64_t>(i) + 1);
}

}  // namespace
}  // namespace penstock::coordinator
