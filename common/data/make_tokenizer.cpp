#include "common/data/make_tokenizer.h"

#include <algorithm>
#include <iostream>

#include "common/base/error.h"
#include "common/base/in_order.h"
#include "common/data/tokenizers/bpe_trainer.h"
#include "common/data/tokenizers/char_tokenizer.h"
#include "common/data/tokenizers/load_tokenizer.h"
#include "common/data/tokenizers/splitter.h"
#include "common/data/tokenizers/word_tokenizer.h"
#include "common/data/utf8.h"
#include "common/system/shared_files.h"

namespace stagegpt {
namespace {

constexpr const char* kGpt2Directory = "data/gpt2";  // created by scripts/download_gpt2.sh

// Counts the pieces of a text that a vocabulary of this kind is made from.
PieceCounts count_pieces(std::string_view kind, const TextSource& text, const TokenizeOptions& options) {
  // None: each character is a piece.
  const Splitter* splitter = kind == "char"   ? nullptr
                             : kind == "word" ? &Splitter::words()
                                              : &Splitter::gpt2();
  PieceCounts total;
  BlockReader reader(text, text.all(), [&](std::string_view block) {
    return splitter ? splitter->safe_cut(block) : utf8_complete(block);
  });
  std::int64_t done = 0;
  // A special token in the text is not counted as a piece.
  std::vector<SpecialToken> special;
  if (options.special == SpecialTokens::recognised)
    special.push_back({kind == "word" ? kEndOfWords : kEndOfText, 0});
  const auto count_part = [&](std::string_view part, PieceCounts& counts) {
    if (!splitter) return count_characters(part, counts);
    Splitter::Cursor cursor(*splitter, part);
    for (std::string_view piece; cursor.next(piece);) counts.add(piece);
  };
  const auto count = [&](const TextBlock& block) {
    if (kind != "bpe") require_utf8(text, block);
    PieceCounts counts;
    split_at_special_tokens(
        block.text, special, [&](std::string_view part) { count_part(part, counts); },
        [](const SpecialToken&) {});
    return std::pair(std::move(counts), std::ssize(block.text));
  };
  for_each_in_order(
      options.threads, [&] { return reader.next(); }, count,
      [&](const auto& part) {
        total.add(part.first);
        options.progress(done += part.second, text.bytes());
      });
  if (total.truncated()) {
    std::cerr
        << "note: the text has too many different words to count all; the vocabulary is made from the first "
        << PieceCounts::kMaxPieces << " or " << (PieceCounts::kMaxBytes >> 20) << " MB of them\n";
  }
  return total;
}

void refuse_vocab_size(const TokenizerChoice& choice, std::string_view why) {
  if (choice.vocab_size) user_error("--vocab-size: ", why);
}

std::filesystem::path gpt2_directory() {
  std::error_code ignored;
  std::filesystem::path directory = find_shared(kGpt2Directory);
  if (std::filesystem::exists(directory, ignored)) return directory;
  user_error("--tokenizer gpt2: no vocabulary in ", kGpt2Directory,
             "; run scripts/download_gpt2.sh, or give its path with --tokenizer-path");
}

}  // namespace

std::int64_t default_vocab_size(std::int64_t text_bytes) {
  constexpr std::int64_t kBytesPerToken = 600;
  return std::clamp(text_bytes / kBytesPerToken, kSmallestDefaultVocabSize, kLargestDefaultVocabSize);
}

std::unique_ptr<Tokenizer> load_chosen_tokenizer(const TokenizerChoice& choice) {
  const bool gpt2 = choice.kind == "gpt2";
  if (!choice.path && !gpt2) return nullptr;
  refuse_vocab_size(choice, "cannot be set for a tokenizer that is loaded; its vocabulary has a fixed size");
  const std::filesystem::path path = choice.path ? std::filesystem::path(*choice.path) : gpt2_directory();
  std::unique_ptr<Tokenizer> tokenizer =
      load_tokenizer(path, choice.path ? choice.path_flag : "--tokenizer gpt2");
  if (choice.kind && tokenizer->kind() != (gpt2 ? "bpe" : *choice.kind)) {
    user_error("--tokenizer: ", *choice.kind, ", but ", path, " has a tokenizer of kind ", tokenizer->kind());
  }
  return tokenizer;
}

std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerChoice& choice, const TextSource& text,
                                          const TokenizeOptions& options) {
  if (auto loaded = load_chosen_tokenizer(choice)) return loaded;
  const std::string kind = choice.kind.value_or("bpe");
  if (kind == "char")
    refuse_vocab_size(choice,
                      "cannot be set for --tokenizer char; its vocabulary is every character of the text");
  const PieceCounts counts = count_pieces(kind, text, options);
  if (kind == "char") return make_char_tokenizer(counts);
  if (kind == "word")
    return make_word_tokenizer(counts, choice.vocab_size.value_or(kLargestDefaultVocabSize));
  auto bpe = train_bpe(counts, choice.vocab_size.value_or(default_vocab_size(text.bytes())));
  if (choice.vocab_size > bpe->size()) {
    std::cerr << "note: the vocabulary has " << bpe->size() << " tokens, not " << *choice.vocab_size
              << ": no other pair of tokens occurs twice\n";
  }
  return bpe;
}

}  // namespace stagegpt
