// `penstock data prepare`, which starts this program: SentencePiece brings a Protocol Buffers runtime of its
// own, and that of the service may not meet it in one process.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "base/clock.h"
#include "client/prepare/prepare.h"

namespace penstock::client {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kExamples =
    "Examples:\n"
    "  penstock data prepare --train --vocab-size 8000 --model tokenizer.model books/*.txt\n"
    "  penstock data prepare --model tokenizer.model --to books.npy books/*.txt\n"
    "  penstock data prepare --model tokenizer.model --to lines.bin --format megatron --document line a.txt\n"
    "  penstock data inspect books.npy\n";

struct Options {
  std::vector<std::string> texts;
  std::string model;
  bool train = false;
  int64_t vocabulary = 0;
  std::string kind = "unigram";
  int64_t most_lines = 10'000'000;
  std::string target;
  std::string format = "auto";
  std::string document = "file";
  std::optional<int32_t> end_of_document;
  std::string output = "text";
};

void declare(CLI::App& app, Options& options) {
  app.add_option("texts", options.texts, "Text files (UTF-8), in this order")
      ->required()
      ->type_name("TEXT...");
  app.add_option("--model", options.model, "SentencePiece model: written by --train, read without")
      ->required()
      ->type_name("FILE");
  CLI::Option* train = app.add_flag("--train", options.train, "Train a tokenizer from the texts");
  app.add_option("--vocab-size", options.vocabulary, "Tokens of the tokenizer to train")
      ->check(CLI::Range(int64_t{260}, int64_t{1} << 22))
      ->needs(train);
  app.add_option("--model-type", options.kind, "Kind of the tokenizer to train")
      ->check(CLI::IsMember({"unigram", "bpe"}))
      ->needs(train)
      ->capture_default_str();
  app.add_option("--lines", options.most_lines, "Lines to learn from; of more, so many are drawn")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000'000}))
      ->needs(train)
      ->capture_default_str();
  app.add_option("--to", options.target, "File of tokens to write: .npy or .bin")
      ->excludes(train)
      ->type_name("FILE");
  app.add_option("--format", options.format, "Its format; auto: npy or bin, by its name")
      ->check(CLI::IsMember({"auto", "npy", "bin", "megatron"}))
      ->excludes(train)
      ->capture_default_str();
  app.add_option("--document", options.document, "What is a document, with a token behind it")
      ->check(CLI::IsMember({"file", "line"}))
      ->excludes(train)
      ->capture_default_str();
  app.add_option("--end-of-document", options.end_of_document,
                 "That token (default: the tokenizer's </s>; -1: none)")
      ->check(CLI::Range(-1, 1 << 22))
      ->excludes(train)
      ->type_name("TOKEN");
  app.add_option("-o,--output", options.output, "Format of the result")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
}

// On stderr: redrawn every second on a terminal, a line every ten seconds elsewhere.
class ProgressLine {
 public:
  explicit ProgressLine(std::string verb)
      : verb_(std::move(verb)), terminal_(isatty(fileno(stderr)) == 1), next_(clock_.now() + 1s) {}
  ~ProgressLine() {
    if (drawn_) std::fputs("\r\x1b[K", stderr);
  }
  void show(int64_t done, int64_t total) {
    const TimePoint now = clock_.now();
    if (now < next_ || total == 0) return;
    next_ = now + (terminal_ ? 1s : 10s);
    drawn_ = terminal_;
    std::fputs(fmt::format("{}{}: {}% of {} MB read{}", terminal_ ? "\r\x1b[K" : "", verb_,
                           100 * done / total, total / 1'000'000, terminal_ ? "" : "\n")
                   .c_str(),
               stderr);
  }

