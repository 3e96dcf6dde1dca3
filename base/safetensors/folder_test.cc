#include "base/safetensors/folder.h"

#include <gmock/gmock.h>

#include "base/safetensors/testing/written.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;
using testing::safetensors_bytes;
using testing::TemporaryFolder;
using testing::write_tensors;

class TensorFolderTest : public ::testing::Test {
 protected:
  // Two files and their index, with what a test changes in it.
  void write_two_files(const std::string& index = R"({"metadata":{"total_size":24},"weight_map":{)"
                                                  R"("a":"one.safetensors","b":"two.safetensors"}})") {
    write_tensors(folder.path("one.safetensors"), {{"a", {2, 2}, {1, 2, 3, 4}}});
    write_tensors(folder.path("two.safetensors"), {{"b", {2}, {5, 6}}});
    folder.write(kTensorIndexFile, index);
  }
  std::string problem(const std::vector<ExpectedTensor>& expected) {
    const auto opened = TensorFolder::open(folder.path());
    if (!opened.ok()) return message(opened.status());
    const Status checked = opened->check(expected);
    return checked.ok() ? "" : message(checked);
  }
  TemporaryFolder folder{"tensor_folder"};
  const std::vector<ExpectedTensor> both = {{"a", {2, 2}}, {"b", {2}}};
};

TEST_F(TensorFolderTest, single_file_is_read) {
  write_tensors(folder.path(kSingleTensorFile), {{"b", {2}, {5, 6}}, {"a", {2, 2}, {1, 2, 3, 4}}});
  EXPECT_EQ(problem(both), "");
  const auto opened = TensorFolder::open(folder.path());
  const TensorPlace place = opened->at("a");
  std::vector<float> values(2);
  ASSERT_TRUE(place.file->read(*place.tensor, 1, values).ok());
  EXPECT_EQ(values, (std::vector<float>{2, 3}));
}

TEST_F(TensorFolderTest, several_files_are_read_by_their_index) {
  write_two_files();
  EXPECT_EQ(problem(both), "");
  const auto opened = TensorFolder::open(folder.path());
  EXPECT_EQ(opened->files().size(), 2u);
  EXPECT_EQ(opened->at("b").file->path(), folder.path("two.safetensors"));
}

TEST_F(TensorFolderTest, index_that_is_formatted_is_one_that_is_read) {
  write_two_files(format_tensor_index({{"a", "one.safetensors"}, {"b", "two.safetensors"}}, 24));
  EXPECT_EQ(problem(both), "");
  EXPECT_EQ(tensor_file_name("model", 2, 12), "model-00002-of-00012.safetensors");
}

TEST_F(TensorFolderTest, folder_without_tensors_says_what_it_looked_for) {
  EXPECT_THAT(problem(both), HasSubstr("expected model.safetensors or model.safetensors.index.json"));
  const auto missing = TensorFolder::open(folder.path("none"));
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(message(missing.status()), HasSubstr("none: no such folder"));
}

TEST_F(TensorFolderTest, folder_with_both_forms_is_refused) {
  // Which one a reader takes would be a matter of taste: weights of another day could be trained on.
  write_two_files();
  write_tensors(folder.path(kSingleTensorFile), {{"a", {2, 2}, {1, 2, 3, 4}}});
  EXPECT_THAT(problem(both), HasSubstr("found both"));
}

TEST_F(TensorFolderTest, tensor_that_is_missing_misshaped_or_beyond_is_named_with_its_file) {
  write_two_files();
  EXPECT_THAT(problem({{"a", {2, 2}}, {"b", {2}}, {"c", {1}}}),
              HasSubstr("model.safetensors.index.json: tensor c: expected of shape [1], found none"));
  EXPECT_THAT(problem({{"a", {4}}, {"b", {2}}}), HasSubstr("one.safetensors: tensor a at offset"));
  EXPECT_THAT(problem({{"a", {4}}, {"b", {2}}}), HasSubstr("shape: expected [4], found [2, 2]"));
  EXPECT_THAT(problem({{"a", {2, 2}}}),
              HasSubstr("two.safetensors: expected the 1 tensors of the model, found 1"));
}

TEST_F(TensorFolderTest, tensor_that_is_no_float_is_refused) {
  folder.write(kSingleTensorFile,
               safetensors_bytes(R"({"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})", 8));
  EXPECT_THAT(problem({{"a", {1}}}), HasSubstr("dtype: expected F32, BF16 or F16, found I64"));
  const auto file = SafetensorsFile::open(folder.path(kSingleTensorFile));
  std::vector<float> values(1);
  EXPECT_THAT(message(file->read(file->tensors()[0], 0, values)), HasSubstr("found I64"));
}

