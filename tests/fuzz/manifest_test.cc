// A checkpoint's manifest comes from a disk: damage to it may do no more than be refused, also where somebody has
// given the damaged text the digest that belongs to it.
#include <gtest/gtest.h>

#include "base/checkpoint/manifest.h"
#include "base/text.h"
#include "tests/fuzz/mutator.h"

namespace penstock {
namespace {

using fuzz::Mutator;
using fuzz::Rounds;

constexpr int kRounds = 4000;

CheckpointManifest small_manifest() {
  CheckpointManifest manifest;
  manifest.job = "fuzz";
  manifest.step = 7;
  manifest.samples = 56;
  manifest.spec_yaml = "name: fuzz\n";
  manifest.texts = {{"config.json", 2, digest_of("{}")}};
  manifest.shards = {
      {"rank-00000-of-00001.safetensors", {{"a", {2, 3}, digest_of("a")}, {"b", {}, digest_of("b")}}}};
  return manifest;
}

// The object with the digest that it must end with.
std::string sealed(std::string body) {
  if (!body.empty()) body.pop_back();
  return body + ",\"digest\":\"" + hex(digest_of(std::string_view(body))) + "\"}\n";
}

TEST(ManifestFuzz, damaged_text_is_refused) {
  Mutator mutator("manifest");
  SCOPED_TRACE(fmt::format("PENSTOCK_FUZZ_SEED={}", mutator.seed()));
  const std::string whole = format_manifest(small_manifest());
  for (Rounds rounds(kRounds); rounds.next();) {
    const std::string damaged = mutator.mutated(whole);
    EXPECT_TRUE(damaged == whole || !parse_manifest(damaged).ok()) << damaged;
  }
}

TEST(ManifestFuzz, text_with_a_digest_of_its_own_is_read_or_refused) {
  Mutator mutator("sealed manifest",
                  {"step", "shards", "tensors", "shape", "digest", "[", "]", "{}", "null", "-1", "1e99",
                   "18446744073709551615", "4398046511104", "\"..\"", "/", "\\u0000"});
  SCOPED_TRACE(fmt::format("PENSTOCK_FUZZ_SEED={}", mutator.seed()));
  const std::string whole = format_manifest(small_manifest());
  const std::string body = whole.substr(0, whole.rfind(",\"digest\":")) + "}";
  ASSERT_EQ(sealed(body), whole);
  int read = 0;
  for (Rounds rounds(kRounds); rounds.next();) {
    const auto manifest = parse_manifest(sealed(mutator.mutated(body)));
    if (!manifest.ok()) continue;
    ++read;
    // What was read is written and read again as the same.
    const auto again = parse_manifest(format_manifest(*manifest));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(*again, *manifest);
    for (const CheckpointShard& shard : manifest->shards) EXPECT_GE(shard.data_bytes(), 0);
  }
  EXPECT_GT(read, 0);
}

}  // namespace
}  // namespace penstock
