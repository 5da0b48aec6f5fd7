// Byte-level BPE: splitting, merges, and training.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>

#include "common/base/error.h"
#include "common/data/tokenizers/byte_alphabet.h"
#include "tests/data/make_tokenizers.h"
#include "tests/data/random_text.h"

namespace stagegpt::test {
namespace {

using Ids = std::vector<std::int32_t>;

TEST(Gpt2Pieces, AreThoseOfThePaper) {
  using Pieces = std::vector<std::string>;
  const auto split = [](std::string_view text) { return pieces_of(Splitter::gpt2(), text); };
  EXPECT_EQ(split("Hello world, it's 3.14!"),
            (Pieces{"Hello", " world", ",", " it", "'s", " 3", ".", "14", "!"}));
  EXPECT_EQ(split("a  b \n\n c"), (Pieces{"a", " ", " b", " \n\n", " c"}));
  EXPECT_EQ(split("we'll'x 'S"), (Pieces{"we", "'ll", "'", "x", " '", "S"}));
  EXPECT_EQ(split("x  "), (Pieces{"x", "  "}));
  EXPECT_EQ(split("\n\nx"), (Pieces{"\n", "\n", "x"}));
}

TEST(Gpt2Pieces, WhiteSpaceIsUnicodesAndNotPcre2s) {
  // U+180E is a format character since Unicode 6.3; U+3000 and U+0085 are white space.
  EXPECT_EQ(pieces_of(Splitter::gpt2(), "a\u180eb"), (std::vector<std::string>{"a", "\u180e", "b"}));
  EXPECT_EQ(pieces_of(Splitter::gpt2(), " \u180e"), (std::vector<std::string>{" \u180e"}));
  EXPECT_EQ(pieces_of(Splitter::gpt2(), "  \u180e"), (std::vector<std::string>{" ", " \u180e"}));
  EXPECT_EQ(pieces_of(Splitter::gpt2(), "\u180e."), (std::vector<std::string>{"\u180e."}));
  EXPECT_EQ(pieces_of(Splitter::gpt2(), " \u3000"), (std::vector<std::string>{" \u3000"}));
  EXPECT_EQ(pieces_of(Splitter::gpt2(), "\u0085\u3000x"),
            (std::vector<std::string>{"\u0085", "\u3000", "x"}));
}

TEST(Gpt2Pieces, LettersAndNumbersOfUnicode16) {
  EXPECT_EQ(pieces_of(Splitter::gpt2(), "a\U0001E030b"),
            (std::vector<std::string>{"a\U0001E030b"}));  // Unicode 15
  EXPECT_EQ(pieces_of(Splitter::gpt2(), "a\U0002EBF0b"), (std::vector<std::string>{"a\U0002EBF0b"}));  // 15.1
  EXPECT_EQ(pieces_of(Splitter::gpt2(), "1\U00010D40x"),
            (std::vector<std::string>{"1\U00010D40", "x"}));  // 16
  EXPECT_EQ(pieces_of(Splitter::gpt2(), "!\U0001D2C0"), (std::vector<std::string>{"!", "\U0001D2C0"}));
  EXPECT_EQ(pieces_of(Splitter::words(), "a\u0897b"), (std::vector<std::string>{"a\u0897b"}));
}

TEST(Gpt2Pieces, BytesThatAreNoUtf8StandAlone) {
  EXPECT_EQ(pieces_of(Splitter::gpt2(), "a \xff\xfe b"),
            (std::vector<std::string>{"a", " ", "\xff\xfe", " b"}));
}

TEST(Gpt2Pieces, LongOnesAreCutBetweenCharacters) {
  constexpr std::size_t kMax = Splitter::kMaxPiece;
  const auto parts = pieces_of(Splitter::gpt2(), std::string(2 * kMax + 5, 'a') + " b");
  ASSERT_EQ(parts.size(), 4u);
  EXPECT_EQ(parts[0].size(), kMax);
  EXPECT_EQ(parts[2].size(), 5u);
  std::string wide;
  while (wide.size() <= kMax) wide += "中";  // 3 bytes each; kMax is not a multiple of 3
  EXPECT_EQ(pieces_of(Splitter::gpt2(), wide)[0].size(), kMax / 3 * 3);
}

RC_GTEST_PROP(Pieces, JoinToTheText, ()) {
  const std::string text = *rc::gen::oneOf(any_text(false), any_bytes());
  for (const Splitter* splitter : {&Splitter::gpt2(), &Splitter::words()}) {
    std::string joined;
    for (const std::string& piece : pieces_of(*splitter, text)) joined += piece;
    RC_ASSERT(joined == text);
  }
}

TEST(ByteAlphabet, IsGpt2s) {
  EXPECT_EQ(to_byte_alphabet("a b\n"), "aĠbĊ");
  EXPECT_EQ(to_byte_alphabet("\xff\x7f\xad"), "ÿġŃ");
  EXPECT_EQ(from_byte_alphabet("aĠbĊ"), "a b\n");
  EXPECT_EQ(from_byte_alphabet("a b"), std::nullopt);
  EXPECT_EQ(from_byte_alphabet("中"), std::nullopt);
  const auto order = bytes_in_gpt2_order();
  EXPECT_EQ(order[0], '!');
  EXPECT_EQ(order[188], 0);
  EXPECT_EQ(order[255], 0xAD);
}

// Merges by the definition: as long as any neighbours have a merge, apply the earliest merge at its first
// position.
Ids merged_by_definition(const BpeTokenizer& tokenizer, std::string_view piece) {
  Ids ids;
  for (const char byte : piece) {
    const auto& tokens = tokenizer.vocabulary().tokens;
    ids.push_back(
        static_cast<std::int32_t>(std::ranges::find(tokens, std::string(1, byte)) - tokens.begin()));
  }
  while (true) {
    std::size_t best_rank = tokenizer.merges().size(), at = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      for (std::size_t rank = 0; rank < best_rank; ++rank) {
        const Merge& merge = tokenizer.merges()[rank];
        if (merge.left == ids[i] && merge.right == ids[i + 1]) {
          best_rank = rank;
          at = i;
        }
      }
    }
    if (best_rank == tokenizer.merges().size()) return ids;
    ids[at] = tokenizer.merges()[best_rank].result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

constexpr const char* kCorpus =
    "the theatre there then other otter aaaa aaaaaaa aa abab ababab bababa the then there aaa bb bbbb 中文 "
    "中文字 中";

RC_GTEST_PROP(BpeTokenizer, MergesByTheDefinition, ()) {
  static const auto tokenizer = bpe_tokenizer(kCorpus, 300);
  const std::string letters =
      *rc::gen::container<std::string>(rc::gen::element('a', 'b', 't', 'h', 'e', 'r'));
  for (const int copies : {1, 3}) {  // different code merges short and long pieces
    std::string piece;
    for (int i = 0; i < copies; ++i) piece += letters;
    RC_ASSERT(tokenizer->encode(piece) == merged_by_definition(*tokenizer, piece));
  }
}

TEST(BpeTokenizer, MergesRunsOfEveryLengthByTheDefinition) {
  const auto tokenizer =
      bpe_tokenizer(std::string(64, 'a') + ' ' + std::string(64, 'a') + ' ' + std::string(9, 'a'), 300);
  for (std::size_t length = 1; length < 150; ++length) {
    const std::string run(length, 'a');
    EXPECT_EQ(tokenizer->encode(run), merged_by_definition(*tokenizer, run)) << length;
  }
}

RC_GTEST_PROP(BpeTokenizer, IsLossless, ()) {
  static const auto tokenizer = bpe_tokenizer(kCorpus, 300);
  const std::string text = *rc::gen::oneOf(any_text(false), any_bytes());
  RC_ASSERT(tokenizer->decode(tokenizer->encode(text)) == text);
}

// The tokenizer caches the tokens of pieces. The result must not depend on the cache.
RC_GTEST_PROP(BpeTokenizer, TokensOfAPieceDoNotDependOnThoseBefore, ()) {
  static const auto tokenizer = bpe_tokenizer(kCorpus, 300);
  const std::string text = *any_text(false);
  Ids one_by_one;
  for (const std::string& piece : pieces_of(Splitter::gpt2(), text + text)) {
    const Ids ids = tokenizer->encode(piece);
    one_by_one.insert(one_by_one.end(), ids.begin(), ids.end());
  }
  RC_ASSERT(tokenizer->encode(text + text) == one_by_one);
}

TEST(BpeTokenizer, RemembersPiecesOfEveryLengthApart) {
  const auto tokenizer = bpe_tokenizer("x");
  std::string text;
  for (int length = 1; length <= 20; ++length)
    text += std::string(static_cast<std::size_t>(length), 'q') + std::string(1, '\n');
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text + text)), text + text);
  const std::string zeros = std::string(3, '\0') + "a" + std::string(4, '\0') + "a" + std::string(1, '\0');
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(zeros)), zeros);
  // Words of the same length with the same first eight bytes, and few enough tokens to be cached.
  std::string words;
  for (int i = 0; i < 3; ++i) words += " abcdefghi abcdefghj";
  const auto of_words = bpe_tokenizer(words);
  EXPECT_EQ(of_words->decode(of_words->encode(words)), words);
}

