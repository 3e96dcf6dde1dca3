#include "base/safetensors/header.h"

#include <gmock/gmock.h>

#include "base/safetensors/testing/written.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;
using testing::safetensors_bytes;

StatusOr<SafetensorsHeader> parsed(const std::string& file) {
  return read_safetensors_header(std::as_bytes(std::span(file.data(), file.size())),
                                 static_cast<int64_t>(file.size()));
}

std::string problem(const std::string& header, size_t data_bytes) {
  const auto result = parsed(safetensors_bytes(header, data_bytes));
  return result.ok() ? "" : message(result.status());
}

constexpr const char* kTwo =
    R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]},"__metadata__":{"format":"pt"},)"
    R"("a":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]}}   )";

TEST(SafetensorsHeader, tensors_come_by_offset_whatever_their_order_in_the_header) {
  const std::string file = safetensors_bytes(kTwo, 12);
  const auto header = parsed(file);
  ASSERT_TRUE(header.ok()) << header.status();
  ASSERT_EQ(header->tensors.size(), 2u);
  const TensorEntry& a = header->tensors[0];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.dtype, "BF16");
  EXPECT_EQ(a.shape, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(a.bytes, 4);
  EXPECT_EQ(a.elements(), 2);
  EXPECT_EQ(a.offset, static_cast<int64_t>(file.size()) - 12);
  EXPECT_EQ(header->tensors[1].offset, a.offset + 4);
  EXPECT_EQ(header->metadata.at("format"), "pt");
}

TEST(SafetensorsHeader, scalars_and_empty_tensors_are_tensors) {
  EXPECT_EQ(problem(R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                    R"("e":{"dtype":"F32","shape":[0,3],"data_offsets":[0,0]},)"
                    R"("f":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}})",
                    4),
            "");
  EXPECT_EQ(problem("{}", 0), "");
}

TEST(SafetensorsHeader, file_too_short_for_its_count_is_refused) {
  EXPECT_THAT(message(parsed("").status()), HasSubstr("8 bytes"));
  EXPECT_THAT(message(parsed("1234567").status()), HasSubstr("found 7"));
  std::string file = safetensors_bytes("{}", 0);
  file[0] = 3;
  EXPECT_THAT(message(parsed(file).status()), HasSubstr("a count of 3"));
  file.replace(0, 8, std::string(8, '\xff'));
  EXPECT_THAT(message(parsed(file).status()), HasSubstr("a count of 18446744073709551615"));
}

TEST(SafetensorsHeader, header_over_the_bound_is_refused_before_it_is_read) {
  std::string file = safetensors_bytes("{}", 100);
  const uint64_t count = kLargestSafetensorsHeader + 1;
  std::memcpy(file.data(), &count, 8);
  file.resize(count + 8, ' ');
  EXPECT_THAT(message(parsed(file).status()), HasSubstr("at most 100000000 bytes"));
}

TEST(SafetensorsHeader, every_broken_rule_is_named_with_its_tensor) {
  const auto entry = [](const std::string& what) { return R"({"x":{)" + what + "}}"; };
  EXPECT_THAT(problem("[]", 0), HasSubstr("header: expected an object"));
  EXPECT_THAT(problem("{", 0), HasSubstr("header: expected JSON"));
  EXPECT_THAT(problem(R"({"x": 3})", 0), HasSubstr("tensor \"x\": expected dtype, shape and data_offsets"));
  EXPECT_THAT(problem(entry(R"("dtype":"F32","shape":[1])"), 4), HasSubstr("expected dtype, shape"));
  EXPECT_THAT(problem(entry(R"("dtype":"F33","shape":[1],"data_offsets":[0,4])"), 4),
              HasSubstr("dtype: expected one of safetensors, found \"F33\""));
  EXPECT_THAT(problem(entry(R"("dtype":7,"shape":[1],"data_offsets":[0,4])"), 4), HasSubstr("dtype"));
  EXPECT_THAT(problem(entry(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), 4), HasSubstr("shape"));
  EXPECT_THAT(problem(entry(R"("dtype":"F32","shape":[1.5],"data_offsets":[0,4])"), 4), HasSubstr("shape"));
  EXPECT_THAT(problem(entry(R"("dtype":"F32","shape":1,"data_offsets":[0,4])"), 4), HasSubstr("shape"));
  EXPECT_THAT(problem(entry(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,4])"), 4),
              HasSubstr("data_offsets: expected begin and end"));
  EXPECT_THAT(problem(entry(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), 4), HasSubstr("[4, 0]"));
  EXPECT_THAT(problem(entry(R"("dtype":"F32","shape":[1],"data_offsets":[0,8])"), 4),
              HasSubstr("4 bytes of data"));
  EXPECT_THAT(problem(entry(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), 4),
              HasSubstr("expected 8 bytes for F32 of shape [2], found 4"));
  EXPECT_THAT(problem(entry(R"("dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0])"), 0),
              HasSubstr("63 bits"));
  EXPECT_THAT(problem(R"({"__metadata__":{"a":1}})", 0), HasSubstr("__metadata__: expected texts"));
  EXPECT_THAT(problem(R"({"__metadata__":[]})", 0), HasSubstr("__metadata__: expected an object"));
}

TEST(SafetensorsHeader, tensor_twice_is_refused) {
  const std::string x = R"("x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  EXPECT_THAT(problem("{" + x + "," + x + "}", 4), HasSubstr("\"x\" twice"));
}

TEST(SafetensorsHeader, overlaps_holes_and_bytes_beyond_are_refused) {
  const auto two = [](const std::string& first, const std::string& second) {
    return R"({"x":{"dtype":"U8","shape":[4],"data_offsets":)" + first +
           R"(},"y":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}";
  };
  EXPECT_EQ(problem(two("[0,4]", "[4,8]"), 8), "");
  EXPECT_THAT(problem(two("[0,4]", "[3,7]"), 8), HasSubstr("an overlap"));
  EXPECT_THAT(problem(two("[0,4]", "[0,4]"), 8), HasSubstr("an overlap"));
  EXPECT_THAT(problem(two("[0,4]", "[5,9]"), 9), HasSubstr("tensor \"y\""));
  EXPECT_THAT(problem(two("[0,4]", "[5,9]"), 9), HasSubstr("a hole"));
  EXPECT_THAT(problem(two("[1,5]", "[5,9]"), 9), HasSubstr("a hole"));
  EXPECT_THAT(problem(two("[0,4]", "[4,8]"), 9), HasSubstr("expected data to the end of the file"));
}

TEST(SafetensorsHeader, what_is_written_reads_back) {
  std::vector<TensorEntry> tensors = {tensor_to_write("z \"quoted\"", {3, 2}, "F32"),
                                      tensor_to_write("a", {5}, "BF16")};
  const std::string text = format_safetensors_header(tensors, {{"format", "pt"}});
  EXPECT_EQ(text.size() % 8, 0u);
  const auto header = parsed(text + std::string(34, '\0'));
  ASSERT_TRUE(header.ok()) << header.status();
  ASSERT_EQ(header->tensors.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(header->tensors[i].name, tensors[i].name);
    EXPECT_EQ(header->tensors[i].shape, tensors[i].shape);
    EXPECT_EQ(header->tensors[i].offset, tensors[i].offset);
    EXPECT_EQ(header->tensors[i].bytes, tensors[i].bytes);
  }
}

}  // namespace
}  // namespace penstock
