#include "client/prepare/prepare.h"

#include <memory>
#include <utility>

#include "base/atomic_file.h"
#include "base/token_files/token_file_writer.h"
#include "base/tokenizer/tokenizer.h"

namespace penstock::client {
namespace {

StatusOr<std::unique_ptr<Tokenizer>> read_tokenizer(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  auto tokenizer =
      load_sentencepiece({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
  if (!tokenizer.ok()) return with_context(tokenizer.status(), path);
  return tokenizer;
}

TokenFormat format_of(const TokenizeOptions& options) {
  if (options.format) return *options.format;
  return options.target.ends_with(".npy") ? TokenFormat::Npy : TokenFormat::Bin;
}

StatusOr<int32_t> end_of_document(const TokenizeOptions& options, const Tokenizer& tokenizer) {
  const int32_t token = options.end_of_document.value_or(tokenizer.end_of_document());
  if (!options.end_of_document && token < 0) {
    return invalid_argument("{} has no token </s>: give one with --end-of-document, or -1 for none",
                            options.model);
  }
  if (token >= tokenizer.vocabulary()) {
    return invalid_argument("--end-of-document {}: expected one of the {} tokens of {}", token,
                            tokenizer.vocabulary(), options.model);
  }
  return token;
}

Status write_documents(TextPieces& pieces, const Tokenizer& tokenizer, int32_t end, TokenFileWriter& writer,
                       const Progress& progress) {
  while (true) {
    PENSTOCK_ASSIGN_OR_RETURN(const TextPieces::Piece piece, pieces.next());
    if (piece.text.empty()) return ok_status();
    PENSTOCK_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, tokenizer.encode(piece.text));
    if (piece.ends_document && end >= 0) tokens.push_back(end);
    PENSTOCK_RETURN_IF_ERROR(writer.write(tokens));
    if (piece.ends_document) PENSTOCK_RETURN_IF_ERROR(writer.end_document());
    progress(pieces.bytes_done(), pieces.bytes());
  }
}

}  // namespace

StatusOr<TrainedTokenizer> train_tokenizer(const TrainTokenizerOptions& options, const Progress& progress) {
  PENSTOCK_ASSIGN_OR_RETURN(
      TextPieces lines,
      TextPieces::open(options.texts, {.document = Document::Line, .longest = kLongestTrainingLine}));
  SentencePieceTraining training{.vocabulary = options.vocabulary,
                                 .kind = options.kind,
                                 .most_lines = options.most_lines,
                                 .next_line = nullptr};
  training.next_line = [&](std::string& line) -> StatusOr<bool> {
    PENSTOCK_ASSIGN_OR_RETURN(const TextPieces::Piece piece, lines.next());
    line.assign(piece.text);
    progress(lines.bytes_done(), lines.bytes());
    return !piece.text.empty();
  };
  PENSTOCK_ASSIGN_OR_RETURN(const std::string model, train_sentencepiece(training));
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, load_sentencepiece(model));
  PENSTOCK_RETURN_IF_ERROR(write_atomically(options.model, model));
  return TrainedTokenizer{.vocabulary = tokenizer->vocabulary(),
                          .end_of_document = tokenizer->end_of_document(),
                          .bytes_of_text = lines.bytes()};
}

StatusOr<Tokenized> tokenize(const TokenizeOptions& options, const Progress& progress) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, read_tokenizer(options.model));
  PENSTOCK_ASSIGN_OR_RETURN(const int32_t end, end_of_document(options, *tokenizer));
  PENSTOCK_ASSIGN_OR_RETURN(TextPieces pieces,
                            TextPieces::open(options.texts, {.document = options.document}));
  const TokenFormat format = format_of(options);
  PENSTOCK_ASSIGN_OR_RETURN(
      TokenFileWriter writer,
      TokenFileWriter::create(options.target, {.format = format, .vocabulary = tokenizer->vocabulary()}));
  PENSTOCK_RETURN_IF_ERROR(write_documents(pieces, *tokenizer, end, writer, progress));
  PENSTOCK_RETURN_IF_ERROR(writer.commit());
  return Tokenized{.format = format,
                   .type = writer.type(),
                   .vocabulary = tokenizer->vocabulary(),
                   .end_of_document = end,
                   .tokens = writer.tokens(),
                   .documents = writer.documents(),
                   .bytes_of_text = pieces.bytes()};
}

}  // namespace penstock::client
