// Character and word tokenizers, and properties of all tokenizers.
#include "common/data/tokenizers/tokenizer.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "common/base/error.h"
#include "common/data/make_tokenizer.h"
#include "common/data/utf8.h"
#include "tests/data/make_tokenizers.h"
#include "tests/data/random_text.h"
#include "tests/support/program.h"
#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

using Ids = std::vector<std::int32_t>;

TEST(CharTokenizer, NumbersCharactersInOrder) {
  const std::string text = "aß€😀\n a";
  const auto tokenizer = char_tokenizer(text);
  EXPECT_EQ(tokenizer->size(), 7);  // six characters and the end-of-text token
  EXPECT_EQ(tokenizer->encode(text), (Ids{2, 3, 4, 5, 0, 1, 2}));
  EXPECT_EQ(tokenizer->end_of_text(), 6);
}

TEST(CharTokenizer, RefusesWhatItCannotExpress) {
  const auto tokenizer = char_tokenizer("abc");
  EXPECT_THROW(tokenizer->encode("abd"), UserError);
  EXPECT_THROW(tokenizer->encode("abß"), UserError);
}

// U+FFFD, which stands for such bytes where a text is read, is in both vocabularies.
TEST(Tokenizers, OfCharactersRefuseWhatIsNotUtf8) {
  const auto characters = char_tokenizer("a\uFFFD");
  const auto words = word_tokenizer("a \uFFFD");
  for (const Tokenizer* tokenizer : std::initializer_list<const Tokenizer*>{characters.get(), words.get()}) {
    EXPECT_EQ(refusal([&] { tokenizer->encode("a\xff"); }),
              "the text is not UTF-8: no character begins at byte 1");
  }
}

TEST(WordTokenizer, SplitsWordsPunctuationAndWhiteSpace) {
  const auto tokenizer = word_tokenizer("It's e\u0301té 2026,  so.\n");
  std::vector<std::string> pieces;
  for (const std::int32_t id : tokenizer->encode("It's e\u0301té 2026,  so.\n")) {
    pieces.push_back(tokenizer->decode(std::span(&id, 1)));
  }
  EXPECT_EQ(pieces, (std::vector<std::string>{"It", "'", "s", " ", "e\u0301té", " ", "2026", ",", " ", " ",
                                              "so", ".", "\n"}));
}

TEST(WordTokenizer, KeepsTheMostFrequentWordsAndCallsTheOthersUnknown) {
  const auto tokenizer =
      word_tokenizer("b a b c b a", 5);  // room for two of four words; counts: " " 5, b 3, a 2, c 1
  EXPECT_EQ(tokenizer->size(), 5);
  const Ids ids = tokenizer->encode("b a");
  EXPECT_EQ(ids, (Ids{4, 3, 2}));
  EXPECT_EQ(tokenizer->decode(ids), "b [UNK]");
  EXPECT_EQ(tokenizer->encode("[UNK]"), (Ids{2, 2, 2}));  // ordinary text; its parts are unknown words
}

TEST(WordTokenizer, TakesTheSmallerOfEquallyFrequentWords) {
  EXPECT_EQ(word_tokenizer("d,c,b,a", 6)->vocabulary().tokens,
            (std::vector<std::string>{"[PAD]", "[EOS]", "[UNK]", ",", "a", "b"}));
}

TEST(WordTokenizer, RefusesAVocabularyWithoutAWord) { EXPECT_THROW(word_tokenizer("a b", 3), UserError); }

// The progress (bytes done, bytes in all) of a text of several blocks.
class TextProgress : public testing::Test {
 protected:
  static constexpr std::int64_t kBytes = 600'000;

  TextSource text() {
    std::string bytes;
    while (std::ssize(bytes) < kBytes) bytes += "ab ";
    return {{directory_.write("text.txt", bytes)}, "--data"};
  }
  TokenizeOptions options() {
    TokenizeOptions options;
    options.progress = [this](std::int64_t now, std::int64_t all) {
      done_.push_back(now);
      EXPECT_EQ(all, kBytes);
    };
    return options;
  }
  void expect_done() const {
    EXPECT_GT(done_.size(), 1u);
    EXPECT_TRUE(std::ranges::is_sorted(done_));
    EXPECT_EQ(done_.back(), kBytes);
  }

 private:
  ScratchDirectory directory_;
  std::vector<std::int64_t> done_;
};

TEST_F(TextProgress, IsToldWhileATokenizerIsMade) {
  TokenizerChoice choice;
  choice.kind = "word";
  make_tokenizer(choice, text(), options());
  expect_done();
}

