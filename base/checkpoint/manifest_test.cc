#include "base/checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock {
namespace {

using ::testing::HasSubstr;

CheckpointManifest sample() {
  CheckpointManifest manifest;
  manifest.job = "quickstart";
  manifest.step = 50;
  manifest.samples = 1600;
  manifest.spec_yaml = "name: quickstart # \"quotes\", \\ and \xc3\xa9\n";
  manifest.fingerprint = "AVX-512, oneDNN 2.7";
  manifest.weights_digest = "0123456789abcdef0123456789abcdef";
  manifest.texts = {{"config.json", 12, digest_of("config")}};
  manifest.shards = {
      {"rank-00000-of-00002.safetensors", {{"a", {2, 3}, digest_of("a")}, {"b", {}, digest_of("b")}}},
      {"rank-00001-of-00002.safetensors", {{"c", {0}, digest_of("c")}}}};
  return manifest;
}

// The text with a digest that belongs to it: what somebody wrote who knows the format.
std::string resealed(std::string text, const std::string& from, const std::string& to) {
  text.replace(text.find(from), from.size(), to);
  const size_t suffix = text.rfind(",\"digest\":");
  const std::string body = text.substr(0, suffix);
  std::string digits;
  for (const uint8_t byte : digest_of(std::string_view(body))) digits += fmt::format("{:02x}", byte);
  return body + ",\"digest\":\"" + digits + "\"}\n";
}

std::string error_of(const std::string& text) {
  const auto manifest = parse_manifest(text);
  return manifest.ok() ? "" : message(manifest.status());
}

TEST(Manifest, reads_back_as_it_was_written) {
  const auto read = parse_manifest(format_manifest(sample()));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, sample());
}

TEST(Manifest, every_single_bit_is_held_by_its_digest) {
  const std::string text = format_manifest(sample());
  for (size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = text;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      EXPECT_FALSE(parse_manifest(damaged).ok()) << "byte " << i << " bit " << bit;
    }
    EXPECT_FALSE(parse_manifest(text.substr(0, i)).ok()) << i;
  }
  EXPECT_FALSE(parse_manifest(text + " ").ok());
  EXPECT_THAT(error_of(text.substr(0, 100)), HasSubstr("cut, or not a manifest"));
}

TEST(Manifest, one_that_was_made_wrong_is_refused_with_the_place) {
  const std::string text = format_manifest(sample());
  EXPECT_THAT(error_of(resealed(text, "\"step\":50", "\"step\":-50")),
              HasSubstr("step: expected a whole number"));
  EXPECT_THAT(error_of(resealed(text, "penstock-", "plenstock-")), HasSubstr("expected penstock-checkpoint"));
  EXPECT_THAT(error_of(resealed(text, "\"version\":1", "\"version\":2")),
              HasSubstr("version: expected 1, found 2"));
  EXPECT_THAT(error_of(resealed(text, "config.json", "../fig.json")), HasSubstr("files[0]: name"));
  EXPECT_THAT(error_of(resealed(text, "rank-00001", "rank-00000")),
              HasSubstr("file rank-00000-of-00002.safetensors"));
  EXPECT_THAT(error_of(resealed(text, "\"name\":\"c\"", "\"name\":\"a\"")),
              HasSubstr("tensor a: expected once"));
  EXPECT_THAT(error_of(resealed(text, "[2,3]", "[2,4]")), HasSubstr("shards[0]: bytes"));
  EXPECT_THAT(error_of(resealed(text, "[2,3]", "[9999999999,9999999999]")), HasSubstr("at most"));
  EXPECT_THAT(error_of(resealed(text, "\"samples\":", "\"simples\":")), HasSubstr("samples: expected it"));
  EXPECT_THAT(error_of(resealed(text, "\"step\"", "\"more\":1,\"step\"")),
              HasSubstr("expected 11 keys, found 12"));
}

TEST(Manifest, names_are_those_of_the_model_and_read_back) {
  EXPECT_EQ(checkpoint_name(50), "step-000000050");
  EXPECT_EQ(checkpoint_name(12'345'678'901), "step-12345678901");
  for (const int64_t step : {int64_t{0}, int64_t{101}, int64_t{12'345'678'901}})
    EXPECT_EQ(step_of_checkpoint(checkpoint_name(step)), step);
  for (const char* other :
       {"step-50", "step-", ".partial-step-000000050", "step-00000005x", "step-0000000050", "weights"})
    EXPECT_EQ(step_of_checkpoint(other), -1) << other;
  const auto all = checkpoint_tensors({{"model.norm.weight", {8}}});
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[1].name, "exp_avg.model.norm.weight");
  EXPECT_EQ(all[2].name, "exp_avg_sq.model.norm.weight");
  EXPECT_EQ(all[2].shape, std::vector<int64_t>{8});
}

}  // namespace
}  // namespace penstock