 private:
  std::string verb_;
  bool terminal_;
  SystemClock clock_;
  TimePoint next_;
  bool drawn_ = false;
};

// 2: refused as it stands, 1: failed.
int report(const Status& status) {
  std::fputs(fmt::format("penstock: {}\n", message(status)).c_str(), stderr);
  return status.code() == StatusCode::kInvalidArgument ? 2 : 1;
}

int print(const std::string& text) {
  const bool written = std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  return written ? 0 : 1;
}

int run_training(const Options& options) {
  if (options.vocabulary == 0) return report(invalid_argument("--vocab-size: missing; --train needs it"));
  ProgressLine line("train");
  const StatusOr<TrainedTokenizer> trained =
      train_tokenizer({.texts = options.texts,
                       .model = options.model,
                       .vocabulary = options.vocabulary,
                       .kind = options.kind,
                       .most_lines = options.most_lines},
                      [&](int64_t done, int64_t total) { line.show(done, total); });
  if (!trained.ok()) return report(trained.status());
  if (options.output == "json") {
    return print(Json{{"model", options.model},
                      {"vocab_size", trained->vocabulary},
                      {"end_of_document", trained->end_of_document},
                      {"text_bytes", trained->bytes_of_text}}
                     .dump() +
                 "\n");
  }
  return print(
      fmt::format("{}: {} tokens, learnt from {} bytes of text\n"
                  "  use it: penstock data prepare --model {} --to FILE.npy TEXT...\n",
                  options.model, trained->vocabulary, trained->bytes_of_text, options.model));
}

TokenizeOptions tokenize_options(const Options& options) {
  TokenizeOptions wanted{.texts = options.texts,
                         .model = options.model,
                         .target = options.target,
                         .format = std::nullopt,
                         .document = options.document == "line" ? Document::Line : Document::File,
                         .end_of_document = options.end_of_document};
  for (const TokenFormat format : {TokenFormat::Npy, TokenFormat::Bin, TokenFormat::Megatron}) {
    if (options.format == name_of(format)) wanted.format = format;
  }
  return wanted;
}

Json tokenized_json(const Options& options, const Tokenized& result) {
  return {{"file", options.target},
          {"format", name_of(result.format)},
          {"token_type", name_of(result.type)},
          {"vocab_size", result.vocabulary},
          {"tokens", result.tokens},
          {"documents", result.documents},
          {"end_of_document", result.end_of_document},
          {"text_bytes", result.bytes_of_text}};
}

std::string tokenized_text(const Options& options, const Tokenized& result) {
  const double each =
      result.tokens == 0 ? 0 : static_cast<double>(result.bytes_of_text) / static_cast<double>(result.tokens);
  std::string text =
      fmt::format("{}: {} tokens of {} documents ({}, {}), {:.2f} bytes of text a token\n", options.target,
                  result.tokens, result.documents, name_of(result.format), name_of(result.type), each);
  const bool wide = result.format == TokenFormat::Bin && result.type == TokenType::UInt32;
  text += fmt::format(
      "  in a job file: model: {{vocab_size: {}}}, data: {{source: {}{}{}}}\n", result.vocabulary,
      options.target, wide ? ", token_type: uint32" : "",
      result.end_of_document < 0 ? "" : fmt::format(", end_of_document: {}", result.end_of_document));
  return text;
}

int run_tokenizing(const Options& options) {
  if (options.target.empty()) {
    return report(invalid_argument("--to: missing; name the file of tokens to write, or give --train"));
  }
  ProgressLine line("prepare");
  const StatusOr<Tokenized> result =
      tokenize(tokenize_options(options), [&](int64_t done, int64_t total) { line.show(done, total); });
  if (!result.ok()) return report(result.status());
  return print(options.output == "json" ? tokenized_json(options, *result).dump() + "\n"
                                        : tokenized_text(options, *result));
}

int run(int argc, char** argv) {
  CLI::App app("Train a SentencePiece tokenizer, or make a file of tokens of text.", "penstock data prepare");
  app.footer(kExamples);
  app.failure_message([](const CLI::App*, const CLI::Error& failure) {
    return fmt::format("penstock: {}; see `penstock data prepare --help`\n", failure.what());
  });
  Options options;
  declare(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& failure) {
    return app.exit(failure) == 0 ? 0 : 2;
  }
  return options.train ? run_training(options) : run_tokenizing(options);
}

}  // namespace
}  // namespace penstock::client

int main(int argc, char** argv) {
  return penstock::client::run(argc, argv);
}
