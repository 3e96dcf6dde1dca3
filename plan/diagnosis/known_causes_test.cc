// Random traces whose cause is known: 200 of each kind, of any shape, each judged in full. Where the cause is clear it is found
// every time, and nothing else is.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <optional>
#include <random>

#include "plan/diagnosis/diagnose.h"
#include "plan/diagnosis/testing/traces.h"

namespace penstock::plan {
namespace {

using testing::place_on_ranks;
using testing::slow_down;
using testing::slow_replica;
using testing::slow_stage;
using testing::trace_of;
using testing::TraceShape;

constexpr uint32_t kTraces = 200;

class Chance {
 public:
  explicit Chance(uint32_t seed) : engine_(seed) {}
  double real(double low, double high) { return std::uniform_real_distribution<double>(low, high)(engine_); }
  size_t whole(size_t low, size_t high) { return std::uniform_int_distribution<size_t>(low, high)(engine_); }
  // Healthy machines, 16 to 128 microbatches.
  TraceShape shape(size_t stages_min, size_t stages_max, size_t replicas_min, size_t replicas_max) {
    return {.stages = whole(stages_min, stages_max),
            .replicas = whole(replicas_min, replicas_max),
            .microbatches = static_cast<int>(whole(16, 128)),
            .noise = real(0.005, 0.03),
            .rank_noise = 0.01};
  }
  std::mt19937& engine() { return engine_; }

