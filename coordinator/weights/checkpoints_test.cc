#include "coordinator/weights/checkpoints.h"

#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <utility>

#include "base/checkpoint/directory.h"
#include "base/safetensors/testing/written.h"
#include "coordinator/weights/testing/part.h"
#include "plan/spec/parameters.h"
#include "plan/spec/weights_digest.h"

namespace penstock::coordinator {
namespace {

using penstock::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class Checkpoints : public ::testing::Test {
 protected:
  Checkpoints() {
    spec_ = *plan::parse_job_spec(
        "name: tiny\n"
        "model: {vocab_size: 256, hidden_size: 4, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 6, "
        "max_position_embeddings: 8}\n"
        "data: {source: /data/text.txt, sequence_length: 8}\n"
        "train: {steps: 30, global_batch_size: 4, microbatch_size: 1}\n"
        "parallel: {pipeline: 2}\n"
        "checkpoint: {every: 10, keep: 2}\n");
  }

  CheckpointDraft draft(int64_t step, int64_t attempt = 1) const { return {place_, "tiny", attempt, step}; }
  CheckpointsWanted wanted(int64_t latest_step) const {
    return {place_, "tiny", /*is_own=*/true, latest_step};
  }

  // Parameters of the model whose place is `rank` modulo two, as a rank writes them; `change` spoils the part.
  void write_part(
      int rank, const CheckpointDraft& where,
      const std::function<void(std::vector<plan::ParameterSpec>&, CheckpointManifest&)>& change = {}) const {
    testing::Parameters mine;
    for (const auto& parameter : plan::model_parameters(spec_.model)) {
      if (parameter.index % 2 == rank) mine.push_back(parameter);
    }
    CheckpointManifest part = testing::empty_part(where, spec_);
    if (change) change(mine, part);
    testing::write_part(where, rank, 2, std::move(part), mine, mine);
  }
  StatusOr<std::string> written(int64_t step, int64_t attempt = 1) const {
    write_part(0, draft(step, attempt));
    write_part(1, draft(step, attempt));
    return commit_checkpoint(draft(step, attempt), spec_, 2);
  }
  std::vector<int64_t> steps() const {
    std::vector<int64_t> found;
    const std::vector<ListedCheckpoint> listed = *list_checkpoints(place_.directory);
    for (const ListedCheckpoint& one : listed) found.push_back(one.step);
    return found;
  }
  std::vector<std::string> hidden() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(place_.directory)) {
      if (entry.path().filename().string().starts_with("."))
        names.push_back(entry.path().filename().string());
    }
    return names;
  }

  plan::JobSpec spec_;
  TemporaryFolder state_{"penstock_checkpoints"};
  WeightsPlace place_{state_.path("jobs/tiny/checkpoints"), ".attempt-1"};
};