TEST_F(TextProgress, IsToldWhileATextIsTokenized) {
  std::int64_t tokens = 0;  // one for each character
  tokenize(text(), {0, kBytes}, *char_tokenizer("ab "), options(),
           [&](std::span<const std::int32_t> ids) { tokens += std::ssize(ids); });
  EXPECT_EQ(tokens, kBytes);
  expect_done();
}

TEST(DefaultVocabulary, HasATokenForEach600BytesOfText) {
  EXPECT_EQ(default_vocab_size(0), 512);
  EXPECT_EQ(default_vocab_size(600 * 513 - 1), 512);
  EXPECT_EQ(default_vocab_size(600 * 513), 513);
  EXPECT_EQ(default_vocab_size(600 * 50257), 50257);
  EXPECT_EQ(default_vocab_size(600 * 50258), 50257);
}

RC_GTEST_PROP(CharTokenizer, RoundTripsItsCorpus, ()) {
  const std::string text = *any_text(true);
  const auto tokenizer = char_tokenizer(text);
  RC_ASSERT(tokenizer->decode(tokenizer->encode(text)) == text);
}

RC_GTEST_PROP(WordTokenizer, RoundTripsItsCorpus, ()) {
  const std::string text = *any_text(true);
  const auto tokenizer = word_tokenizer(text);
  RC_ASSERT(tokenizer->decode(tokenizer->encode(text)) == text);
}

TEST(SpecialTokens, AreTextUnlessAskedFor) {
  const auto tokenizer = bpe_tokenizer("some text");
  const std::string text = "a<|endoftext|>b<|endoftext|>";
  const Ids as_text = tokenizer->encode(text),
            recognised = tokenizer->encode(text, SpecialTokens::recognised);
  EXPECT_EQ(std::ranges::count(as_text, *tokenizer->end_of_text()), 0);
  EXPECT_EQ(recognised.size(), 4u);
  EXPECT_EQ(recognised[1], *tokenizer->end_of_text());
  EXPECT_EQ(tokenizer->decode(as_text), text);
  EXPECT_EQ(tokenizer->decode(recognised), text);
}

TEST(SpecialTokens, TheLongestOfThoseThatBeginTogetherIsTaken) {
  Vocabulary vocabulary = bpe_vocabulary({});
  vocabulary.tokens.insert(vocabulary.tokens.end(), {"<|end", "of"});
  vocabulary.special_tokens.push_back({"<|end", 257});
  vocabulary.special_tokens.push_back({"of", 258});
  const BpeTokenizer tokenizer(vocabulary, {});
  EXPECT_EQ(tokenizer.encode("<|endoftext|>", SpecialTokens::recognised), (Ids{256}));
  EXPECT_EQ(tokenizer.encode("<|endof", SpecialTokens::recognised), (Ids{257, 258}));
}

// The text before a safe cut and the text after it, encoded separately, must give the tokens of the whole
// text, whatever text follows.
void expect_safe_cut(const Tokenizer& tokenizer, const std::string& text, const std::string& more,
                     SpecialTokens special) {
  const std::size_t cut = tokenizer.safe_cut(text, special);
  RC_ASSERT(cut <= text.size());
  Ids parts = tokenizer.encode(text.substr(0, cut), special);
  const Ids rest = tokenizer.encode(text.substr(cut) + more, special);
  parts.insert(parts.end(), rest.begin(), rest.end());
  RC_ASSERT(parts == tokenizer.encode(text + more, special));
}

RC_GTEST_PROP(SafeCut, OfBpeChangesNoTokens, ()) {
  static const auto tokenizer =
      bpe_tokenizer("the then don't 中文 they'll \n\n  then 2026 ... <|endoftext|> the the");
  const SpecialTokens special = *rc::gen::element(SpecialTokens::as_text, SpecialTokens::recognised);
  expect_safe_cut(*tokenizer, *any_text(false), *any_text(false), special);
}

std::vector<std::string> gpt2_pieces(std::string_view text) { return pieces_of(Splitter::gpt2(), text); }

// The pieces of text + more, split separately before and after the safe cut of `text`.
std::vector<std::string> pieces_across_cut(const std::string& text, const std::string& more) {
  const std::size_t cut = Splitter::gpt2().safe_cut(text);
  std::vector<std::string> pieces = gpt2_pieces(text.substr(0, cut));
  for (const std::string& piece : gpt2_pieces(text.substr(cut) + more)) pieces.push_back(piece);
  return pieces;
}

