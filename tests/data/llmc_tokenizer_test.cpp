// llm.c's tokenizer file, valid and damaged.
#include <gtest/gtest.h>

#include "common/base/error.h"
#include "common/data/tokenizers/load_tokenizer.h"
#include "tests/data/make_tokenizers.h"
#include "tests/support/program.h"
#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

// A file whose last token is the end of text, which version 1 does not say.
std::string file_of(std::int32_t version, const std::vector<std::string>& tokens) {
  std::vector<std::int32_t> header(256);
  header[0] = 20240328;
  header[1] = version;
  header[2] = static_cast<std::int32_t>(tokens.size());
  header[3] = version == 1 ? 0 : header[2] - 1;
  std::string bytes(reinterpret_cast<const char*>(header.data()), 1024);
  for (const std::string& token : tokens) bytes += static_cast<char>(token.size()) + token;
  return bytes;
}

TEST(LlmcTokenizer, Version1EndsWithGpt2s) {
  const ScratchDirectory directory;
  std::vector<std::string> tokens;
  for (int id = 0; id < 50256; ++id)  // characters: other byte strings would have to be merges
    tokens.push_back({static_cast<char>(0xF0), static_cast<char>(0x90 | id >> 12),
                      static_cast<char>(0x80 | (id >> 6 & 0x3F)), static_cast<char>(0x80 | (id & 0x3F))});
  tokens.emplace_back("<|endoftext|>");
  const auto tokenizer =
      load_tokenizer(directory.write("tokenizer.bin", file_of(1, tokens)), "--tokenizer-path");
  EXPECT_EQ(tokenizer->end_of_text(), 50256);
  EXPECT_EQ(tokenizer->kind(), "char");
}

TEST(LlmcTokenizer, WordsOfOneCharacterStayWords) {
  const ScratchDirectory directory;
  word_tokenizer("a b c")->save(directory.path() / "tokenizer.bin");
  EXPECT_EQ(load_tokenizer(directory.path() / "tokenizer.bin", "--tokenizer-path")->kind(), "word");
}

class LlmcTokenizerRefuses : public testing::Test {
 protected:
  void refuse(const std::string& bytes, const std::string& says) const {
    expect_refusal([&] { load_tokenizer(directory.write("tokenizer.bin", bytes), "--tokenizer-path"); },
                   says);
  }
  // The file of a small BPE tokenizer with one number of the header replaced.
  std::string with_header(std::size_t index, std::int32_t value) const {
    small_bpe()->save(directory.path() / "whole.bin");
    std::string bytes = read_bytes(directory.path() / "whole.bin");
    bytes.replace(index * sizeof value, sizeof value, reinterpret_cast<const char*>(&value), sizeof value);
    return bytes;
  }

  ScratchDirectory directory;
};

TEST_F(LlmcTokenizerRefuses, BrokenFiles) {
  refuse(with_header(1, 3), "version 3");
  refuse(with_header(2, 0), "specifies 0 tokens");
  refuse(with_header(2, 281), "the file ends at token 280 of 281");
  refuse(with_header(2, 279), "bytes follow the last token");
  refuse(with_header(2, INT32_MAX), "the file ends at token 280");
  refuse(with_header(3, 280), "the end-of-text token is 280");
  refuse(with_header(3, -1), "the end-of-text token is -1");
  refuse(with_header(2, 280).substr(0, 500), "fewer than its header");
  refuse(with_header(2, 280).substr(0, 1030), "the file ends at token 3 of 280");
  std::string empty_token = with_header(2, 280);
  empty_token[1024] = 0;
  refuse(empty_token, "token 0 is empty");
}

// A word among characters, before or behind them, and no [UNK].
TEST_F(LlmcTokenizerRefuses, AVocabularyOfNoKind) {
  EXPECT_EQ(load_tokenizer(directory.write("chars.bin", file_of(2, {"a", "b", "<|endoftext|>"})),
                           "--tokenizer-path")
                ->kind(),
            "char");
  refuse(file_of(2, {"a", "bc", "<|endoftext|>"}),
         "the vocabulary is none of the supported kinds: all bytes");
  refuse(file_of(2, {"ab", "c", "<|endoftext|>"}),
         "the vocabulary is none of the supported kinds: all bytes");
}

TEST_F(LlmcTokenizerRefuses, AVocabularyThatNoMergesMake) {
  std::string bytes = with_header(2, 280);
  const std::size_t first = 1024 + 2 * 256;  // the first merge's token: a length byte, then two bytes
  ASSERT_EQ(bytes[first + 3], 2);
  bytes.replace(first + 3, 3, bytes.substr(first, 3));
  refuse(bytes, "token 257 occurs twice");
  std::string unmade = with_header(2, 280);
  const std::size_t other = unmade.find(std::string("\x01\x01", 2), 1026) + 1;
  std::swap(unmade[1025], unmade[other]);  // swaps the tokens "!" and byte 1; the merges stay valid
  EXPECT_NO_THROW(load_tokenizer(directory.write("swapped.bin", unmade), "--tokenizer-path"));
  const std::size_t last = unmade.rfind("\x0d<|endoftext|>");
  unmade[last - 1] = '\x7f';  // changes the last byte of the last merge's token
  refuse(unmade, "is not a merge of two earlier tokens");
}

TEST(LlmcTokenizer, CannotHoldLongTokens) {
  const ScratchDirectory directory;
  const std::string run(600, 'z');
  const auto tokenizer = bpe_tokenizer(run + ' ' + run, 300);
  EXPECT_THROW(tokenizer->save(directory.path() / "tokenizer.bin"), UserError);
}

}  // namespace
}  // namespace stagegpt::test
