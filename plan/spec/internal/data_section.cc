#include <fmt/format.h>

#include <algorithm>

#include "plan/spec/internal/sections.h"

namespace penstock::plan {
namespace {

using Names = std::vector<std::string>;

constexpr int64_t kByteVocabulary = 256;
constexpr int64_t kMostEpochs = 1'000'000;
constexpr const char* kPath = "a path of 1 to 4096 bytes";

bool is_path(const YamlNode& node) {
  return node.is(YamlNode::Kind::Scalar) && !node.text.empty() && node.text.size() <= 4096;
}

// {path: ..., weight: 0.7}
void read_weighted(const YamlNode& node, const std::string& field, DataSpec& data, Problems& problems) {
  Section section(node, field, node.line, problems);
  const YamlNode::Entry* path = section.entry("path", Need::Required);
  double weight = 0;
  const bool weighed =
      section.number("weight", weight, {.least = 0, .most = 1e9, .above_least = true}, Need::Required);
  section.finish();
  if (path == nullptr || !weighed) return;
  if (!is_path(path->value))
    return problems.expected(path->line, field + ".path", kPath, path->value.shown());
  data.sources.push_back(path->value.text);
  data.weights.push_back(weight);
}

void read_source(const YamlNode& node, const std::string& field, DataSpec& data, Problems& problems) {
  if (node.is(YamlNode::Kind::Map)) return read_weighted(node, field, data, problems);
  if (!is_path(node)) return problems.expected(node.line, field, kPath, node.shown());
  data.sources.push_back(node.text);
}

void read_sources(const YamlNode::Entry* source, const std::string& field, DataSpec& data,
                  Problems& problems) {
  if (source == nullptr) return;
  if (!source->value.is(YamlNode::Kind::List)) return read_source(source->value, field, data, problems);
  const std::vector<YamlNode>& items = source->value.items;
  if (items.empty() || items.size() > 1024) {
    return problems.expected(source->line, field, "a path, or a list of 1 to 1024 paths",
                             source->value.shown());
  }
  for (size_t i = 0; i < items.size(); ++i)
    read_source(items[i], fmt::format("{}[{}]", field, i), data, problems);
  if (!data.weights.empty() && data.weights.size() != data.sources.size()) {
    problems.expected(source->line, field, "a weight for every path, or for none",
                      fmt::format("{} for {} paths", data.weights.size(), data.sources.size()));
  }
}

// By name: what the worker finds may still be no such file.
bool is_text(const std::string& source) {
  return !source.ends_with(".npy") && !source.ends_with(".bin") && !source.ends_with(".idx");
}

bool reads_text(const DataSpec& data) {
  if (data.format != "auto") return data.format == "text";
  return std::any_of(data.sources.begin(), data.sources.end(), is_text);
}

// Training waits for no tokenizer: what others than bytes make of a text is prepared once, as files of tokens.
bool is_other_tokenizer(const YamlNode::Entry* tokenizer) {
  if (tokenizer == nullptr || !tokenizer->value.is(YamlNode::Kind::Scalar)) return false;
  const Names others = {"bpe", "sentencepiece", "tiktoken", "huggingface"};
  return std::find(others.begin(), others.end(), tokenizer->value.text) != others.end();
}

void read_tokenizer(Section& section, const ModelSpec& model, DataSpec& data, Problems& problems) {
  const YamlNode::Entry* named = section.entry("tokenizer");
  if (is_other_tokenizer(named)) {
    return problems.expected(
        named->line, section.field("tokenizer"),
        "bytes, or none and files of tokens, which `penstock data prepare` makes of text", named->value.text);
  }
  const bool text = reads_text(data);
  data.tokenizer = text ? "bytes" : "none";
  const bool given = section.choice("tokenizer", data.tokenizer, Names{"bytes", "none"});
  if (given && text != (data.tokenizer == "bytes")) {
    problems.expected(section.line_of("tokenizer"), section.field("tokenizer"),
                      text ? "bytes, which text needs" : "none: files of tokens need no tokenizer",
                      data.tokenizer);
  }
  if (text && !data.sources.empty() && model.vocab_size > 0 && model.vocab_size < kByteVocabulary) {
    problems.expected(section.line_of("tokenizer"), section.field("tokenizer"),
                      fmt::format("a model.vocab_size of at least {}, which bytes need", kByteVocabulary),
                      fmt::format("{}", model.vocab_size));
  }
}

void read_token_type(Section& section, DataSpec& data, Problems& problems) {
  if (!section.choice("token_type", data.token_type, Names{"uint16", "uint32"})) return;
  if (data.format == "auto" || data.format == "bin") return;
  problems.expected(section.line_of("token_type"), section.field("token_type"),
                    fmt::format("no such key with format {}, whose files say their type", data.format),
                    data.token_type);
}

}  // namespace

void read_data(Section section, const ModelSpec& model, DataSpec& data, Problems& problems) {
  read_sources(section.entry("source", Need::Required), section.field("source"), data, problems);
  section.choice("format", data.format, Names{"auto", "text", "npy", "bin", "megatron"});
  read_tokenizer(section, model, data, problems);
  read_token_type(section, data, problems);
  const bool read = section.integer("sequence_length", data.sequence_length, {1, 1 << 20}, Need::Required);
  section.integer("epochs", data.epochs, {0, kMostEpochs});
  const int64_t vocabulary = model.vocab_size > 0 ? model.vocab_size : int64_t{1} << 22;
  section.integer("end_of_document", data.end_of_document, {0, vocabulary - 1});
  section.finish();

  if (read && model.max_position_embeddings > 0 && data.sequence_length > model.max_position_embeddings) {
    problems.expected(
        section.line_of("sequence_length"), "data.sequence_length",
        fmt::format("at most model.max_position_embeddings ({})", model.max_position_embeddings),
        fmt::format("{}", data.sequence_length));
  }
}

void read_validation(Section section, const JobSpec& job, ValidationSpec& validation, Problems& problems) {
  if (!section.present()) return;
  validation.data = job.data;
  validation.data.sources.clear();
  validation.data.weights.clear();
  validation.data.epochs = 1;
  read_sources(section.entry("source", Need::Required), section.field("source"), validation.data, problems);
  section.integer("every", validation.every, {1, 10'000'000}, Need::Required);
  const TrainSpec& train = job.train;
  if (train.microbatch_size > 0)
    validation.microbatches = (train.global_batch_size + train.microbatch_size - 1) / train.microbatch_size;
  section.integer("microbatches", validation.microbatches, {1, 65536});
  section.finish();

  const int line = section.line_of("source");
  if (!validation.data.weights.empty()) {
    problems.expected(line, section.field("source"), "paths without weights: a pass reads its files in order",
                      fmt::format("{} weights", validation.data.weights.size()));
  }
  const bool both = !validation.data.sources.empty() && !job.data.sources.empty();
  if (both && reads_text(validation.data) != reads_text(job.data)) {
    problems.expected(line, section.field("source"),
                      reads_text(job.data) ? "text, as in data.source" : "files of tokens, as in data.source",
                      shown_value(validation.data.sources.front()));
  }
}

}  // namespace penstock::plan
