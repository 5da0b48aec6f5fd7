// Tokenizer files: Hugging Face's tokenizer.json, GPT-2's two files, llm.c's file; valid and damaged.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/base/error.h"
#include "common/data/tokenizers/byte_alphabet.h"
#include "common/data/tokenizers/load_tokenizer.h"
#include "common/data/tokenizers/tokenizer_json.h"
#include "tests/data/make_tokenizers.h"
#include "tests/support/program.h"
#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

std::unique_ptr<Tokenizer> tokenizer_of_kind(std::string_view kind) {
  if (kind == "char") return char_tokenizer(kText);
  if (kind == "word") return word_tokenizer(kText);
  return small_bpe();
}

nlohmann::json bpe_json() { return nlohmann::json::parse(tokenizer_json(*small_bpe())); }

void expect_same(const Tokenizer& a, const Tokenizer& b) {
  EXPECT_EQ(a.kind(), b.kind());
  EXPECT_EQ(a.vocabulary().tokens, b.vocabulary().tokens);
  EXPECT_EQ(a.end_of_text(), b.end_of_text());
  EXPECT_EQ(a.special_tokens().size(), b.special_tokens().size());
  EXPECT_EQ(a.encode(kText), b.encode(kText));
}

class TokenizerFiles : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerFiles, RoundTrip) {
  const ScratchDirectory directory;
  const auto tokenizer = tokenizer_of_kind(GetParam());
  for (const char* name : {"tokenizer.json", "tokenizer.bin"}) {
    tokenizer->save(directory.path() / name);
    expect_same(*tokenizer, *load_tokenizer(directory.path() / name, "--tokenizer-path"));
  }
  expect_same(*tokenizer, *load_tokenizer(directory.path(), "--tokenizer-path"));
}

// Where another token ends a text, the files that `transformers` reads say so, and our tokenizer.json keeps
// it.
TEST(TokenizerOfAnotherModel, EndsATextAsItsFilesSay) {
  const ScratchDirectory directory;
  nlohmann::json json = bpe_json();
  const auto size = static_cast<std::int32_t>(small_bpe()->size());
  nlohmann::json added = json["added_tokens"][0];
  added["content"] = "<|im_end|>";
  added["id"] = size;
  json["added_tokens"].push_back(added);
  directory.write("tokenizer.json", json.dump());
  const auto end_with = [&](const char* file, const char* text) {
    directory.write(file, text);
    const auto tokenizer = load_tokenizer(directory.path(), "--tokenizer-path");
    EXPECT_EQ(parse_tokenizer_json(nlohmann::json::parse(tokenizer_json(*tokenizer)))->end_of_text(),
              tokenizer->end_of_text());
    return tokenizer->end_of_text();
  };
  EXPECT_EQ(end_with("tokenizer_config.json", "{}"), size - 1);  // <|endoftext|>, by its name
  EXPECT_EQ(end_with("config.json", concat("{\"eos_token_id\": [", size, ", 5]}").c_str()), size);
  EXPECT_EQ(end_with("config.json", "{\"eos_token_id\": 5}"), size - 1);  // no special token
  EXPECT_EQ(end_with("tokenizer_config.json", R"({"eos_token": {"content": "<|im_end|>"}})"), size);
  EXPECT_EQ(end_with("tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})"), size - 1);
  EXPECT_EQ(end_with("tokenizer_config.json", R"({"eos_token": "<|im_end|>"})"), size);
}

INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerFiles, testing::Values("char", "word", "bpe"),
                         [](const auto& test) { return std::string(test.param); });

