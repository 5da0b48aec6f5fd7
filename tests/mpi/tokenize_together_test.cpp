// Ranks divide the work of tokenising a text, and all get the tokens that one process gets.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "common/base/json.h"
#include "common/comm/agreement.h"
#include "common/data/tokenize.h"
#include "tests/support/mpi_ranks.h"
#include "tests/support/program.h"
#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

using Ids = std::vector<std::int32_t>;
constexpr std::int64_t kBlock = 1 << 18;

// A tokenizer with one token per byte and, if asked for, an end-of-text token. It counts the bytes that it
// encodes.
class Bytes final : public Tokenizer {
 public:
  explicit Bytes(bool has_end) : Tokenizer(vocabulary_of_bytes(has_end)) {}
  std::string_view kind() const override { return "bytes"; }
  bool needs_utf8() const override { return true; }
  Json hugging_face() const override { return {}; }
  mutable std::atomic<std::int64_t> encoded = 0;

 private:
  static Vocabulary vocabulary_of_bytes(bool has_end) {
    Vocabulary vocabulary;
    for (int byte = 0; byte < 256; ++byte) vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
    vocabulary.tokens.emplace_back("<end>");
    vocabulary.special_tokens = {{"<end>", 256}};
    if (has_end) vocabulary.end_of_text = 256;
    return vocabulary;
  }
  void encode_text(std::string_view text, std::vector<std::int32_t>& ids) const override {
    encoded += std::ssize(text);
    for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
  }
  std::size_t cut_text(std::string_view text) const override { return text.size(); }
};

// Two documents, of slightly more than two blocks and of three blocks. Each rank has its own files.
class TokenizeTogether : public testing::Test {
 protected:
  TokenizeTogether() { write(text_of(2 * kBlock + 1000), text_of(3 * kBlock)); }
  void write(const std::string& first, const std::string& second) {
    files_ = {directory_.write("1.txt", first), directory_.write("2.txt", second)};
    text_.emplace(files_, "--data");
  }
  static std::string text_of(std::int64_t bytes) {
    std::string text;
    for (std::int64_t i = 0; i < bytes; ++i) text += static_cast<char>('a' + i * i % 23);
    return text;
  }
  Ids together(TextRange range) const {
    Ids ids;
    const auto append = [&](std::span<const std::int32_t> more) {
      ids.insert(ids.end(), more.begin(), more.end());
    };
    tokenize_together(ranks(), *text_, range, tokenizer_, options_, append);
    return ids;
  }
  Ids alone(TextRange range) const {
    Ids ids;
    tokenize(*text_, range, Bytes(true), {},
             [&](std::span<const std::int32_t> more) { ids.insert(ids.end(), more.begin(), more.end()); });
    return ids;
  }
  template <class Error>
  std::string complaint() const {
    return message_of<Error>([&] { together(text_->all()); });
  }

  ScratchDirectory directory_;
  std::vector<std::string> files_;
  std::optional<TextSource> text_;
  Bytes tokenizer_{true};
  TokenizeOptions options_{.threads = 2};
};

TEST_F(TokenizeTogether, gives_every_rank_the_tokens_of_all) {
  const std::int64_t bytes = text_->bytes();
  for (const TextRange range : {TextRange{0, bytes}, {100, 2 * kBlock + 1000}, {3 * kBlock, bytes}, {5, 5}}) {
    EXPECT_TRUE(together(range) == alone(range)) << range.begin;
  }
}

TEST_F(TokenizeTogether, encodes_each_block_once) {
  std::vector<std::int64_t> done;
  options_.progress = [&](std::int64_t now, std::int64_t all) {
    done.push_back(now);
    EXPECT_EQ(all, text_->bytes());
  };
  together(text_->all());
  std::int64_t sum = 0;
  for (const std::int64_t bytes : gather(ranks(), tokenizer_.encoded.load())) {
    sum += bytes;
    EXPECT_LT(bytes, ranks().size() == 1 ? text_->bytes() + 1 : 4 * kBlock);  // the text: over 5 blocks
  }
  EXPECT_EQ(sum, text_->bytes());
  EXPECT_TRUE(std::ranges::is_sorted(done));
  EXPECT_EQ(done.back(), text_->bytes());
}

TEST_F(TokenizeTogether, names_a_rank_that_has_another_text) {
  if (ranks().size() == 1) GTEST_SKIP() << "there are no others";
  std::string other = text_of(3 * kBlock);
  other[kBlock + 7] = '!';
  if (ranks().rank() == 1) write(text_of(2 * kBlock + 1000), other);
  const std::string says = complaint<AgreedUserError>();
  EXPECT_NE(says.find("rank 1"), std::string::npos) << says;
  EXPECT_NE(says.find("--data"), std::string::npos) << says;
  // A longer text with more blocks.
  if (ranks().rank() == 1) write(text_of(2 * kBlock + 1000), text_of(5 * kBlock));
  EXPECT_NE(complaint<AgreedUserError>().find("rank 1"), std::string::npos);
}

TEST_F(TokenizeTogether, fails_on_all_ranks_alike) {
  std::string broken = text_of(3 * kBlock);
  broken[kBlock] = '\xff';  // the fifth block
  write(text_of(2 * kBlock + 1000), broken);
  const std::string says = complaint<UserError>();
  EXPECT_NE(says.find("2.txt\" is not UTF-8: byte 262144"), std::string::npos) << says;
  EXPECT_EQ(broadcast_text(ranks(), says), says);
}

TEST_F(TokenizeTogether, needs_an_end_between_documents) {
  const Bytes endless(false);
  EXPECT_EQ(refusal([&] {
              tokenize_together(ranks(), *text_, text_->all(), endless, options_, [](const auto&) {});
            }),
            "--data: several documents need an end-of-text token, which this vocabulary does not have");
}

// A signal is noticed when a block is read.
TEST_F(TokenizeTogether, stops_on_all_ranks_when_one_is_to_stop) {
  options_.progress = [](std::int64_t, std::int64_t) {
    if (ranks().rank() == ranks().size() - 1) throw Stopped();
  };
  if (ranks().size() == 1) {
    EXPECT_THROW(together(text_->all()), Stopped);
  } else {
    EXPECT_THROW(together(text_->all()), AgreedStop);
  }
}

}  // namespace
}  // namespace stagegpt::test
