// What a job file may say of its data and of validation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/spec/job_spec.h"

namespace penstock::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string job(const std::string& data, const std::string& more = "") {
  return "name: a\n"
         "model: {vocab_size: 1000, hidden_size: 8, num_hidden_layers: 1, num_attention_heads: 2,\n"
         "        intermediate_size: 8, max_position_embeddings: 16}\n"
         "train: {steps: 1, global_batch_size: 8, microbatch_size: 2}\n"
         "data: {sequence_length: 16, " +
         data + "}\n" + more;
}

JobSpec parsed(const std::string& yaml) {
  StatusOr<JobSpec> spec = parse_job_spec(yaml);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *spec : JobSpec{};
}

std::string refusal(const std::string& yaml) {
  return message(parse_job_spec(yaml).status());
}

TEST(DataSection, what_is_not_said_has_its_default) {
  const DataSpec data = parsed(job("source: a.txt")).data;
  EXPECT_EQ(data.format, "auto");
  EXPECT_EQ(data.tokenizer, "bytes");
  EXPECT_EQ(data.token_type, "uint16");
  EXPECT_EQ(data.epochs, 1);
  EXPECT_EQ(data.end_of_document, -1);
  EXPECT_THAT(data.weights, IsEmpty());
  EXPECT_EQ(parsed(job("source: a.txt")).validation.every, 0);
}

TEST(DataSection, files_of_tokens_need_no_tokenizer) {
  for (const char* source : {"a.npy", "a.bin", "'*.bin'", "[a.idx, b.bin]"}) {
    EXPECT_EQ(parsed(job(std::string("source: ") + source)).data.tokenizer, "none") << source;
  }
  EXPECT_EQ(parsed(job("source: corpus, format: megatron, tokenizer: none")).data.tokenizer, "none");
  EXPECT_THAT(
      refusal(job("source: a.npy, tokenizer: bytes")),
      HasSubstr("line 5: data.tokenizer: expected none: files of tokens need no tokenizer, found bytes"));
  EXPECT_THAT(refusal(job("source: [a.npy, b.txt], tokenizer: none")),
              HasSubstr("line 5: data.tokenizer: expected bytes, which text needs, found none"));
}

TEST(DataSection, another_tokenizer_is_refused_with_what_to_do) {
  for (const char* tokenizer : {"sentencepiece", "bpe"}) {
    EXPECT_THAT(
        refusal(job(std::string("source: a.txt, tokenizer: ") + tokenizer)),
        HasSubstr("line 5: data.tokenizer: expected bytes, or none and files of tokens, which `penstock "
                  "data prepare` makes of text, found "));
  }
}

TEST(DataSection, every_key_of_token_files_is_read) {
  const DataSpec data =
      parsed(job("source: a.dat, format: bin, token_type: uint32, epochs: 0, end_of_document: 999")).data;
  EXPECT_EQ(data.format, "bin");
  EXPECT_EQ(data.token_type, "uint32");
  EXPECT_EQ(data.epochs, 0);
  EXPECT_EQ(data.end_of_document, 999);
}

TEST(DataSection, values_that_cannot_be_are_refused) {
  EXPECT_THAT(refusal(job("source: a.npy, end_of_document: 1000")),
              HasSubstr("data.end_of_document: expected a whole number from 0 to 999, found 1000"));
  EXPECT_THAT(refusal(job("source: a.npy, format: npy, token_type: uint32")),
              HasSubstr("data.token_type: expected no such key with format npy, whose files say their type"));
  EXPECT_THAT(refusal(job("source: a.bin, token_type: uint8")),
              HasSubstr("data.token_type: expected one of uint16, uint32, found uint8"));
  EXPECT_THAT(refusal(job("source: a.npy, epochs: -1")),
              HasSubstr("data.epochs: expected a whole number from 0 to 1000000, found -1"));
  EXPECT_THAT(refusal(job("source: []")),
              HasSubstr("data.source: expected a path, or a list of 1 to 1024 paths, found a list of 0"));
  EXPECT_THAT(refusal(job("source: [a.txt, [b.txt]]")),
              HasSubstr("data.source[1]: expected a path of 1 to 4096 bytes, found a list of 1"));
}

TEST(DataSection, sources_have_weights_all_or_none) {
  const DataSpec data =
      parsed(job("source: [{path: a.npy, weight: 0.7}, {path: 'b/*.npy', weight: 3}]")).data;
  EXPECT_THAT(data.sources, ElementsAre("a.npy", "b/*.npy"));
  EXPECT_THAT(data.weights, ElementsAre(0.7, 3.0));
  EXPECT_THAT(refusal(job("source: [{path: a.npy, weight: 0.7}, b.npy]")),
              HasSubstr("data.source: expected a weight for every path, or for none, found 1 for 2 paths"));
  EXPECT_THAT(refusal(job("source: [{path: a.npy, weight: 0}]")),
              HasSubstr("data.source[0].weight: expected a finite number above 0"));
  EXPECT_THAT(refusal(job("source: [{path: a.npy}]")), HasSubstr("data.source[0].weight: expected a value"));
  EXPECT_THAT(refusal(job("source: [{path: a.npy, weigth: 1}]")), HasSubstr("did you mean weight?"));
  EXPECT_THAT(refusal(job("source: [{path: '', weight: 1}]")),
              HasSubstr("data.source[0].path: expected a path of 1 to 4096 bytes"));
}

TEST(ValidationSection, reads_its_own_files_as_training_reads_its) {
  const ValidationSpec validation =
      parsed(job("source: [{path: a.npy, weight: 1}], epochs: 3, end_of_document: 2",
                 "validation: {source: [b.npy, c.npy], every: 100, microbatches: 7}\n"))
          .validation;
  EXPECT_THAT(validation.data.sources, ElementsAre("b.npy", "c.npy"));
  EXPECT_THAT(validation.data.weights, IsEmpty());
  EXPECT_EQ(validation.data.sequence_length, 16);
  EXPECT_EQ(validation.data.end_of_document, 2);
  EXPECT_EQ(validation.data.epochs, 1);
  EXPECT_EQ(validation.every, 100);
  EXPECT_EQ(validation.microbatches, 7);
}

TEST(ValidationSection, takes_as_many_microbatches_as_a_step_unless_it_says) {
  EXPECT_EQ(parsed(job("source: a.txt", "validation: {source: b.txt, every: 1}\n")).validation.microbatches,
            4);
}

TEST(ValidationSection, what_is_missing_or_cannot_be_is_refused) {
  EXPECT_THAT(refusal(job("source: a.txt", "validation: {every: 1}\n")),
              HasSubstr("line 6: validation.source: expected a value, found no such key"));
  EXPECT_THAT(refusal(job("source: a.txt", "validation: {source: b.txt}\n")),
              HasSubstr("line 6: validation.every: expected a value, found no such key"));
  EXPECT_THAT(refusal(job("source: a.npy", "validation: {source: b.txt, every: 1}\n")),
              HasSubstr("validation.source: expected files of tokens, as in data.source, found b.txt"));
  EXPECT_THAT(refusal(job("source: a.npy", "validation: {source: {path: b.npy, weight: 1}, every: 1}\n")),
              HasSubstr("validation.source: expected paths without weights"));
}

}  // namespace
}  // namespace penstock::plan