// Without ASCII white space, whether a cut is safe depends on the characters after it.
RC_GTEST_PROP(SafeCut, WithoutAsciiWhiteSpaceChangesNoPieces, ()) {
  const auto any = rc::gen::map(rc::gen::container<std::vector<std::string>>(rc::gen::element<std::string>(
                                    "'", "l", "r", "e", "ll", "s", "\u3000", "\u3000\u3000", "\u0085", "中",
                                    "1", ".", "\xff", "\xe3\x80")),
                                [](const std::vector<std::string>& parts) {
                                  std::string joined;
                                  for (const std::string& part : parts) joined += part;
                                  return joined;
                                });
  const std::string text = *any, more = *any;
  RC_ASSERT(pieces_across_cut(text, more) == gpt2_pieces(text + more));
}

TEST(SafeCut, LeavesWhatTheNextBytesMayChange) {
  const std::string before = "中1中1中1中1中1中1";
  for (const std::string tail : {"'", "'l", "'r", "\u3000", "\u3000\u3000", "\xe3\x80", "\xe3", "1", "."}) {
    for (const std::string more : {"l", "e", "\x80", "\x80\x80", "\u3000", "x", "1", "."}) {
      EXPECT_EQ(pieces_across_cut(before + tail, more), gpt2_pieces(before + tail + more))
          << tail << " and " << more;
    }
  }
}

RC_GTEST_PROP(SafeCut, OfWordsAndCharactersChangesNoTokens, ()) {
  const std::string text = *any_text(true), more = *any_text(true);
  expect_safe_cut(*word_tokenizer(text + more), text, more, SpecialTokens::as_text);
  expect_safe_cut(*char_tokenizer(text + more), text, more, SpecialTokens::as_text);
}

TEST(SafeCut, SplitsNoSpecialToken) {
  Vocabulary vocabulary = bpe_vocabulary({});
  vocabulary.tokens.push_back("two words");
  vocabulary.special_tokens.push_back({"two words", 257});
  const BpeTokenizer tokenizer(vocabulary, {});
  const std::string text = "some two words";
  EXPECT_EQ(tokenizer.safe_cut(text + text + text, SpecialTokens::as_text), 36u);  // "... two| words"
  EXPECT_EQ(tokenizer.safe_cut(text + text + text, SpecialTokens::recognised),
            28u);  // "...two words|some two words"
  EXPECT_EQ(tokenizer.safe_cut(text + " more of this", SpecialTokens::recognised), 14u);
}