// The tokenizer of kText in GPT-2's two files. Tests change one of them.
class Gpt2Files : public testing::Test {
 protected:
  Gpt2Files() {
    for (std::int32_t id = 0; id < tokenizer->size(); ++id) vocabulary[name(id)] = id;
    for (const Merge& merge : tokenizer->merges())
      merges.push_back(name(merge.left) + ' ' + name(merge.right));
  }
  std::string name(std::int32_t id) const {
    const std::string& token = tokenizer->vocabulary().tokens[static_cast<std::size_t>(id)];
    return tokenizer->is_special(id) ? token : to_byte_alphabet(token);
  }
  std::unique_ptr<Tokenizer> load(const char* vocabulary_name = "encoder.json",
                                  const char* merges_name = "vocab.bpe") const {
    directory.write(vocabulary_name, vocabulary.dump());
    std::string lines = "#version: 0.2\n";
    for (const std::string& merge : merges) lines += merge + '\n';
    directory.write(merges_name, lines);
    return load_tokenizer(directory.path(), "--tokenizer-path");
  }
  void expect_refused(const std::string& says) const {
    expect_refusal([&] { load(); }, says);
  }

  ScratchDirectory directory;
  std::unique_ptr<BpeTokenizer> tokenizer = small_bpe();
  nlohmann::json vocabulary;
  std::vector<std::string> merges;
};

TEST_F(Gpt2Files, UnderBothNames) {
  expect_same(*tokenizer, *load());
  std::filesystem::remove(directory.path() / "encoder.json");
  std::filesystem::remove(directory.path() / "vocab.bpe");
  expect_same(*tokenizer, *load("vocab.json", "merges.txt"));
  expect_same(*tokenizer, *load_tokenizer(directory.path() / "merges.txt", "--tokenizer-path"));
}

// As `transformers` saves a tokenizer with tokens that a user has added.
TEST_F(Gpt2Files, WithAddedTokens) {
  const auto size = static_cast<std::int32_t>(tokenizer->size());
  directory.write("added_tokens.json", nlohmann::json({{"<|pad|>", size + 1}, {"<|user|>", size}}).dump());
  const auto added = load("vocab.json", "merges.txt");
  EXPECT_EQ(added->size(), size + 2);
  EXPECT_EQ(added->end_of_text(), tokenizer->end_of_text());
  EXPECT_EQ(added->encode(kText), tokenizer->encode(kText));
  const std::vector<std::int32_t> ids = added->encode("<|user|>!<|pad|>", SpecialTokens::recognised);
  EXPECT_EQ(ids, (std::vector<std::int32_t>{size, 0, size + 1}));
  EXPECT_EQ(added->decode(ids), "<|user|>!<|pad|>");
  directory.write("added_tokens.json", nlohmann::json({{"<|pad|>", size + 1}}).dump());
  expect_refused(concat("token '<|pad|>' has the id ", size + 1, ", expected 0 to ", size));
  directory.write("added_tokens.json", "[]");
  expect_refused("added_tokens.json\": expected an object, got the JSON type array");
}

TEST_F(Gpt2Files, WithWindowsLineEnds) {
  for (std::string& merge : merges) merge += '\r';
  expect_same(*tokenizer, *load());
}

TEST_F(Gpt2Files, NumberedInAnyOrder) {
  // The ids may be in any order: the bytes need not be first, and merges need not be in their order.
  const std::int32_t last = static_cast<std::int32_t>(tokenizer->size()) - 1;
  for (auto& [token, id] : vocabulary.items()) id = last - id.get<std::int32_t>();
  const auto reversed = load();
  auto ids = tokenizer->encode(kText);
  for (std::int32_t& id : ids) id = last - id;
  EXPECT_EQ(reversed->encode(kText), ids);
  EXPECT_EQ(reversed->decode(ids), kText);
}

TEST_F(Gpt2Files, RefuseAnIdThatIsThereTwice) {
  vocabulary["!"] = 1;
  expect_refused("both have the id 1");
}

TEST_F(Gpt2Files, RefuseAMissingId) {
  vocabulary[name(260)] = tokenizer->size();
  expect_refused("has the id 280, expected 0 to 279");
}

TEST_F(Gpt2Files, RefuseIdsThatAreNoNumbers) {
  vocabulary["!"] = "0";
  expect_refused("the id of token '!' is not a whole number");
  vocabulary["!"] = 0.5;
  expect_refused("the id of token '!' is not a whole number");
  vocabulary["!"] = -1;
  expect_refused("has the id -1");
}

