// Token ids and merges, compared with those of Hugging Face's tokenizers and OpenAI's tiktoken
// (golden/make_tokens.py).
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/data/tokenizers/load_tokenizer.h"
#include "common/data/tokenizers/tokenizer_json.h"
#include "common/io/content_hash.h"
#include "common/io/file.h"
#include "tests/data/make_tokenizers.h"
#include "tests/support/program.h"

namespace stagegpt::test {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;

const fs::path kSource = STAGEGPT_SOURCE_DIR;
const fs::path kBpe = kSource / "tests/golden/bpe.json";
constexpr const char* kFlag = "--tokenizer-path";

const nlohmann::json& golden() {
  static const nlohmann::json tokens =
      nlohmann::json::parse(std::ifstream(kSource / "tests/golden/tokens.json"));
  return tokens;
}

// For every text of the golden file, the tokenizer must give the ids stored there under `name`.
void expect_reference_ids(const Tokenizer& tokenizer, const char* name) {
  ASSERT_GE(golden().at("texts").size(), 60u);
  for (const nlohmann::json& entry : golden().at("texts")) {
    const auto text = entry.at("text").get<std::string>();
    const auto expected = entry.at(name).get<Ids>();
    EXPECT_EQ(tokenizer.encode(text), expected) << entry.at("text");
    EXPECT_EQ(tokenizer.decode(expected), text) << entry.at("text");
  }
}

TEST(ReferenceTokens, OfHuggingFacesFile) {
  const auto tokenizer = load_tokenizer(kBpe, kFlag);
  EXPECT_EQ(tokenizer->size(), 1001);
  EXPECT_EQ(tokenizer->end_of_text(), 1000);
  EXPECT_EQ(tokenizer->encode("a<|endoftext|>", SpecialTokens::recognised).back(), 1000);
  expect_reference_ids(*tokenizer, "bpe");
}

TEST(ReferenceTokens, AreTheSameAfterSaving) {
  const ScratchDirectory directory;
  const auto tokenizer = load_tokenizer(kBpe, kFlag);
  for (const char* name : {"tokenizer.json", "tokenizer.bin"}) {
    SCOPED_TRACE(name);
    tokenizer->save(directory.path() / name);
    const auto loaded = load_tokenizer(directory.path() / name, kFlag);
    EXPECT_EQ(loaded->vocabulary().tokens, tokenizer->vocabulary().tokens);
    EXPECT_EQ(loaded->end_of_text(), tokenizer->end_of_text());
    expect_reference_ids(*loaded, "bpe");
  }
}

// The class that the splitter gives a character: L (letter), N (number), O (other), or white space. It is
// found from the pieces that the character extends.
std::string class_of(std::string_view character) {
  const std::pair<std::string, const char*> prefixes[] = {{"x", "L"}, {"1", "N"}, {"!", "O"}};
  for (const auto& [prefix, name] : prefixes) {
    const std::string text = prefix + std::string(character);
    Splitter::Cursor cursor(Splitter::gpt2(), text);
    std::string_view piece;
    if (cursor.next(piece) && piece == text) return name;
  }
  return "S";
}

std::string utf8(char32_t c) {
  const auto byte = [](char32_t bits) { return static_cast<char>(bits); };
  const auto more = [&](int shift) { return byte(0x80 | ((c >> shift) & 0x3F)); };
  if (c < 0x80) return {byte(c)};
  if (c < 0x800) return {byte(0xC0 | c >> 6), more(0)};
  if (c < 0x10000) return {byte(0xE0 | c >> 12), more(6), more(0)};
  return {byte(0xF0 | c >> 18), more(12), more(6), more(0)};
}

TEST(ReferenceTokens, TakeEveryCharacterForTheSame) {
  const nlohmann::json& runs = golden().at("classes");
  int wrong = 0;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    const auto end = run + 1 < runs.size() ? runs[run + 1][0].get<char32_t>() : char32_t{0x110000};
    const auto expected = runs[run][1].get<std::string>();
    for (auto c = runs[run][0].get<char32_t>(); c < end; ++c) {
      if (c >= 0xD800 && c < 0xE000) continue;  // surrogates are not characters
      const std::string found = class_of(utf8(c));
      if (found != expected && ++wrong <= 20)
        ADD_FAILURE() << std::hex << "U+" << static_cast<std::uint32_t>(c) << ": " << found << ", expected "
                      << expected;
    }
  }
  EXPECT_EQ(wrong, 0);
}

// Hugging Face's library loaded these saved files, and gave the expected ids.
TEST(ReferenceTokens, OfSavedTokenizers) {
  const auto text = golden().at("multilingual").get<std::string>();
  const std::unique_ptr<Tokenizer> tokenizers[] = {char_tokenizer(text), word_tokenizer(text),
                                                   bpe_tokenizer(text, 400)};
  for (const auto& tokenizer : tokenizers) {
    const std::string kind(tokenizer->kind());
    EXPECT_EQ(tokenizer->encode(text), golden().at("saved").at(kind).get<Ids>()) << kind;
    EXPECT_EQ(tokenizer_json(*tokenizer), read_bytes(kSource / "tests/golden" / ("saved_" + kind + ".json")))
        << kind;
  }
}

TEST(ReferenceTokens, OfGpt2) {
  const char* directory = std::getenv("STAGEGPT_GPT2");
  const fs::path path = directory ? fs::path(directory) : kSource / "data/gpt2";
  if (!directory && !fs::exists(path))
    GTEST_SKIP() << "no GPT-2 vocabulary: scripts/download_gpt2.sh fetches it";
  const auto tokenizer = load_tokenizer(path, kFlag);
  EXPECT_EQ(tokenizer->size(), 50257);
  expect_reference_ids(*tokenizer, "gpt2");
  const fs::path shakespeare = kSource / "data/tinyshakespeare.txt";
  if (!fs::exists(shakespeare)) return;
  const Ids ids = tokenizer->encode(MappedFile(shakespeare, "--data").text());
  EXPECT_EQ(ids.size(), 338025u);
  ContentHash hash;
  hash.add(std::as_bytes(std::span(ids)));
  EXPECT_EQ(hash.hexadecimal(),
            "89aa3f76e4ebe8c103c8c2eb0efe3e03");  // hash of the ids (int32) from tiktoken and tokenizers
}

void expect_reference_merges(std::string_view text, const char* name) {
  const auto expected =
      golden().at("merges").at(name).get<std::vector<std::pair<std::int32_t, std::int32_t>>>();
  const PieceCounts counts = count_pieces(Splitter::gpt2(), text);
  constexpr std::size_t kMost = 700;  // or fewer, if the text has fewer merges
  const std::vector<Merge> merges = train_merges(counts.sorted(), kMost);
  ASSERT_EQ(merges.size(), expected.size());
  for (std::size_t i = 0; i < merges.size(); ++i) {
    ASSERT_EQ(std::pair(merges[i].left, merges[i].right), expected[i]) << "merge " << i;
    ASSERT_EQ(merges[i].result, 256 + static_cast<std::int32_t>(i));
  }
}

TEST(ReferenceMerges, OfTheStories) {
  expect_reference_merges(MappedFile(kSource / "data/dummy.txt", "--input").text(), "dummy");
}

TEST(ReferenceMerges, OfManyScripts) {
  expect_reference_merges(golden().at("multilingual").get<std::string>(), "multilingual");
}

}  // namespace
}  // namespace stagegpt::test
