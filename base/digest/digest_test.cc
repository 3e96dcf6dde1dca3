#include "base/digest/digest.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/text.h"

namespace penstock {
namespace {

TEST(Digest, values_are_those_that_xxhash_publishes) {
  // `printf '' | xxhsum -H2` and `printf abc | xxhsum -H2`.
  EXPECT_EQ(hex(digest_of("")), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hex(digest_of("abc")), "06b05ab6733a618578af5f94892f3950");
}

TEST(Digest, cut_of_the_pieces_does_not_matter_and_it_starts_anew) {
  std::vector<float> values(1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) * 0.25f;
  const Digest whole = digest_of(std::as_bytes(std::span<const float>(values)));
  Digester digester;
  for (int round = 0; round < 2; ++round) {
    size_t first = 0;
    for (const size_t count : {1, 0, 299, 700}) {
      digester.add(std::span<const float>(values).subspan(first, count));
      first += count;
    }
    EXPECT_EQ(digester.finish(), whole);
  }
}

TEST(Digest, text_of_it_reads_back_and_nothing_else_does) {
  const Digest digest = digest_of("abc");
  const std::string text = hex(digest);
  EXPECT_EQ(parse_digest(text), digest);
  EXPECT_EQ(parse_digest(text.substr(1)), std::nullopt);
  EXPECT_EQ(parse_digest(text + "0"), std::nullopt);
  for (const char wrong : {'g', 'A', ' ', '\0', '/', ':', '`'}) {
    std::string damaged = text;
    damaged[7] = wrong;
    EXPECT_EQ(parse_digest(damaged), std::nullopt) << wrong;
  }
}

}  // namespace
}  // namespace penstock