TEST_F(Gpt2Files, RefuseAVocabularyWithoutAllBytes) {
  // Replaces the token "!" by "!!!", so that the ids still have no gap.
  vocabulary.erase("!");
  vocabulary["!!!"] = 0;
  expect_refused("no token for the byte 33");
}

TEST_F(Gpt2Files, RefuseNamesOutsideTheAlphabet) {
  vocabulary.erase(name(260));
  vocabulary["中"] = 260;
  merges.clear();
  expect_refused("is not written in GPT-2's byte alphabet");
}

TEST_F(Gpt2Files, RefuseMergesOfUnknownTokens) {
  merges.push_back("qq q");
  expect_refused("'qq' is not in the vocabulary");
  merges.back() = "q q";
  expect_refused("'qq' is not in the vocabulary");
}

TEST_F(Gpt2Files, RefuseMergesThatLeadNowhereOrInCircles) {
  merges.push_back("a ");  // a + nothing = a
  expect_refused("expected a merge");
  merges.back() = " a";
  expect_refused("expected a merge");
  merges.back() = "a b c";
  expect_refused("expected a merge");
  merges.back() = "ab";
  expect_refused("line 25: expected a merge");
}

TEST_F(Gpt2Files, RefuseMergesThatAreCutShort) {
  merges.pop_back();
  expect_refused("no merge results in token 278");
}

TEST_F(Gpt2Files, RefuseATokenOfTwoBytesWithoutItsMerge) {
  merges.erase(merges.begin());
  expect_refused("no merge results in token 256");
}

TEST_F(Gpt2Files, RefuseAMergeThatIsThereTwice) {
  merges.push_back(merges.front());
  expect_refused("merge " + std::to_string(merges.size()) + " occurs twice");
}

TEST_F(Gpt2Files, RefuseKeysThatAreThereTwice) {
  load();
  directory.write("encoder.json", R"({"!": 0, )" + vocabulary.dump().substr(1));
  expect_refusal([&] { load_tokenizer(directory.path(), "--tokenizer-path"); }, "the key '!' occurs twice");
}

TEST_F(Gpt2Files, RefuseMalformedJson) {
  load();
  for (const char* text :
       {"", "{", "[1, 2]", "{\"a\": 0,}", "null", "{\"a\": 1e999}", "{\"\xff\": 0}", "\xef\xbb\xbf"}) {
    directory.write("encoder.json", text);
    EXPECT_THROW(load_tokenizer(directory.path(), "--tokenizer-path"), UserError) << text;
  }
}

TEST_F(Gpt2Files, RefuseAMissingPart) {
  load();
  std::filesystem::remove(directory.path() / "vocab.bpe");
  expect_refusal([&] { load_tokenizer(directory.path(), "--tokenizer-path"); }, "scripts/download_gpt2.sh");
}

TEST(TokenizerPath, ThatIsMissingNamesTheScript) {
  const ScratchDirectory directory;
  for (const std::filesystem::path& path : {directory.path(), directory.path() / "nothing"}) {
    expect_refusal([&] { load_tokenizer(path, "--tokenizer-path"); }, "scripts/download_gpt2.sh");
  }
}

// A change that makes a tokenizer.json invalid, and the expected error message.
struct Defect {
  const char* name;
  const char* place;     // a JSON pointer
  nlohmann::json value;  // what is put there, or kErased
  const char* says;
};

class TokenizerJsonRefuses : public testing::TestWithParam<Defect> {};

TEST_P(TokenizerJsonRefuses, With) {
  const auto& [name, place, value, says] = GetParam();
  nlohmann::json json = bpe_json();
  const nlohmann::json::json_pointer pointer(place);
  if (value.is_discarded()) {
    json.at(pointer.parent_pointer()).erase(pointer.back());
  } else {
    json[pointer] = value;
  }
  expect_refusal([&] { parse_tokenizer_json(json); }, says);
}

