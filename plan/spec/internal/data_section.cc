#include <fmt/format.h>

#include "plan/spec/internal/sections.h"

namespace penstock::plan {
namespace {

using Names = std::vector<std::string>;

constexpr int64_t kByteVocabulary = 256;

void read_source(const YamlNode& node, const std::string& field, DataSpec& data, Problems& problems) {
  if (node.is(YamlNode::Kind::Scalar) && !node.text.empty() && node.text.size() <= 4096) {
    data.sources.push_back(node.text);
    return;
  }
  problems.expected(node.line, field, "a path of 1 to 4096 bytes", node.shown());
}

void read_sources(const YamlNode::Entry* source, DataSpec& data, Problems& problems) {
  if (source == nullptr) return;
  if (!source->value.is(YamlNode::Kind::List))
    return read_source(source->value, "data.source", data, problems);
  const std::vector<YamlNode>& items = source->value.items;
  if (items.empty() || items.size() > 1024) {
    return problems.expected(source->line, "data.source", "a path, or a list of 1 to 1024 paths",
                             source->value.shown());
  }
  for (size_t i = 0; i < items.size(); ++i)
    read_source(items[i], fmt::format("data.source[{}]", i), data, problems);
}

// `format: auto` goes by the file's name, and only text is built.
void refuse_later_files(const Section& section, const DataSpec& data, Problems& problems) {
  for (const std::string& source : data.sources) {
    for (const char* ending : {".npy", ".bin", ".idx"}) {
      if (!source.ends_with(ending)) continue;
      problems.not_built_yet(section.line_of("source"), "data.source",
                             fmt::format("expected text files, found {}", shown_value(source)));
      return;
    }
  }
}

}  // namespace

void read_data(Section section, const ModelSpec& model, DataSpec& data, Problems& problems) {
  read_sources(section.entry("source", Need::Required), data, problems);
  section.choice("tokenizer", data.tokenizer, Names{"bytes"},
                 Names{"none", "bpe", "sentencepiece", "tiktoken", "huggingface"});
  const bool read = section.integer("sequence_length", data.sequence_length, {1, 1 << 20}, Need::Required);
  std::string format = "auto";
  section.choice("format", format, Names{"auto", "text"}, Names{"npy", "bin", "megatron"});
  if (format == "auto") refuse_later_files(section, data, problems);
  section.finish();

  if (read && model.max_position_embeddings > 0 && data.sequence_length > model.max_position_embeddings) {
    problems.expected(
        section.line_of("sequence_length"), "data.sequence_length",
        fmt::format("at most model.max_position_embeddings ({})", model.max_position_embeddings),
        fmt::format("{}", data.sequence_length));
  }
  if (section.present() && model.vocab_size > 0 && model.vocab_size < kByteVocabulary) {
    problems.expected(section.line_of("tokenizer"), "data.tokenizer",
                      fmt::format("a model.vocab_size of at least {}, which bytes need", kByteVocabulary),
                      fmt::format("{}", model.vocab_size));
  }
}

}  // namespace penstock::plan
