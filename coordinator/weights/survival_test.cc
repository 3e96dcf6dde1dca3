// Checkpoints of four ranks that share out experts and optimizer state, as they stand after a coordinator was killed while
// it made one, and after something has happened to one. More of both with PENSTOCK_TEST_SCALE=full.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <random>

#include "base/checkpoint/directory.h"
#include "base/checkpoint/testing/damage.h"
#include "coordinator/weights/testing/part.h"

namespace penstock::coordinator {
namespace {

using penstock::testing::Damage;
using penstock::testing::TemporaryFolder;

constexpr int kRanks = 4;

bool at_full_scale() {
  const char* scale = std::getenv("PENSTOCK_TEST_SCALE");
  return scale != nullptr && std::string(scale) == "full";
}

plan::JobSpec job() {
  return plan::parse_job_spec(
             "name: tiny\n"
             "model: {vocab_size: 256, hidden_size: 4, num_hidden_layers: 2, num_attention_heads: 2, "
             "intermediate_size: 6, max_position_embeddings: 8, "
             "moe: {num_experts: 2, num_experts_per_tok: 1, moe_intermediate_size: 4}}\n"
             "data: {source: /data/text.txt, sequence_length: 8}\n"
             "train: {steps: 30, global_batch_size: 4, microbatch_size: 1}\n"
             "parallel: {pipeline: 1, expert: 2, data: 2, shard_optimizer: true}\n"
             "checkpoint: {every: 10, keep: 1}\n")
      .value();
}

// Rank 0 writes what is dense and its experts, rank 1 its experts, the others are replicas; everybody has moments of some.
CheckpointDraft write_parts(const WeightsPlace& place, const plan::JobSpec& spec, int64_t step) {
  CheckpointDraft draft{place, "tiny", 1, step};
  std::vector<testing::Parameters> weights(kRanks), moments(kRanks);
  for (const auto& parameter : plan::model_parameters(spec.model)) {
    const bool is_of_second_expert = parameter.name.find("experts.1.") != std::string::npos;
    weights[is_of_second_expert ? 1 : 0].push_back(parameter);
    moments[static_cast<size_t>(parameter.index) % kRanks].push_back(parameter);
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto r = static_cast<size_t>(rank);
    testing::write_part(draft, rank, kRanks, testing::empty_part(draft, spec), weights[r], moments[r]);
  }
  return draft;
}

StatusOr<std::string> write_one(const WeightsPlace& place, const plan::JobSpec& spec, int64_t step) {
  return commit_checkpoint(write_parts(place, spec, step), spec, kRanks);
}

class Survival : public ::testing::Test {
 protected:
  // What the next attempt of the job starts from.
  static StatusOr<StartingCheckpoint> start(const std::string& directory, const plan::JobSpec& spec) {
    return prepare_checkpoints({{directory, ".attempt-2"}, "tiny", /*is_own=*/true, 1 << 20}, spec.model);
  }
  const plan::JobSpec spec_ = job();
};

[[noreturn]] void write_until_killed(const WeightsPlace& place, const plan::JobSpec& spec, int told) {
  for (int64_t step = 1;; ++step) {
    if (!write_one(place, spec, step).ok()) _exit(1);
    (void)!write(told, &step, sizeof step);
  }
}

TEST_F(Survival, of_a_kill_while_one_is_made_joined_or_thinned_out) {
  const int kills = at_full_scale() ? 200 : 10;
  std::mt19937_64 random(11);
  for (int kill_number = 0; kill_number < kills; ++kill_number) {
    const TemporaryFolder folder("penstock_survival_kill");
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) write_until_killed({folder.path(), ".attempt-1"}, spec_, ends[1]);
    close(ends[1]);
    int64_t committed = 0;
    for (uint64_t wanted = 1 + random() % 2; wanted > 0; --wanted)
      ASSERT_EQ(read(ends[0], &committed, sizeof committed), static_cast<ssize_t>(sizeof committed));
    usleep(static_cast<useconds_t>(random() % 12'000));
    ::kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    while (read(ends[0], &committed, sizeof committed) == static_cast<ssize_t>(sizeof committed)) {
    }
    close(ends[0]);
    const auto started = start(folder.path(), spec_);
    ASSERT_TRUE(started.ok()) << started.status();
    EXPECT_GE(started->step, committed) << "kill " << kill_number;
    EXPECT_TRUE(started->refused.empty()) << started->refused.front();
    for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
      EXPECT_FALSE(entry.path().filename().string().starts_with(kDraftPrefix)) << entry.path();
  }
}

// In a process of its own: a limit to the size of files stands for a disk that takes no more. 0: refused, and said where.
int commit_within(rlim_t bytes_max, const CheckpointDraft& draft, const plan::JobSpec& spec) {
  const pid_t child = fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes_max, bytes_max};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
    const Status status = commit_checkpoint(draft, spec, kRanks).status();
    _exit(!status.ok() && message(status).starts_with(draft.place.directory) ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(Survival, of_a_disk_that_takes_no_more_by_the_one_before_it) {
  const TemporaryFolder folder("penstock_survival_full");
  const WeightsPlace place{folder.path(), ".attempt-1"};
  ASSERT_TRUE(write_one(place, spec_, 10).ok());
  const std::string manifest = folder.path("step-000000010/") + kManifestFile;
  const auto whole = static_cast<rlim_t>(std::filesystem::file_size(manifest));
  for (const rlim_t bytes_max : {rlim_t{0}, rlim_t{100}, whole / 2, whole - 1}) {
    const CheckpointDraft draft = write_parts(place, spec_, 20);
    EXPECT_EQ(commit_within(bytes_max, draft, spec_), 0) << bytes_max;
    ASSERT_TRUE(discard_checkpoint(draft).ok());
    const auto started = start(folder.path(), spec_);
    ASSERT_TRUE(started.ok()) << started.status();
    EXPECT_EQ(started->step, 10);
    EXPECT_TRUE(started->refused.empty());
  }
  EXPECT_EQ(commit_within(whole, write_parts(place, spec_, 20), spec_), 1);  // it fits
  EXPECT_EQ(start(folder.path(), spec_)->step, 20);
}

TEST_F(Survival, of_older_ones_that_cannot_be_removed) {
  // The new one is whole, has its name and is what the next attempt starts from: to say otherwise would cost it.
  const TemporaryFolder folder("penstock_survival_stuck");
  const pid_t child = fork();
  if (child == 0) {  // as somebody whom permissions stop
    constexpr uid_t kNobody = 65534;
    if (geteuid() == 0 && (chown(folder.path().c_str(), kNobody, kNobody) != 0 || setuid(kNobody) != 0))
      _exit(2);
    const WeightsPlace place{folder.path(), ".attempt-1"};
    if (!write_one(place, spec_, 10).ok()) _exit(3);
    std::filesystem::permissions(folder.path("step-000000010"), std::filesystem::perms(0555));
    _exit(write_one(place, spec_, 20).ok() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  std::filesystem::permissions(folder.path(".removed-step-000000010"), std::filesystem::perms(0755));
  EXPECT_EQ(start(folder.path(), spec_)->step, 20);
}

TEST_F(Survival, of_damage_by_the_one_before_it) {
  plan::JobSpec spec = spec_;
  spec.checkpoint.keep = 2;
  const TemporaryFolder whole("penstock_survival_whole");
  for (const int64_t step : {40, 50}) ASSERT_TRUE(write_one({whole.path(), ".attempt-1"}, spec, step).ok());
  ASSERT_EQ(start(whole.path(), spec)->step, 50);
  const int count = at_full_scale() ? 1000 : 40;
  for (int seed = 1; seed <= count; ++seed) {
    const TemporaryFolder folder("penstock_survival_damage");
    std::filesystem::copy(whole.path(), folder.path(), std::filesystem::copy_options::recursive);
    const std::string what =
        Damage(folder, "step-000000050", "step-000000040", static_cast<uint64_t>(seed)).one();
    const auto started = start(folder.path(), spec_);
    ASSERT_TRUE(started.ok()) << started.status();
    EXPECT_EQ(started->step, 40) << "seed " << seed << ": " << what;
    ASSERT_EQ(started->refused.size(), 1u) << "seed " << seed << ": " << what;
    EXPECT_NE(started->refused[0].find("step-000000050"), std::string::npos) << started->refused[0];
  }
}

}  // namespace
}  // namespace penstock::coordinator