const nlohmann::json kErased = nlohmann::json::value_t::discarded;
const Defect kDefects[] = {
    {"normalizer", "/normalizer", {{"type", "NFC"}}, "'normalizer'"},
    {"no_model", "/model", kErased, "model"},
    {"model_of_another_kind", "/model/type", "Unigram", "'Unigram' is not supported"},
    {"prefix_space", "/pre_tokenizer/add_prefix_space", true, "add_prefix_space"},
    {"prefix_space_by_default", "/pre_tokenizer/add_prefix_space", kErased, "add_prefix_space"},
    {"no_regex", "/pre_tokenizer/use_regex", false, "use_regex"},
    {"another_pre_tokenizer", "/pre_tokenizer/type", "Whitespace", "pre_tokenizer"},
    {"no_pre_tokenizer", "/pre_tokenizer", nullptr, "pre_tokenizer is missing"},
    {"another_decoder", "/decoder/type", "Fuse", "decoder"},
    {"post_processor", "/post_processor", {{"type", "RobertaProcessing"}}, "post_processor"},
    {"template_that_adds",
     "/post_processor",
     {{"type", "TemplateProcessing"}, {"special_tokens", {{"[CLS]", 1}}}},
     "post_processor"},
    {"dropout", "/model/dropout", 0.1, "'dropout': 0.1"},
    {"byte_fallback", "/model/byte_fallback", true, "byte_fallback"},
    {"suffix", "/model/end_of_word_suffix", "</w>", "end_of_word_suffix"},
    {"ordinary_added_token", "/added_tokens/0/special", false, "is not special"},
    {"stripping_added_token", "/added_tokens/0/lstrip", true, "lstrip"},
    {"added_token_elsewhere", "/added_tokens/0/id", 3, "has the ids 279 and 3"},
    {"added_token_at_the_largest_id", "/added_tokens/0/id", 2147483647, "has the ids 279 and 2147483647"},
    {"added_token_far_away", "/added_tokens/0/id", (1ll << 32) + 279, "id is 4294967575"},
    {"added_token_between_ids", "/added_tokens/0/id", 279.7, "id is 279.7"},
    {"added_token_without_id", "/added_tokens/0/id", kErased, "id"},
    {"added_token_twice", "/added_tokens/1", {{"id", 279}, {"content", "<|endoftext|>"}}, "occurs twice"},
    {"too_many_added_tokens", "/added_tokens", nlohmann::json(1025, nullptr), "expected at most 1024"},
    {"vocab_is_a_list", "/model/vocab", {1, 2}, "is not a JSON object"},
    {"merge_of_three", "/model/merges/0", {"a", "b", "c"}, "merge"},
    {"merge_of_nothing", "/model/merges/0", {"", "a"}, "'' is not in the vocabulary"},
    {"merge_is_a_number", "/model/merges/0", 7, "type must be"},
    {"merges_missing", "/model/merges", kErased, "merges"},
};

INSTANTIATE_TEST_SUITE_P(Defects, TokenizerJsonRefuses, testing::ValuesIn(kDefects),
                         [](const auto& test) { return test.param.name; });

TEST(TokenizerJson, TakesMergesAsPairs) {
  nlohmann::json json = bpe_json();
  for (nlohmann::json& merge : json["model"]["merges"]) {
    const std::string line = merge.get<std::string>();
    merge = {line.substr(0, line.find(' ')), line.substr(line.find(' ') + 1)};
  }
  expect_same(*small_bpe(), *parse_tokenizer_json(json));
}

TEST(TokenizerJson, TakesATemplateThatAddsNothing) {  // transformers writes such files
  nlohmann::json json = bpe_json();
  json["post_processor"] = {{"type", "TemplateProcessing"}, {"special_tokens", nlohmann::json::object()}};
  expect_same(*small_bpe(), *parse_tokenizer_json(json));
}

TEST(TokenizerJson, RefusesDeepNesting) {
  const ScratchDirectory directory;
  const std::string deep = std::string(500'000, '[') + std::string(500'000, ']');
  for (const std::string& text : {deep, "{\"normalizer\": " + deep + "}", std::string(10'000'000, '[')}) {
    EXPECT_THROW(load_tokenizer(directory.write("tokenizer.json", text), "--tokenizer-path"), UserError);
  }
}

}  // namespace
}  // namespace stagegpt::test
