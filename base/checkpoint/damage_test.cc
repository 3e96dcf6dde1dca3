// Checkpoints with a seeded piece of damage: none is accepted, none crashes. 1,000 with PENSTOCK_TEST_SCALE=full.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <random>

#include "base/checkpoint/testing/sample.h"
#include "base/safetensors/testing/written.h"
#include "base/text.h"

namespace penstock {
namespace {

using testing::load_sample;
using testing::TemporaryFolder;
using testing::write_sample;

const std::vector<std::string> kShards = {
    "rank-00000-of-00002.safetensors", "rank-00001-of-00002.safetensors",
    "moments-00000-of-00002.safetensors", "moments-00001-of-00002.safetensors"};

class Damage {
 public:
  Damage(const TemporaryFolder& folder, uint64_t seed) : folder_(folder), random_(seed) {}

  // Does one thing to the checkpoint, and says what.
  std::string one() {
    switch (below(10)) {
      case 0:
      case 1:
      case 2:
        return flip();
      case 3:
        return cut();
      case 4:
        return zero();
      case 5:
        return swap_shards();
      case 6:
        return take_from_another_step();
      case 7:
        return grow();
      case 8:
        return lose();
      default:
        return reseal();
    }
  }

 private:
  size_t below(size_t limit) { return random_() % limit; }
  std::string any_file() {
    const size_t which = below(kShards.size() + 2);
    if (which < kShards.size()) return kShards[which];
    return which == kShards.size() ? "config.json" : kManifestFile;
  }
  static std::string in(const std::string& name) { return "step-000000050/" + name; }
  std::string bytes_of(const std::string& name) const { return folder_.read(in(name)); }
  void put(const std::string& name, const std::string& bytes) const { folder_.write(in(name), bytes); }

  std::string flip() {
    const std::string name = any_file();
    std::string bytes = bytes_of(name);
    const size_t at = below(bytes.size());
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
    put(name, bytes);
    return fmt::format("a bit of {} flipped at {}", name, at);
  }
  std::string cut() {
    const std::string name = any_file();
    const std::string bytes = bytes_of(name);
    const size_t kept = below(bytes.size());
    put(name, bytes.substr(0, kept));
    return fmt::format("{} cut to {}", name, kept);
  }
  // As a disk that lost a block: of the length that it had.
  std::string zero() {
    const std::string name = any_file();
    std::string bytes = bytes_of(name);
    const size_t first = below(bytes.size() - 4);
    const size_t count = std::min<size_t>(4 + below(64), bytes.size() - first);
    std::string zeros(count, '\0');
    if (bytes.substr(first, count) == zeros) zeros[0] = 1;
    bytes.replace(first, count, zeros);
    put(name, bytes);
    return fmt::format("{} of {} zeroed from {}", count, name, first);
  }
  std::string swap_shards() {
    const size_t a = below(kShards.size());
    const size_t b = (a + 1 + below(kShards.size() - 1)) % kShards.size();
    const std::string first = bytes_of(kShards[a]);
    put(kShards[a], bytes_of(kShards[b]));
    put(kShards[b], first);
    return fmt::format("{} and {} swapped", kShards[a], kShards[b]);
  }
  std::string take_from_another_step() {
    const std::string name = kShards[below(kShards.size())];
    put(name, folder_.read("step-000000040/" + name));
    return name + " of another step";
  }
  std::string grow() {
    const std::string name = any_file();
    put(name, bytes_of(name) + std::string(1 + below(9), static_cast<char>(below(256))));
    return name + " grown";
  }
  std::string lose() {
    const std::string name = any_file();
    std::filesystem::remove(folder_.path(in(name)));
    return name + " lost";
  }
  // By somebody who knows the format.
  std::string reseal() {
    auto manifest = *parse_manifest(bytes_of(kManifestFile));
    CheckpointShard& shard = manifest.shards[below(manifest.shards.size())];
    CheckpointTensor& tensor = shard.tensors[below(shard.tensors.size())];
    std::string what;
    switch (below(6)) {
      case 0:
        what = "another step";
        ++manifest.step;
        break;
      case 1:
        what = "another digest";
        tensor.digest[below(16)] ^= 1;
        break;
      case 2:
        what = "another name";
        tensor.name += "_";
        break;
      case 3:
        what = "a tensor forgotten";
        shard.tensors.pop_back();
        break;
      case 4:
        what = "a shard forgotten";
        manifest.shards.erase(manifest.shards.begin() +
                              static_cast<std::ptrdiff_t>(below(manifest.shards.size())));
        break;
      default:
        what = "another shape";
        tensor.shape = {tensor.elements(), 1, 1};
        break;
    }
    put(kManifestFile, format_manifest(manifest));
    return "manifest resealed: " + what;
  }

  const TemporaryFolder& folder_;
  std::mt19937_64 random_;
};

TEST(DamagedCheckpoints, none_is_accepted_and_the_newest_whole_one_is_used) {
  const char* scale = std::getenv("PENSTOCK_TEST_SCALE");
  const int count = scale != nullptr && std::string(scale) == "full" ? 1000 : 120;
  const auto expected = testing::sample_tensors();
  const TemporaryFolder whole("penstock_damage_whole");
  write_sample(whole.path(), 40);
  write_sample(whole.path(), 50);
  ASSERT_TRUE(load_sample(whole.path("step-000000050")).ok());
  for (int seed = 1; seed <= count; ++seed) {
    const TemporaryFolder folder("penstock_damage_test");
    std::filesystem::copy(whole.path(), folder.path(), std::filesystem::copy_options::recursive);
    const std::string what = Damage(folder, static_cast<uint64_t>(seed)).one();
    const Status loaded = load_sample(folder.path("step-000000050"));
    EXPECT_FALSE(loaded.ok()) << "seed " << seed << ": " << what;
    EXPECT_NE(message(loaded).find("step-000000050"), std::string::npos) << message(loaded);
    const auto newest = newest_checkpoint(folder.path(), "sample", 1000, expected);
    ASSERT_TRUE(newest.ok()) << newest.status();
    ASSERT_TRUE(newest->checkpoint.has_value()) << "seed " << seed << ": " << what;
    EXPECT_EQ(newest->checkpoint->manifest().step, 40) << "seed " << seed << ": " << what;
    EXPECT_EQ(newest->refused, std::vector<std::string>{message(loaded)}) << "seed " << seed << ": " << what;
  }
}

}  // namespace
}  // namespace penstock
