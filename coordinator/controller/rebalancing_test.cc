// Measurements that come through the controller's threads to the planner, and a split that comes back.
#include <gmock/gmock.h>

#include <new>

#include "coordinator/controller/testing/controlled_fleet.h"
#include "plan/spec/split_source.h"

namespace penstock::coordinator {
namespace {

using ::testing::HasSubstr;
using enum JobState;

const std::string kUneven =
    "name: tiny\n"
    "model: {vocab_size: 256, hidden_size: 8, num_hidden_layers: 4, num_attention_heads: 2, "
    "intermediate_size: 16, max_position_embeddings: 8}\n"
    "data: {source: /data/text.txt, sequence_length: 8}\n"
    "train: {steps: 200, global_batch_size: 4, microbatch_size: 1, dtype: float32}\n"
    "parallel: {pipeline: 2, schedule: 1f1b, split: [[embedding, 0], [1, 2, 3, head]]}\n"
    "rebalance: apply\n"
    "restart: {max: 2}\n";

class RebalancedJob : public CoreControllerTest {
 protected:
  // By rank: which of the workers has which is the placement's business.
  std::vector<Assignment> assigned() {
    std::vector<Assignment> assignments(2);
    for (FakeWorker& worker : workers) {
      Assignment assignment = worker.sink->next<Assignment>();
      worker_of[static_cast<size_t>(assignment.rank.value)] = &worker;
      assignments[static_cast<size_t>(assignment.rank.value)] = std::move(assignment);
    }
    return assignments;
  }
  // A block takes 9 ms, the head 20.
  void train(const std::vector<Assignment>& assignments, int64_t steps) {
    for (size_t rank = 0; rank < 2; ++rank)
      say(*worker_of[rank], RankReady{assignments[rank].attempt, assignments[rank].rank, 4242, "test"});
    for (int64_t step = 0; step < steps; ++step) {
      for (size_t rank = 0; rank < 2; ++rank) {
        StepReport told = report(assignments[rank], step);
        const double seconds = rank == 0 ? 0.009 : 0.047;
        told.stages = {{StageIndex(static_cast<int64_t>(rank)), seconds / 3, 2 * seconds / 3, 0, 0, 2, 2}};
        told.wall_seconds = 4 * 0.047 + 0.009;
        say(*worker_of[rank], told);
      }
    }
  }
  // Until the executors of its first attempt are gone.
  void train_and_lose_a_rank() {
    const std::vector<Assignment> first = assigned();
    train(first, 40);
    say(*worker_of[1], RankFailed{first[1].attempt, first[1].rank, 40, "ended", -1, 9});
    wait_for("tiny", Recovering);
    for (size_t rank = 0; rank < 2; ++rank)
      say(*worker_of[rank], ExecutorStopped{first[rank].attempt, first[rank].rank});
  }
  FakeWorker workers[2];
  FakeWorker* worker_of[2] = {};
};

TEST_F(RebalancedJob, that_loses_a_rank_starts_again_with_the_split_that_it_should_have_had) {
  for (int w = 0; w < 2; ++w) workers[w] = open(fmt::format("worker-{}", w));
  const auto outcome = submit({.spec_yaml = kUneven});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  ASSERT_EQ(outcome->notes.size(), 1u);
  EXPECT_THAT(outcome->notes[0], HasSubstr("nothing is moved before the job's next start"));
  train_and_lose_a_rank();
  const std::vector<Assignment> second = assigned();
  for (const Assignment& assignment : second)
    EXPECT_EQ(plan::to_text(assignment.split), "[[embedding, 0, 1, 2], [3, head]]");
  const StatusOr<JobView> view = get("tiny");
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->spec_yaml, second[0].spec_yaml);
  const auto is_told = [](const JobEventView& event) {
    return event.by == "rebalancer" && event.reason.find("goes on with another split") != std::string::npos;
  };
  EXPECT_EQ(std::count_if(view->events.begin(), view->events.end(), is_told), 1);
}

// The planner's own plan of the attempt fits.
TEST_F(RebalancedJob, starts_as_it_is_when_the_question_on_its_split_needs_more_memory_than_there_is) {
  ControllerOptions options;
  options.consider = [](const SplitQuestion&) -> SplitAnswer { throw std::bad_alloc(); };
  start(options);
  for (int w = 0; w < 2; ++w) workers[w] = open(fmt::format("worker-{}", w));
  ASSERT_TRUE(submit({.spec_yaml = kUneven}).ok());
  train_and_lose_a_rank();
  for (const Assignment& assignment : assigned())
    EXPECT_EQ(plan::to_text(assignment.split), "[[embedding, 0], [1, 2, 3, head]]");
}

}  // namespace
}  // namespace penstock::coordinator