 private:
  std::mt19937 engine_;
};

struct Expected {
  Finding finding = Finding::Balanced;
  std::optional<size_t> stage = {};
  std::optional<size_t> replica = {};
};

bool is_right(const Diagnosis& diagnosis, const Expected& expected) {
  const Judgement& found = diagnosis.main();
  return diagnosis.verdicts.size() == 1 && found.finding == expected.finding &&
         (!expected.stage ||
          (!found.stages.empty() && found.stages[0] == static_cast<int>(*expected.stage))) &&
         (!expected.replica || found.replica == static_cast<int>(*expected.replica));
}

// Makes a trace and says what is wrong with it.
using Kind = std::function<Expected(Chance&, StageTrace&)>;

void expect_all_right(const char* name, const Kind& kind) {
  uint32_t right = 0;
  for (uint32_t seed = 0; seed < kTraces; ++seed) {
    Chance chance(seed);
    StageTrace trace;
    const Expected expected = kind(chance, trace);
    const Diagnosis diagnosis = *diagnose(trace);
    right += is_right(diagnosis, expected);
    for (const Judgement& verdict : diagnosis.verdicts) {
      if (!is_right(diagnosis, expected))
        ADD_FAILURE() << fmt::format("{} seed {}, {} x {}, expected {} at stage {}: {}: {}", name, seed,
                                     trace.cells.size(), trace.cells[0].size(), name_of(expected.finding),
                                     expected.stage.value_or(99), name_of(verdict.finding), verdict.because);
    }
  }
  ::testing::Test::RecordProperty(name, static_cast<int>(right));
  fmt::print("{}: {} of {}\n", name, right, kTraces);
}

// One microbatch of some rank takes eight times as long.
void add_hiccup(Chance& chance, StageTrace& trace) {
  CellSamples& cell =
      trace.cells[chance.whole(0, trace.cells.size() - 1)][chance.whole(0, trace.cells[0].size() - 1)];
  const size_t microbatch = chance.whole(0, cell.forward_ms.size() - 1);
  cell.forward_ms[microbatch] *= 8;
  if (chance.whole(0, 1) == 1) cell.backward_ms[microbatch] *= 8;
}

// Stages on `ranks` ranks in a loop or a V.
void place(Chance& chance, size_t ranks, StageTrace& trace) {
  const bool loop = chance.whole(0, 1) == 1;
  std::vector<int> of_stage;
  for (size_t stage = 0; stage < trace.cells.size(); ++stage)
    of_stage.push_back(static_cast<int>(loop || stage < ranks ? stage % ranks : 2 * ranks - 1 - stage));
  place_on_ranks(trace, of_stage);
}

TEST(KnownCauses, healthy_machines_are_balanced) {
  expect_all_right("healthy", [](Chance& chance, StageTrace& trace) {
    trace = trace_of(chance.shape(1, 16, 1, 8), chance.engine());
    return Expected{};
  });
}

TEST(KnownCauses, a_heavy_stage_is_an_imbalance) {
  expect_all_right("imbalance", [](Chance& chance, StageTrace& trace) {
    trace = trace_of(chance.shape(2, 16, 1, 8), chance.engine());
    const size_t stage = chance.whole(0, trace.cells.size() - 1);
    slow_stage(trace, stage, chance.real(1.15, 3));
    return Expected{.finding = Finding::Imbalance, .stage = stage};
  });
}

TEST(KnownCauses, a_light_stage_is_an_imbalance) {
  expect_all_right("light stage", [](Chance& chance, StageTrace& trace) {
    trace = trace_of(chance.shape(3, 6, 1, 8), chance.engine());
    const size_t stage = chance.whole(0, trace.cells.size() - 1);
    slow_stage(trace, stage, chance.real(0.2, 0.6));
    return Expected{.finding = Finding::Imbalance, .stage = stage};
  });
}

TEST(KnownCauses, a_slow_worker_is_a_straggler) {
  expect_all_right("straggler", [](Chance& chance, StageTrace& trace) {
    trace = trace_of(chance.shape(1, 16, 2, 8), chance.engine());
    const size_t stage = chance.whole(0, trace.cells.size() - 1);
    const size_t replica = chance.whole(0, trace.cells[0].size() - 1);
    slow_down(trace.cells[stage][replica], chance.real(1.2, 3));
    return Expected{.finding = Finding::Straggler, .stage = stage, .replica = replica};
  });
}

TEST(KnownCauses, a_slow_replica_is_one) {
  expect_all_right("slow replica", [](Chance& chance, StageTrace& trace) {
    trace = trace_of(chance.shape(2, 16, 2, 8), chance.engine());
    const size_t replica = chance.whole(0, trace.cells[0].size() - 1);
    slow_replica(trace, replica, chance.real(1.2, 3));
    return Expected{.finding = Finding::SlowReplica, .replica = replica};
  });
}

TEST(KnownCauses, slow_workers_of_one_host_are_stragglers_and_no_other_is) {
  int blamed_healthy = 0, missed = 0;
  for (uint32_t seed = 0; seed < kTraces; ++seed) {
    Chance chance(seed);
    StageTrace trace = trace_of(chance.shape(3, 16, 2, 8), chance.engine());
    const size_t stages = trace.cells.size(), slow = chance.whole(1, stages - 1);
    const size_t replica = chance.whole(0, trace.cells[0].size() - 1);
    const double factor = chance.real(1.2, 3);
    for (size_t stage = 0; stage < slow; ++stage) slow_down(trace.cells[stage][replica], factor);
    const Diagnosis diagnosis = *diagnose(trace);
    missed += diagnosis.verdicts.size() != 1 || diagnosis.main().finding != Finding::Straggler ||
              diagnosis.main().workers.size() != slow;
    for (const SlowWorker& worker : diagnosis.main().workers)
      blamed_healthy +=
          worker.replica != static_cast<int>(replica) || worker.stages[0] >= static_cast<int>(slow);
  }
  EXPECT_EQ(blamed_healthy, 0);
  EXPECT_EQ(missed, 0);
}

TEST(KnownCauses, sequences_with_a_heavy_tail_are_the_data) {
  expect_all_right("heavy tail", [](Chance& chance, StageTrace& trace) {
    TraceShape shape = chance.shape(1, 16, 1, 8);
    const double exponent = chance.real(1.2, 2.5);
    shape.microbatches = std::max(64, shape.microbatches);
    shape.length = [exponent](std::mt19937& engine) {
      return std::pow(std::uniform_real_distribution<double>(0.001, 1)(engine), -1 / exponent);
    };
    trace = trace_of(shape, chance.engine());
    return Expected{.finding = Finding::DataVariance};
  });
}

TEST(KnownCauses, one_hiccup_changes_no_verdict) {
  expect_all_right("hiccup", [](Chance& chance, StageTrace& trace) {
    trace = trace_of(chance.shape(1, 16, 1, 8), chance.engine());
    add_hiccup(chance, trace);
    return Expected{};
  });
  expect_all_right("hiccup beside an imbalance", [](Chance& chance, StageTrace& trace) {
    trace = trace_of(chance.shape(2, 16, 1, 8), chance.engine());
    const size_t stage = chance.whole(0, trace.cells.size() - 1);
    slow_stage(trace, stage, chance.real(1.2, 3));
    add_hiccup(chance, trace);
    return Expected{.finding = Finding::Imbalance, .stage = stage};
  });
  expect_all_right("hiccup beside a straggler", [](Chance& chance, StageTrace& trace) {
    trace = trace_of(chance.shape(1, 16, 2, 8), chance.engine());
    const size_t stage = chance.whole(0, trace.cells.size() - 1);
    const size_t replica = chance.whole(0, trace.cells[0].size() - 1);
    slow_down(trace.cells[stage][replica], chance.real(1.2, 3));
    add_hiccup(chance, trace);
    return Expected{.finding = Finding::Straggler, .stage = stage, .replica = replica};
  });
}

TEST(KnownCauses, uneven_stages_on_even_ranks_are_balanced) {
  expect_all_right("two stages a rank", [](Chance& chance, StageTrace& trace) {
    const size_t ranks = chance.whole(2, 8);
    trace = trace_of(chance.shape(2 * ranks, 2 * ranks, 1, 4), chance.engine());
    place(chance, ranks, trace);
    // What is added to one stage of a rank is taken from its other.
    for (size_t stage = 0; stage < ranks; ++stage) {
      const double more = chance.real(0, 0.8);
      for (size_t other = ranks; other < 2 * ranks; ++other) {
        if (trace.ranks[other] == trace.ranks[stage]) slow_stage(trace, other, 1 - more);
      }
      slow_stage(trace, stage, 1 + more);
    }
    return Expected{};
  });
}

TEST(KnownCauses, a_heavy_rank_with_two_stages_is_an_imbalance_and_a_slow_one_a_straggler) {
  expect_all_right("heavy rank", [](Chance& chance, StageTrace& trace) {
    const size_t ranks = chance.whole(2, 8);
    trace = trace_of(chance.shape(2 * ranks, 2 * ranks, 1, 4), chance.engine());
    place(chance, ranks, trace);
    const size_t stage = chance.whole(0, ranks - 1);
    slow_stage(trace, stage, chance.real(1.4, 3));
    return Expected{.finding = Finding::Imbalance, .stage = stage};
  });
  expect_all_right("slow rank", [](Chance& chance, StageTrace& trace) {
    const size_t ranks = chance.whole(1, 8);
    trace = trace_of(chance.shape(2 * ranks, 2 * ranks, 2, 4), chance.engine());
    place(chance, ranks, trace);
    const size_t first = chance.whole(0, ranks - 1);
    const size_t replica = chance.whole(0, trace.cells[0].size() - 1);
    const double factor = chance.real(1.2, 3);
    for (size_t stage = 0; stage < 2 * ranks; ++stage) {
      if (trace.ranks[stage] == trace.ranks[first]) slow_down(trace.cells[stage][replica], factor);
    }
    return Expected{.finding = Finding::Straggler, .stage = first, .replica = replica};
  });
}

TEST(KnownCauses, an_imbalance_and_data_that_vary_are_both_told) {
  uint32_t both = 0;
  for (uint32_t seed = 0; seed < kTraces; ++seed) {
    Chance chance(seed);
    TraceShape shape = chance.shape(2, 8, 1, 4);
    shape.microbatches = std::max(64, shape.microbatches);
    const double deviation = chance.real(0.15, 0.3);
    shape.length = [deviation](std::mt19937& engine) {
      return std::lognormal_distribution<double>(0, deviation)(engine);
    };
    StageTrace trace = trace_of(shape, chance.engine());
    const size_t stage = chance.whole(0, trace.cells.size() - 1);
    slow_stage(trace, stage, chance.real(2.2, 4));
    const Diagnosis diagnosis = *diagnose(trace);
    both += diagnosis.verdicts.size() == 2 && diagnosis.main().finding == Finding::Imbalance &&
            diagnosis.main().stages[0] == static_cast<int>(stage) && is_of_the_data(diagnosis);
  }
  EXPECT_EQ(both, kTraces);
}

// By chance alone no worker is blamed, however few the samples and however much they vary.
TEST(KnownCauses, noise_blames_nobody) {
  int blamed = 0;
  for (uint32_t seed = 0; seed < kTraces; ++seed) {
    Chance chance(seed);
    TraceShape shape = chance.shape(1, 16, 2, 8);
    shape.microbatches = static_cast<int>(chance.whole(1, 64));
    const double deviation = shape.microbatches < 8 ? 0.02 : chance.real(0, 0.6);
    shape.length = [deviation](std::mt19937& engine) {
      return std::lognormal_distribution<double>(0, deviation)(engine);
    };
    const Diagnosis diagnosis = *diagnose(trace_of(shape, chance.engine()));
    for (const Judgement& verdict : diagnosis.verdicts) {
      if (verdict.workers.empty()) continue;
      ++blamed;
      ADD_FAILURE() << fmt::format("seed {}, {} microbatches varying by {:.2f}: {}", seed, shape.microbatches,
                                   deviation, verdict.because);
    }
  }
  EXPECT_EQ(blamed, 0);
}

}  // namespace
}  // namespace penstock::plan
