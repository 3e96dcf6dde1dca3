// A model of more layers than sort the same as text and as numbers, written by ranks and read by other ranks: which
// stage held a layer, and how its name sorts, must not decide where its weights go.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/spec/weights_digest.h"
#include "worker/executor/testing/side_by_side.h"

namespace penstock::worker {
namespace {

constexpr int kLayers = 101;

// In model order.
std::vector<plan::TensorDigest> in_order(const Result& result) {
  std::vector<plan::TensorDigest> digests;
  for (const auto& [parameter, digest] : result.digests) digests.push_back(digest);
  return digests;
}

// The rank that wrote a tensor, of `ranks`; -1: none did.
int writer_of(const Checkpoint& checkpoint, const std::string& tensor, int ranks) {
  for (const CheckpointShard& shard : checkpoint.manifest().shards) {
    for (const CheckpointTensor& one : shard.tensors) {
      for (int rank = 0; rank < ranks && one.name == tensor; ++rank) {
        if (shard.name == tensor_file_name("rank", rank, ranks)) return rank;
      }
    }
  }
  return -1;
}

struct Move {
  Shape saver, other;

  friend void PrintTo(const Move& move, std::ostream* out) {
    PrintTo(move.saver, out);
    *out << " -> ";
    PrintTo(move.other, out);
  }
};

Shape many_layers(int pipeline, const char* schedule, int stages_per_rank = 1) {
  return {.pipeline = pipeline,
          .schedule = schedule,
          .stages_per_rank = stages_per_rank,
          .extra = "checkpoint: {every: 2}\n",
          .layers = kLayers};
}

class ManyLayers : public ::testing::TestWithParam<Move> {};

TEST_P(ManyLayers, of_a_checkpoint_are_each_where_they_belong_on_any_cut) {
  const auto& [saver, other] = GetParam();
  const plan::ModelSpec model = job_of(saver).model;
  const Result whole = train(saver, {.writes = true});
  const std::string path = commit(saver, 2);
  const Checkpoint checkpoint = *Checkpoint::open(path);
  // No layer is numbered from the first of its stage.
  EXPECT_EQ(writer_of(checkpoint, "model.layers.0.mlp.up_proj.weight", saver.pipeline), 0);
  EXPECT_EQ(writer_of(checkpoint, "model.layers.100.mlp.up_proj.weight", saver.pipeline), saver.pipeline - 1);
  EXPECT_EQ(writer_of(checkpoint, "model.layers.101.mlp.up_proj.weight", saver.pipeline), -1);

  Shape loaded = other;
  loaded.steps = 2;
  const Result at_load = train(loaded, {.load_from = path, .first_step = 2});
  std::vector<plan::TensorDigest> written;
  std::set<plan::TensorDigest> matrices;  // all different: none can stand in another one's place unseen
  for (const plan::ParameterSpec& spec : plan::model_parameters(model)) {
    written.push_back(checkpoint.find(spec.name)->digest);
    EXPECT_TRUE(matrices.insert(written.back()).second) << spec.name;
    EXPECT_EQ(at_load.digests.at(spec.index), written.back()) << spec.name;
  }
  EXPECT_EQ(plan::weights_digest(model, in_order(at_load)), plan::weights_digest(model, written));

  const Result rest = train(other, {.load_from = path, .first_step = 2});
  EXPECT_EQ(rest.losses, std::vector<double>(whole.losses.begin() + 2, whole.losses.end()));
  EXPECT_EQ(rest.digests, whole.digests);
  std::filesystem::remove_all(path);
}

INSTANTIATE_TEST_SUITE_P(
    Cuts, ManyLayers,
    ::testing::Values(Move{many_layers(4, "interleaved-1f1b", 2), many_layers(3, "zb-h1")},
                      Move{many_layers(4, "interleaved-1f1b", 2), many_layers(1, "1f1b")},
                      // From one stage a rank to several, whose second ones must not be left as they began.
                      Move{many_layers(3, "1f1b"), many_layers(2, "zb-v", 2)}));

}  // namespace
}  // namespace penstock::worker