TEST(BpeTokenizer, RemembersPiecesThatDifferInTheirNinthByte) {
  std::string words;
  for (char last = 'a'; last <= 'z'; ++last) words += std::string(" abcdefg") + last;
  const auto tokenizer = bpe_tokenizer(words);
  EXPECT_EQ(tokenizer->encode(" abcdefgz").size(), 2u);  // few enough tokens to be cached
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(words)), words);
}

// Learns merges by the definition: counts all pairs again for each merge; ties go to the smaller ids.
std::vector<std::pair<std::int32_t, std::int32_t>> merges_by_definition(std::string_view text,
                                                                        std::size_t count) {
  std::vector<Ids> words;
  const auto order = bytes_in_gpt2_order();
  for (const std::string& piece : pieces_of(Splitter::gpt2(), text)) {
    Ids& word = words.emplace_back();
    for (const char byte : piece) {
      word.push_back(static_cast<std::int32_t>(std::ranges::find(order, static_cast<unsigned char>(byte)) -
                                               order.begin()));
    }
  }
  std::vector<std::pair<std::int32_t, std::int32_t>> merges;
  while (merges.size() < count) {
    std::map<std::pair<std::int32_t, std::int32_t>, int> counts;
    for (const Ids& word : words) {
      for (std::size_t i = 0; i + 1 < word.size(); ++i) ++counts[{word[i], word[i + 1]}];
    }
    const auto best = std::ranges::max_element(counts, {}, [](const auto& pair) { return pair.second; });
    if (best == counts.end() || best->second < 2) break;
    merges.push_back(best->first);
    for (Ids& word : words) {
      Ids merged;
      for (std::size_t i = 0; i < word.size(); ++i) {
        const bool here = i + 1 < word.size() && std::pair(word[i], word[i + 1]) == best->first;
        merged.push_back(here ? 255 + static_cast<std::int32_t>(merges.size()) : word[i]);
        i += here;
      }
      word = merged;
    }
  }
  return merges;
}