TEST_F(Checkpoints, parts_of_all_ranks_become_one_that_anybody_can_load) {
  ASSERT_TRUE(prepare_checkpoints(wanted(0), spec_.model).ok());
  const auto digest = written(10);
  ASSERT_TRUE(digest.ok()) << digest.status();
  const std::string path = place_.directory + "/step-000000010";
  const auto checkpoint = Checkpoint::open(path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_TRUE(checkpoint->verify().ok());
  EXPECT_EQ(checkpoint->manifest().samples, 40);
  EXPECT_EQ(checkpoint->manifest().spec_yaml, spec_.yaml);
  EXPECT_EQ(checkpoint->manifest().weights_digest, *digest);
  EXPECT_FALSE(std::filesystem::exists(path + "/" + part_name(0, 2)));
  // Hugging Face's reader sees the weights, and no moments.
  const auto folder = TensorFolder::open(path);
  ASSERT_TRUE(folder.ok()) << folder.status();
  std::vector<plan::TensorDigest> digests;
  std::vector<ExpectedTensor> expected;
  for (const auto& parameter : plan::model_parameters(spec_.model)) {
    expected.push_back({parameter.name, parameter.shape});
    std::vector<float> values(static_cast<size_t>(parameter.elements()));
    const TensorPlace place = folder->at(parameter.name);
    ASSERT_TRUE(place.file->read(*place.tensor, 0, values).ok());
    digests.push_back(digest_of(std::as_bytes(std::span(values))));
  }
  EXPECT_TRUE(folder->check(expected).ok());
  EXPECT_EQ(plan::weights_digest(spec_.model, digests), *digest);
}

TEST_F(Checkpoints, ranks_whose_parameters_others_write_have_parts_without_tensors) {
  // Replicas of what is dense and of experts: one of each is written. Such a part may have files without tensors, or none.
  for (const bool has_files : {true, false}) {
    const auto all = [&](std::vector<plan::ParameterSpec>& mine, CheckpointManifest&) {
      mine = plan::model_parameters(spec_.model);
    };
    const auto none = [](std::vector<plan::ParameterSpec>& mine, CheckpointManifest&) { mine.clear(); };
    const CheckpointDraft where = draft(has_files ? 10 : 20);
    write_part(0, where, all);
    write_part(1, where, none);
    if (!has_files) {
      const std::string folder =
          place_.directory + "/" + draft_name(where.job, where.attempt, where.step) + "/";
      const CheckpointManifest part = testing::empty_part(where, spec_);
      ASSERT_TRUE(write_atomically(folder + part_name(1, 2), format_manifest(part)).ok());
    }
    const auto digest = commit_checkpoint(where, spec_, 2);
    ASSERT_TRUE(digest.ok()) << digest.status();
    const auto checkpoint = Checkpoint::open(place_.directory + "/" + checkpoint_name(where.step));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    EXPECT_TRUE(checkpoint->verify().ok());
    EXPECT_TRUE(TensorFolder::open(checkpoint->path()).ok());
  }
}

TEST_F(Checkpoints, that_of_a_mixtral_has_the_names_that_its_readers_ask_for) {
  spec_.model.moe = {.num_experts = 2,
                     .num_experts_per_tok = 1,
                     .moe_intermediate_size = 6,
                     .layers = {0, 1},
                     .norm_topk_prob = true};
  ASSERT_TRUE(plan::is_mixtral(spec_.model));
  const auto digest = written(10);
  ASSERT_TRUE(digest.ok()) << digest.status();
  const auto folder = TensorFolder::open(place_.directory + "/step-000000010");
  ASSERT_TRUE(folder.ok()) << folder.status();
  std::vector<ExpectedTensor> expected;
  for (const auto& parameter : plan::model_parameters(spec_.model))
    expected.push_back({parameter.stored_name, parameter.shape});
  EXPECT_TRUE(folder->check(expected).ok()) << folder->check(expected);
}

TEST_F(Checkpoints, newest_ones_are_kept) {
  for (const int64_t step : {10, 20, 30}) ASSERT_TRUE(written(step).ok());
  EXPECT_THAT(steps(), ElementsAre(30, 20));
}

TEST_F(Checkpoints, damaged_one_does_not_cost_the_good_ones_that_follow_an_earlier_start) {
  spec_.checkpoint.keep = 1;
  ASSERT_TRUE(written(30).ok());
  std::filesystem::resize_file(place_.directory + "/step-000000030/moments-00001-of-00002.safetensors", 100);
  ASSERT_TRUE(prepare_checkpoints(wanted(1000), spec_.model)->path.empty());
  for (const int64_t step : {10, 20}) {
    ASSERT_TRUE(written(step, 2).ok());
    EXPECT_EQ(prepare_checkpoints(wanted(1000), spec_.model)->step, step);
  }
  EXPECT_THAT(steps(), ElementsAre(30, 20));
  ASSERT_TRUE(written(30, 2).ok());  // in its place
  EXPECT_THAT(steps(), ElementsAre(30));
  EXPECT_EQ(prepare_checkpoints(wanted(1000), spec_.model)->step, 30);
}

TEST_F(Checkpoints, later_attempt_starts_from_the_newest_whole_one_on_record) {
  ASSERT_TRUE(prepare_checkpoints(wanted(0), spec_.model)->path.empty());
  for (const int64_t step : {10, 20}) ASSERT_TRUE(written(step).ok());
  write_part(0, draft(30));  // the other rank was lost
  const auto start = prepare_checkpoints(wanted(1000), spec_.model);
  ASSERT_TRUE(start.ok()) << start.status();
  EXPECT_EQ(start->path, place_.directory + "/step-000000020");
  EXPECT_EQ(start->step, 20);
  EXPECT_THAT(start->refused, IsEmpty());
  EXPECT_THAT(hidden(), ElementsAre(".attempt-1"));
  EXPECT_EQ(prepare_checkpoints(wanted(15), spec_.model)->step, 10);

  std::filesystem::resize_file(place_.directory + "/step-000000020/moments-00001-of-00002.safetensors", 100);
  const auto older = prepare_checkpoints(wanted(1000), spec_.model);
  EXPECT_EQ(older->step, 10);
  ASSERT_THAT(older->refused, SizeIs(1));
  EXPECT_THAT(older->refused[0], HasSubstr("step-000000020/moments-00001-of-00002.safetensors"));
}

TEST_F(Checkpoints, one_of_another_job_is_neither_replaced_nor_gone_on_from) {
  ASSERT_TRUE(written(10).ok());
  const CheckpointDraft other{place_, "other", 1, 10};
  for (int rank = 0; rank < 2; ++rank) write_part(rank, other);
  const auto refused = commit_checkpoint(other, spec_, 2);
  EXPECT_EQ(refused.status().code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(message(refused.status()), HasSubstr("of job other, found one of job tiny"));
  CheckpointsWanted wanted_by_other = wanted(1000);
  wanted_by_other.job = "other";
  EXPECT_EQ(prepare_checkpoints(wanted_by_other, spec_.model)->path, "");
  EXPECT_EQ(prepare_checkpoints(wanted(1000), spec_.model)->step, 10);
}

TEST_F(Checkpoints, those_of_an_earlier_job_are_never_gone_on_from) {
  ASSERT_TRUE(written(10).ok());
  const auto start = prepare_checkpoints(wanted(0), spec_.model);
  ASSERT_TRUE(start.ok()) << start.status();
  EXPECT_EQ(start->path, "");
  EXPECT_THAT(steps(), IsEmpty());
  EXPECT_TRUE(std::filesystem::exists(place_.directory + "-1/step-000000010"));

  ASSERT_TRUE(written(20).ok());
  CheckpointsWanted foreign = wanted(0);
  foreign.is_own = false;
  const auto refused = prepare_checkpoints(foreign, spec_.model);
  EXPECT_EQ(refused.status().code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(message(refused.status()), HasSubstr("found step-000000020 of an earlier job"));
  EXPECT_THAT(steps(), ElementsAre(20));
}

TEST_F(Checkpoints, tensor_that_is_missing_or_twice_there_is_named_and_the_one_before_stays) {
  // A rank that forgets a layer must not leave it as it was initialised.
  ASSERT_TRUE(written(10).ok());
  write_part(0, draft(20));
  write_part(1, draft(20), [](auto& mine, auto&) { mine.pop_back(); });
  EXPECT_THAT(message(commit_checkpoint(draft(20), spec_, 2).status()), HasSubstr("found from none"));
  write_part(1, draft(20),
             [&](auto& mine, auto&) { mine.push_back(plan::model_parameters(spec_.model).front()); });
  EXPECT_THAT(message(commit_checkpoint(draft(20), spec_, 2).status()),
              HasSubstr("tensor model.embed_tokens.weight: expected from one rank, found from two"));
  write_part(1, draft(20), [](auto& mine, auto&) { mine.back().shape = {1, mine.back().elements()}; });
  EXPECT_THAT(message(commit_checkpoint(draft(20), spec_, 2).status()), HasSubstr("shape: expected"));
  EXPECT_THAT(steps(), ElementsAre(10));
}

TEST_F(Checkpoints, part_that_is_missing_or_of_something_else_is_refused_by_name) {
  write_part(0, draft(20));
  EXPECT_THAT(message(commit_checkpoint(draft(20), spec_, 2).status()),
              HasSubstr("part-00001-of-00002.json"));
  write_part(1, draft(20), [](auto&, auto& part) { part.step = 10; });
  EXPECT_THAT(message(commit_checkpoint(draft(20), spec_, 2).status()),
              HasSubstr("step: expected 20, found 10"));
  write_part(1, draft(20), [](auto&, auto& part) { part.spec_yaml += "# edited\n"; });
  EXPECT_THAT(message(commit_checkpoint(draft(20), spec_, 2).status()), HasSubstr("spec_yaml"));
  EXPECT_THAT(steps(), IsEmpty());
  ASSERT_TRUE(discard_checkpoint(draft(20)).ok());
  EXPECT_THAT(hidden(), IsEmpty());
}

TEST_F(Checkpoints, place_that_is_relative_is_refused) {
  CheckpointsWanted relative = wanted(0);
  relative.place.directory = "run";
  EXPECT_THAT(message(prepare_checkpoints(relative, spec_.model).status()),
              HasSubstr("expected an absolute path"));
}

// What another job has written, at step 10; `from` names it.
class FromAnother : public Checkpoints {
 protected:
  FromAnother() {
    EXPECT_TRUE(written(10).ok());
    from_ = {.path = place_.directory + "/step-000000010", .step = 10, .samples = 40};
  }
  CheckpointsWanted begins(int64_t latest_step) const {
    return {{own_.path() + "/checkpoints", ".attempt-9"}, "next", /*is_own=*/true, latest_step, from_};
  }
  // Names and bytes of every file of the other job.
  std::map<std::string, std::string> all_of_it() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(place_.directory)) {
      if (!entry.is_regular_file()) continue;
      std::ifstream file(entry.path(), std::ios::binary);
      files[entry.path()].assign(std::istreambuf_iterator<char>(file), {});
    }
    return files;
  }

  TemporaryFolder own_{"penstock_checkpoints_of_next"};
  plan::StartSpec from_;
};

TEST_F(FromAnother, job_begins_with_its_checkpoint_and_leaves_it_as_it_is) {
  const auto before = all_of_it();
  for (const CheckpointsWanted& wanted :
       {begins(10), begins(14), CheckpointsWanted{{}, "next", true, 10, from_}}) {
    const StatusOr<StartingCheckpoint> start = prepare_checkpoints(wanted, spec_.model);
    ASSERT_TRUE(start.ok()) << start.status();
    EXPECT_EQ(start->path, from_.path);
    EXPECT_EQ(start->step, 10);
    EXPECT_EQ(start->other_job, "tiny");
    EXPECT_EQ(start->fingerprint, "test");
  }
  EXPECT_EQ(all_of_it(), before);
}

TEST_F(FromAnother, checkpoint_of_its_own_comes_first) {
  ASSERT_TRUE(prepare_checkpoints(begins(10), spec_.model).ok());
  const CheckpointDraft mine{begins(10).place, "next", 1, 20};
  const WeightsPlace theirs = std::exchange(place_, mine.place);
  for (int rank = 0; rank < 2; ++rank) write_part(rank, mine);
  ASSERT_TRUE(commit_checkpoint(mine, spec_, 2).ok());
  place_ = theirs;
  const StatusOr<StartingCheckpoint> start = prepare_checkpoints(begins(25), spec_.model);
  ASSERT_TRUE(start.ok()) << start.status();
  EXPECT_EQ(start->step, 20);
  EXPECT_EQ(start->other_job, "");
  EXPECT_EQ(find_checkpoint(mine.place.directory, "next", 25)->step, 20);
  EXPECT_EQ(find_checkpoint(mine.place.directory, "next", 19)->step, 0);
  EXPECT_EQ(find_checkpoint(mine.place.directory, "tiny", 25)->step, 0);
}

TEST_F(FromAnother, those_of_an_earlier_job_of_its_name_are_moved_aside) {
  const WeightsPlace theirs = std::exchange(place_, begins(10).place);
  const CheckpointDraft earlier{place_, "next", 1, 20};
  for (int rank = 0; rank < 2; ++rank) write_part(rank, earlier);
  ASSERT_TRUE(commit_checkpoint(earlier, spec_, 2).ok());
  EXPECT_EQ(prepare_checkpoints(begins(10), spec_.model)->path, from_.path);
  EXPECT_THAT(steps(), IsEmpty());
  EXPECT_TRUE(std::filesystem::exists(place_.directory + "-1/step-000000020"));
  place_ = theirs;
}

TEST_F(FromAnother, damaged_removed_or_replaced_one_is_refused_with_what_to_do) {
  const auto refusal = [&] { return message(prepare_checkpoints(begins(10), spec_.model).status()); };
  from_.samples = 80;
  EXPECT_THAT(refusal(),
              HasSubstr("expected 10 steps of 80 sequences, found 10 of 40: it has been replaced"));
  from_.samples = 40;
  plan::ModelSpec wider = spec_.model;
  wider.intermediate_size = 8;
  EXPECT_THAT(message(prepare_checkpoints(begins(10), wider).status()),
              HasSubstr("mlp.gate_proj.weight at offset"));
  from_.step = 20;
  EXPECT_THAT(message(prepare_checkpoints(begins(20), spec_.model).status()),
              HasSubstr("expected 20 steps of 40 sequences, found 10 of 40: it has been replaced"));
  from_.step = 10;
  const std::string shard = from_.path + "/moments-00001-of-00002.safetensors";
  {
    std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('x');
  }
  EXPECT_THAT(refusal(), HasSubstr("restart.from: " + shard + ": tensor exp_avg_sq."));
  std::filesystem::resize_file(shard, std::filesystem::file_size(shard) - 1);
  EXPECT_THAT(refusal(), HasSubstr("restart.from: " + shard + ": expected"));
  std::filesystem::remove_all(from_.path);
  EXPECT_THAT(refusal(), HasSubstr("its job may have removed it since (checkpoint.keep)"));
}

TEST_F(FromAnother, folder_of_its_own_that_holds_it_is_refused_before_anything_is_moved) {
  CheckpointsWanted wanted = begins(10);
  wanted.place = place_;
  const auto before = all_of_it();
  EXPECT_THAT(message(prepare_checkpoints(wanted, spec_.model).status()),
              HasSubstr("is in the folder of this job's own checkpoints"));
  EXPECT_EQ(all_of_it(), before);
}

TEST_F(Checkpoints, what_an_attempt_has_not_finished_is_removed_unless_somebody_else_has_the_directory) {
  ASSERT_TRUE(prepare_checkpoints(wanted(0), spec_.model).ok());
  write_part(0, draft(10));
  std::filesystem::create_directories(place_.directory + "/" + draft_name("tiny-2", 1, 10));
  WeightsPlace before = place_;
  before.marker = ".attempt-of-another";
  ASSERT_TRUE(remove_unfinished(before, "tiny").ok());
  EXPECT_TRUE(std::filesystem::exists(place_.directory + "/" + draft_name("tiny", 1, 10)));
  ASSERT_TRUE(remove_unfinished(place_, "tiny").ok());
  EXPECT_FALSE(std::filesystem::exists(place_.directory + "/" + draft_name("tiny", 1, 10)));
  EXPECT_TRUE(std::filesystem::exists(place_.directory + "/" + draft_name("tiny-2", 1, 10)));
}

// A directory that a person named, which two coordinators may be told of.
class NamedDirectory : public Checkpoints {
 protected:
  CheckpointsWanted named(const std::string& job, const std::string& directory) const {
    return {{directory, ".attempt-1"}, job, /*is_own=*/false, 0};
  }
};

TEST_F(NamedDirectory, has_one_live_job_of_whatever_coordinator_and_path) {
  const std::string directory = state_.path("kept");
  std::optional<FileLock> held = lock_checkpoints(named("tiny", directory)).value();
  ASSERT_TRUE(held.has_value());
  std::filesystem::create_directory_symlink(directory, state_.path("also"));
  for (const char* job : {"tiny", "other"}) {
    const auto refused = lock_checkpoints(named(job, state_.path("also")));
    EXPECT_EQ(refused.status().code(), StatusCode::kAlreadyExists);
    EXPECT_THAT(message(refused.status()), HasSubstr("held by job tiny of the coordinator that is process"));
  }
  held.reset();
  EXPECT_TRUE(lock_checkpoints(named("other", directory)).ok());
}

TEST_F(NamedDirectory, is_not_locked_where_it_is_the_coordinators_own) {
  EXPECT_FALSE(lock_checkpoints(wanted(0))->has_value());
  EXPECT_FALSE(lock_checkpoints({{}, "tiny", /*is_own=*/false, 0})->has_value());
  EXPECT_THAT(message(lock_checkpoints(named("tiny", "run")).status()),
              HasSubstr("expected an absolute path"));
}

TEST_F(NamedDirectory, that_cannot_be_made_is_told_by_its_path) {
  state_.write("file", "mine");
  EXPECT_THAT(message(lock_checkpoints(named("tiny", state_.path("file/run"))).status()),
              HasSubstr("file/run cannot be made"));
}

}  // namespace
}  // namespace penstock::coordinator