TEST_F(TensorFolderTest, index_and_files_must_agree) {
  write_two_files(R"({"weight_map":{"a":"two.safetensors","b":"two.safetensors"}})");
  EXPECT_THAT(problem(both), HasSubstr("two.safetensors: tensor a: expected here"));
  write_two_files(R"({"weight_map":{"b":"two.safetensors"}})");
  EXPECT_THAT(problem(both), HasSubstr("tensor a: expected of shape [2, 2], found none"));
  write_tensors(folder.path("two.safetensors"), {{"b", {2}, {5, 6}}, {"c", {1}, {7}}});
  EXPECT_THAT(problem(both), HasSubstr("two.safetensors: tensor c: expected only what"));
  write_two_files(R"({"weight_map":{"a":"one.safetensors","b":"gone.safetensors"}})");
  EXPECT_THAT(problem(both), HasSubstr("gone.safetensors does not exist"));
}

TEST_F(TensorFolderTest, tensor_in_two_files_is_refused) {
  write_two_files();
  write_tensors(folder.path("two.safetensors"), {{"b", {2}, {5, 6}}, {"a", {2, 2}, {1, 2, 3, 4}}});
  EXPECT_THAT(problem(both), HasSubstr("tensor a: expected in one file, found in"));
}

TEST_F(TensorFolderTest, index_that_leaves_the_folder_or_is_none_is_refused) {
  for (const char* name : {"../one.safetensors", "/etc/passwd", "", "..", "x/y"}) {
    write_two_files(R"({"weight_map":{"a":")" + std::string(name) + R"("}})");
    EXPECT_THAT(problem(both), HasSubstr("tensor a: expected the name of a file beside the index")) << name;
  }
  write_two_files(R"({"weight_map":{"a":7}})");
  EXPECT_THAT(problem(both), HasSubstr("expected the name of a file"));
  write_two_files(R"({"weight_map":{"a":"one.safetensors","a":"two.safetensors"}})");
  EXPECT_THAT(problem(both), HasSubstr("\"a\" twice"));
  write_two_files("[]");
  EXPECT_THAT(problem(both), HasSubstr("index.json: weight_map: expected an object"));
}

TEST_F(TensorFolderTest, damaged_file_is_named) {
  write_two_files();
  const std::string bytes = folder.read("two.safetensors");
  folder.write("two.safetensors", bytes.substr(0, bytes.size() - 1));
  EXPECT_THAT(problem(both),
              HasSubstr("two.safetensors: tensor \"b\": data_offsets: expected begin and end"));
}

TEST_F(TensorFolderTest, values_that_are_written_in_pieces_read_back) {
  std::vector<TensorEntry> tensors = {tensor_to_write("none", {0}, "F32"), tensor_to_write("a", {3}, "F32"),
                                      tensor_to_write("b", {2}, "F32")};
  auto writer = SafetensorsWriter::create(folder.path("x.safetensors"), tensors, {});
  EXPECT_EQ(writer->data_bytes(), 20);
  const std::vector<float> values = {1, 2, 3, 4, 5};
  for (const auto& [first, count] : {std::pair<size_t, size_t>{0, 2}, {2, 1}, {3, 2}})
    ASSERT_TRUE(writer->append(std::span(values).subspan(first, count)).ok());
  EXPECT_FALSE(std::filesystem::exists(folder.path("x.safetensors")));
  ASSERT_TRUE(writer->commit().ok());
  const auto file = SafetensorsFile::open(folder.path("x.safetensors"));
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<float> found(2);
  ASSERT_TRUE(file->read(*file->find("b"), 0, found).ok());
  EXPECT_EQ(found, (std::vector<float>{4, 5}));
  EXPECT_EQ(file->find("c"), nullptr);
}

TEST_F(TensorFolderTest, bfloat16_is_written_rounded) {
  std::vector<float> values(70'000, 1.00390625f);  // more than a piece; half way between two bfloat16
  write_tensors(folder.path(kSingleTensorFile), {{"a", {70'000}, values}}, "BF16");
  const auto opened = TensorFolder::open(folder.path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  ASSERT_TRUE(opened->at("a").file->read(*opened->at("a").tensor, 0, values).ok());
  EXPECT_EQ(values, std::vector<float>(70'000, 1.0f));
}

}  // namespace
}  // namespace penstock