void expect_merges_by_definition(const std::string& text) {
  const std::vector<Merge> learnt = train_merges(count_pieces(Splitter::gpt2(), text).sorted(), 60);
  const auto expected = merges_by_definition(text, 60);
  ASSERT_EQ(learnt.size(), expected.size()) << text;
  for (std::size_t i = 0; i < learnt.size(); ++i) {
    EXPECT_EQ(std::pair(learnt[i].left, learnt[i].right), expected[i]) << text << ", merge " << i;
    EXPECT_EQ(learnt[i].result, 256 + static_cast<std::int32_t>(i));
  }
}

TEST(BpeTrainer, LearnsTheMostFrequentPairs) { expect_merges_by_definition(kCorpus); }

TEST(BpeTrainer, PairsThatOverlapCountEachTime) {
  // In "aaa" the pair "aa" occurs twice, as often as "bc" here. The tie goes to "aa", whose ids are smaller.
  const std::vector<Merge> merges = train_merges(count_pieces(Splitter::gpt2(), "aaa bc bc").sorted(), 2);
  ASSERT_EQ(merges.size(), 2u);
  const auto tokens = bpe_vocabulary(merges).tokens;
  EXPECT_EQ(tokens[256], "aa");
}

RC_GTEST_PROP(BpeTrainer, LearnsByTheDefinition, ()) { expect_merges_by_definition(*any_text(false)); }

TEST(BpeTrainer, StopsWhereNoPairOccursTwice) {
  EXPECT_EQ(bpe_tokenizer("abc def", 1000)->size(), 257);
  EXPECT_EQ(bpe_tokenizer("", 1000)->size(), 257);
}

TEST(BpeTrainer, RefusesAVocabularySmallerThanTheBytes) {
  EXPECT_THROW(bpe_tokenizer("abc", 256), UserError);
  EXPECT_EQ(bpe_tokenizer("ab ab", 257)->merges().size(), 0u);
}

TEST(PieceCounts, RememberThatAPartLeftSomethingOut) {
  PieceCounts part, total;
  part.add("a");
  total.add(part);
  EXPECT_FALSE(total.truncated());
  part.add(std::string(PieceCounts::kMaxBytes, 'x'));  // no room for a second large piece
  EXPECT_TRUE(part.truncated());
  total.add(part);
  EXPECT_TRUE(total.truncated());
  total.add(PieceCounts());
  EXPECT_TRUE(total.truncated());
}

TEST(PieceCounts, AreBounded) {
  PieceCounts counts;
  const std::string large(PieceCounts::kMaxBytes / 2, 'x');
  counts.add(large);
  counts.add(large + "1");  // no room
  EXPECT_TRUE(counts.truncated());
  counts.add(large);  // a known piece is still counted
  counts.add("small");
  ASSERT_EQ(counts.sorted().size(), 2u);
  EXPECT_EQ(counts.sorted()[1].count, 2);
}

}  // namespace
}  // namespace stagegpt::test