TEST(SafeCut, IsFoundAmongManySpecialTokens) {
  const auto tokenizer = bpe_tokenizer("");
  std::string text;  // a search of quadratic time would take hours
  for (int i = 0; i < 200'000; ++i) text += "<|endoftext|>";
  EXPECT_EQ(tokenizer->safe_cut(text, SpecialTokens::recognised), text.size());
  EXPECT_EQ(tokenizer->safe_cut(text + "<|endoftext|", SpecialTokens::recognised), text.size());
  EXPECT_EQ(tokenizer->safe_cut("<|endoftext|", SpecialTokens::recognised), 0u);
}

TEST(SafeCut, IsFoundInEveryLongText) {
  for (const std::string& unit : {std::string("a"), std::string(" "), std::string("\xff"), std::string("中"),
                                  std::string("1a"), std::string("\u3000"), std::string("a\u3000")}) {
    std::string text;
    while (text.size() < 2 * Splitter::kMaxPiece + 64) text += unit;
    const std::size_t cut = Splitter::gpt2().safe_cut(text);
    EXPECT_GT(cut, 0u) << unit;
    EXPECT_TRUE(pieces_across_cut(text, "") == gpt2_pieces(text)) << unit;
  }
}

TEST(SafeCut, LeavesAnUnfinishedCharacterAlone) {
  EXPECT_EQ(char_tokenizer("aß€")->safe_cut("a\xe2\x82"), 1u);
  EXPECT_EQ(char_tokenizer("aß€")->safe_cut("aß"), 3u);
}

// Holds for any tokens and for any end of the text.
RC_GTEST_PROP(StreamDecoder, GivesUtf8AndLosesNothing, ()) {
  static const auto tokenizer = bpe_tokenizer("no merges across these bytes");
  const std::string text = *any_text(*rc::gen::arbitrary<bool>()) + *any_bytes();
  const std::size_t prompt = *rc::gen::inRange<std::size_t>(0, text.size() + 1);
  StreamDecoder decoder(*tokenizer);
  std::string joined = decoder.push_bytes(text.substr(0, prompt));
  for (const std::int32_t id : tokenizer->encode(text.substr(prompt))) {
    joined += decoder.push(id);
    RC_ASSERT(utf8_prefix(joined) == joined.size());
  }
  joined += decoder.finish();
  RC_ASSERT(joined == utf8_replaced(text));
  RC_ASSERT(decoder.finish() == "");
}

TEST(StreamDecoder, HoldsBackAnUnfinishedCharacter) {
  const auto tokenizer = bpe_tokenizer("");
  StreamDecoder decoder(*tokenizer);
  std::vector<std::string> parts;
  for (const std::int32_t id : tokenizer->encode("a€\xe2z")) parts.push_back(decoder.push(id));
  EXPECT_EQ(parts, (std::vector<std::string>{"a", "", "", "€", "", "\uFFFDz"}));
  EXPECT_EQ(decoder.push(tokenizer->encode("\xf0")[0]), "");
  EXPECT_EQ(decoder.finish(), "\uFFFD");
}

TEST(StreamDecoder, FinishesTheCharacterThatAPromptEndsInside) {
  const auto tokenizer = bpe_tokenizer("");
  StreamDecoder decoder(*tokenizer);
  EXPECT_EQ(decoder.push_bytes("\xff a\xe2\x82"), "\uFFFD a");
  EXPECT_EQ(decoder.push(tokenizer->encode("\xac")[0]), "€");
}

TEST(Utf8, FollowsTheStandard) {
  for (const char* good : {"a", "\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
                           "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(utf8_length(good, 0), std::string(good).size()) << good;
    EXPECT_EQ(utf8_prefix(std::string("12345678") + good + "!"), 9 + std::string(good).size());
  }
  for (const char* bad :
       {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc2", "\xc2z", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xe1\x80",
        "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"}) {
    EXPECT_EQ(utf8_length(bad, 0), 0u) << bad;
    EXPECT_EQ(utf8_prefix(std::string("12345678") + bad + "!"), 8u);
  }
}

TEST(Utf8, KnowsWhatMayStillBecomeACharacter) {
  for (const char* partial :
       {"\xc2", "\xe0", "\xe0\xa0", "\xed\x9f", "\xf0", "\xf0\x90", "\xf0\x90\x80", "\xf4\x8f\xbf"}) {
    EXPECT_EQ(utf8_complete(std::string("ab") + partial), 2u) << partial;
  }
  for (const char* never :
       {"\x80", "\xff", "\xc0", "\xe0\x80", "\xed\xa0", "\xf4\x90", "\xf5\x80\x80", "\xc2\x80", "z"}) {
    EXPECT_EQ(utf8_complete(std::string("ab") + never), 2 + std::string(never).size()) << never;
  }
}

// Expected values: tables 3-8 to 3-11 of the Unicode Standard 16, section 3.9. The other cases are from
// Python's bytes.decode("utf-8", "replace").
TEST(Utf8, ReplacesAsTheStandardAdvises) {
  const auto replaced = [](std::string text) {
    for (std::size_t at = 0; (at = text.find('?', at)) != std::string::npos;) text.replace(at, 1, "\uFFFD");
    return text;
  };
  const std::pair<std::string, std::string> cases[] = {{"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41", "????????A"},
                                                       {"\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41", "????????A"},
                                                       {"\xf4\x91\x92\x93\xff\x41\x80\xbf\x42", "?????A??B"},
                                                       {"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", "????A"},
                                                       {"€\xf0\x9f\x98", "€?"},
                                                       {"\xf0\x9f\x98\xf0\x9f\x98\x80", "?😀"},
                                                       {"\xc2\xc2\x80", "?\xc2\x80"},
                                                       {std::string("\0\xff\n", 3), std::string("\0?\n", 3)},
                                                       {"", ""}};
  for (const auto& [text, expected] : cases) EXPECT_EQ(utf8_replaced(text), replaced(expected)) << expected;
}

TEST(Utf8, PrintableTextHasNoBytesThatMoveATerminal) {
  EXPECT_EQ(printable_text("a\tb\nc é 😀"), "a\tb\nc é 😀");
  EXPECT_EQ(printable_text("\x1b[2J\r\x7f"), "?[2J??");
  EXPECT_EQ(printable_text("x\xc3"), "x\uFFFD");
  EXPECT_EQ(printable_text("\x9f\xff y"), "\uFFFD\uFFFD y");
}

}  // namespace
}  // namespace stagegpt::test
