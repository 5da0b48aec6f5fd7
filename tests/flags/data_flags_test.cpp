// Flags of tokenization, and the resulting tokens.
#include <gtest/gtest.h>

#include <algorithm>

#include "common/app/train_flags.h"
#include "common/data/corpus.h"
#include "tests/support/parse.h"
#include "tests/support/program.h"

namespace stagegpt::test {
namespace {

using Arguments = std::vector<std::string>;

class DataFlags : public testing::Test {
 protected:
  DataFlags() {
    for (int i = 0; i < 300; ++i) text_ += "the cat <|endoftext|> sat.\n";
    file_ = directory_.write("text.txt", text_);
  }

  // The tokenized data of a training with these flags.
  Corpus corpus(const Arguments& arguments) const {
    TrainFlags flags;
    CommandLine command_line("stage0_train", "", 0);
    flags.add(command_line);
    parse(command_line, Arguments{"--data", file_, "--block-size", "16"} + arguments);
    flags.resolve();
    SingleProcess alone;
    return load_shared_corpus(alone, flags.corpus(), flags.model.config().block_size, /*threads=*/1);
  }
  static std::string text_of(const Corpus& corpus, const TokenSequence& tokens) {
    return corpus.tokenizer->decode(tokens.read(0, tokens.size()));
  }

  ScratchDirectory directory_;
  std::string text_, file_;
};

TEST_F(DataFlags, ChooseATokenizer) {
  const Corpus chars = corpus({"--tokenizer", "char"}), words = corpus({"--tokenizer", "word"}),
               bpe = corpus({"--tokenizer", "bpe", "--vocab-size", "264"});
  EXPECT_EQ(chars.tokenizer->size(), std::ssize(std::string("\n .<>acdefhnostx|")) + 1);
  EXPECT_EQ(chars.train.size() + chars.validation.size(), std::ssize(text_));
  EXPECT_LT(words.tokenizer->size(), 20);
  EXPECT_EQ(bpe.tokenizer->size(), 264);
  EXPECT_EQ(corpus({"--tokenizer", "word", "--vocab-size", "6"}).tokenizer->size(), 6);
  EXPECT_LT(bpe.train.size() + bpe.validation.size(), 0.9 * static_cast<double>(text_.size()));  // merges
}

TEST_F(DataFlags, LoadATokenizer) {
  const std::string saved = STAGEGPT_SOURCE_DIR "/tests/golden/bpe.json";
  const Corpus loaded = corpus({"--tokenizer-path", saved}), made = corpus({});
  EXPECT_EQ(loaded.tokenizer->kind(), "bpe");
  EXPECT_NE(loaded.tokenizer->size(), made.tokenizer->size());
  EXPECT_EQ(text_of(loaded, loaded.train) + text_of(loaded, loaded.validation), text_);
}

TEST_F(DataFlags, TakeNamesForSpecialTokensOrForText) {
  const auto ends = [](const Corpus& corpus) {
    const auto ids = corpus.train.read(0, corpus.train.size());
    return std::ranges::count(ids, corpus.tokenizer->end_of_text().value());
  };
  EXPECT_EQ(ends(corpus({"--tokenizer", "char"})), 0);
  EXPECT_EQ(ends(corpus({"--tokenizer", "char", "--parse-special-tokens", "--val-fraction", "0.5"})), 150);
}

TEST_F(DataFlags, TakeFilesThatAreNoText) {
  directory_.write("text.txt", "\x1f\x8b" + text_);
  EXPECT_THROW(corpus({}), UserError);
  const Corpus bytes = corpus({"--any-bytes"});
  EXPECT_EQ(text_of(bytes, bytes.train) + text_of(bytes, bytes.validation), "\x1f\x8b" + text_);
}

TEST_F(DataFlags, DivideTheText) {
  for (const double fraction : {0.1, 0.25, 0.6}) {
    const Corpus divided = corpus({"--tokenizer", "char", "--val-fraction", std::to_string(fraction)});
    EXPECT_EQ(divided.validation.size(), std::lround(fraction * static_cast<double>(text_.size())));
    EXPECT_EQ(text_of(divided, divided.train) + text_of(divided, divided.validation), text_);
  }
}

}  // namespace
}  // namespace stagegpt::test
