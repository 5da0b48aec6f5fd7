// Files of multiple-choice questions, and their tokens.
#include "common/data/choice_task.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/base/error.h"
#include "common/data/choice_file.h"
#include "common/data/tokenizers/load_tokenizer.h"
#include "common/data/tokenizers/tokenizer_json.h"
#include "tests/data/make_tokenizers.h"
#include "tests/support/program.h"
#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

using Ids = std::vector<std::int32_t>;

TEST(ChoiceLines, AreQuestions) {
  const auto choices = parse_choice_lines(
      "{\"context\": \"It is\", \"endings\": [\"hot\", \"caf\\u00e9\"], \"label\": 1, \"more\": 3}\r\n"
      "\n"
      "{\"context\": \"\", \"endings\": [\"a\", \"b\", \"c\"], \"label\": \"2\"}");
  ASSERT_EQ(choices.size(), 2u);
  EXPECT_EQ(choices[0].context, "It is");
  EXPECT_EQ(choices[0].endings, (std::vector<std::string>{"hot", "café"}));
  EXPECT_EQ(choices[0].label, 1u);
  EXPECT_EQ(choices[1].context, "");
  EXPECT_EQ(choices[1].endings.size(), 3u);
  EXPECT_EQ(choices[1].label, 2u);
}

// The expected texts are those of lm-evaluation-harness 0.4.13.
TEST(ChoiceLines, OfHellaSwagLoseTheirMarks) {
  const auto choices = parse_choice_lines(
      R"({"ind": 4, "activity_label": "Personal Care", "ctx": "unused", "split_type": "indomain",)"
      R"( "ctx_a": "[header] How to sit [title] First  thing.\n[step] Go   on [open", "ctx_b": "tHE [x\n] Man",)"
      R"( "label": 3, "endings": ["  [substeps] He  sits [title] Down [a][b]. ", "b", "c", "d"]})");
  ASSERT_EQ(choices.size(), 1u);
  EXPECT_EQ(choices[0].context, "Personal Care: How to sit. First thing.\n Go  on [open The [x\n] man");
  EXPECT_EQ(choices[0].endings[0], " He sits. Down .");
  EXPECT_EQ(choices[0].label, 3u);
}

TEST(ChoiceLines, ThatAreNoQuestionsAreNamed) {
  const std::string good = "{\"context\": \"a\", \"endings\": [\"b\", \"c\"], \"label\": 0}\n";
  const auto refused = [&](const std::string& line) {
    return refusal([&] { parse_choice_lines(good + "\n" + line + "\n" + good); });
  };
  EXPECT_EQ(refused("{\"context\": \"a\", \"endings\": [\"b\"], \"label\": 0}"),
            "line 3: 'endings' has 1, expected at least 2");
  EXPECT_EQ(refused("{\"context\": \"a\", \"endings\": [\"b\", \"c\"], \"label\": 2}"),
            "line 3: 'label' is 2, expected 0 to 1");
  EXPECT_EQ(refused("{\"context\": \"a\", \"endings\": [\"b\", \"c\"], \"label\": -1}"),
            "line 3: 'label' is -1, expected 0 to 1");
  EXPECT_EQ(refused("{\"ctx_a\": \"a\", \"endings\": [\"b\", \"c\"], \"label\": \"\"}"),
            "line 3: 'label' is \"\", expected 0 to 1 (in a test set without labels?)");
  EXPECT_EQ(refused("{\"ctx\": \"a\", \"endings\": [\"b\", \"c\"], \"label\": 1}"),
            "line 3: expected 'context', 'endings' and 'label', or HellaSwag's fields");
  EXPECT_EQ(refused("{\"context\": \"a\", \"context\": \"a\"}"), "line 3: the key 'context' occurs twice");
  // A field is named.
  EXPECT_EQ(refused("{\"context\": 1, \"endings\": [\"b\", \"c\"], \"label\": 1}"),
            "line 3: 'context': type must be string, but is number");
  EXPECT_EQ(refused("{\"context\": \"a\", \"endings\": [\"b\", 3], \"label\": 1}"),
            "line 3: 'endings': type must be string, but is number");
  EXPECT_EQ(refused("{\"context\": \"a\", \"endings\": [\"b\", \"c\"]}"), "line 3: 'label' is missing");
  EXPECT_EQ(refused("{}"), "line 3: 'endings' is missing");
  EXPECT_EQ(refused("[1, 2]"), "line 3: expected an object, got the JSON type array");
  // The number of a line is that of the file, and there is one only.
  EXPECT_TRUE(refused("{\"context").starts_with("line 3: parse error at column 10: syntax error"))
      << refused("{\"context");
}

class ChoiceTasks : public testing::Test {
 protected:
  ChoiceTask load(const std::string& content, const Tokenizer& tokenizer, std::int64_t block_size = 100) {
    directory_.write("task", content);
    SingleProcess alone;
    return load_choice_task(alone, directory_.path() / "task", "--task", tokenizer, block_size);
  }
  std::string refused(const std::string& content, const Tokenizer& tokenizer, std::int64_t block_size = 100) {
    const std::string message = refusal([&] { load(content, tokenizer, block_size); });
    const std::string begin = concat("--task: ", directory_.path() / "task", ": ");
    return message.starts_with(begin) ? message.substr(begin.size()) : message;
  }

  ScratchDirectory directory_;
  std::unique_ptr<Tokenizer> characters_ = char_tokenizer("abé "), bpe_ = small_bpe();
};

constexpr const char* kQuestion = R"({"context": "ab", "endings": ["a", "bé"], "label": 1})";

TEST_F(ChoiceTasks, JoinContextAndEndingByASpace) {
  const ChoiceTask task = load(kQuestion, *characters_);
  ASSERT_EQ(task.questions.size(), 1u);
  const ChoiceQuestion& question = task.questions[0];
  EXPECT_EQ(characters_->decode(task.endings[0].ids), "ab a");
  EXPECT_EQ(task.endings[0].scored, 2);
  EXPECT_EQ(characters_->decode(task.endings[1].ids), "ab bé");
  EXPECT_EQ(task.endings[1].scored, 3);
  EXPECT_EQ(question.characters, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(question.label, 1u);
  EXPECT_EQ(task.cut, 0);
  EXPECT_EQ(task.endings.size(), 2u);
}

TEST_F(ChoiceTasks, CountSpaceBehindAContextToTheEnding) {
  const auto task = load(R"({"context": "ab  ", "endings": ["a", ""], "label": 0})", *characters_);
  EXPECT_EQ(characters_->decode(task.endings[0].ids), "ab   a");
  EXPECT_EQ(task.endings[0].scored, 4);
  EXPECT_EQ(task.endings[1].scored, 3);  // an empty ending is the spaces before it
  EXPECT_EQ(task.questions[0].characters[1], 0);
}

TEST_F(ChoiceTasks, BeginWithTheEndOfTextIfThereIsNoContext) {
  const std::string empty = R"({"context": "", "endings": ["the", "there"], "label": 0})";
  const ChoiceTask task = load(empty, *bpe_);
  EXPECT_EQ(task.endings[0].ids[0], bpe_->end_of_text());
  EXPECT_EQ(bpe_->decode(std::span(task.endings[1].ids).subspan(1)), " there");
  // A tokenizer without special tokens.
  nlohmann::json file = nlohmann::json::parse(tokenizer_json(*characters_));
  file["added_tokens"] = nlohmann::json::array();
  file["model"]["vocab"].erase("<|endoftext|>");
  directory_.write("tokenizer.json", file.dump());
  const auto other = load_tokenizer(directory_.path() / "tokenizer.json", "--tokenizer-path");
  EXPECT_EQ(refused(R"({"context": " ", "endings": ["a", "b"], "label": 0})", *other),
            "line 1: the context is empty, and the tokenizer has no end-of-text token to begin with");
}

TEST_F(ChoiceTasks, LoseTheBeginningOfALongContext) {
  const std::string question = R"({"context": "abababab", "endings": ["a", "bbbb"], "label": 0})";
  const ChoiceTask task = load(question, *characters_, 9);
  EXPECT_EQ(task.cut, 1);
  EXPECT_EQ(characters_->decode(task.endings[0].ids), "abababab a");  // 9 inputs and a target
  EXPECT_EQ(characters_->decode(task.endings[1].ids), "babab bbbb");
  EXPECT_EQ(load(question, *characters_, 5).cut, 2);
  EXPECT_EQ(refused(question, *characters_, 4),
            "line 1: an ending has 5 tokens, and the model's context is 4");
}

TEST_F(ChoiceTasks, AreRefusedWithTheirFile) {
  EXPECT_EQ(refused("\n", *characters_), "the file has no questions");
  EXPECT_EQ(refused("", *characters_), "the file has no questions");
  EXPECT_TRUE(refused("no JSON", *characters_).starts_with("line 1: ")) << refused("no JSON", *characters_);
  EXPECT_EQ(
      refused(std::string(kQuestion) + "\n\n" + R"({"context": "x", "endings": ["a", "b"], "label": 1})",
              *characters_),
      "line 3: the character 'x' is not in the vocabulary");
}

// llm.c's file, as docs/file_formats.md says.
std::string llmc_file(const std::vector<std::vector<std::uint16_t>>& questions) {
  std::vector<std::int32_t> header(256);
  header[0] = 20240522, header[1] = 1, header[2] = static_cast<std::int32_t>(questions.size());
  std::string file(reinterpret_cast<const char*>(header.data()), 1024);
  for (const auto& question : questions)
    file.append(reinterpret_cast<const char*>(question.data()), 2 * question.size());
  return file;
}

TEST_F(ChoiceTasks, AreReadFromLlmcsFile) {
  const auto ids = [&](std::string_view text) { return bpe_->encode(text); };
  std::vector<std::uint16_t> question = {65535, 99, 7, 1, 2};
  for (const char* text : {"the", " there", " It's"}) {
    const Ids tokens = ids(text);
    question.push_back(static_cast<std::uint16_t>(tokens.size()));
    question.insert(question.end(), tokens.begin(), tokens.end());
  }
  const ChoiceTask task = load(llmc_file({question, question}), *bpe_);
  ASSERT_EQ(task.questions.size(), 2u);
  EXPECT_EQ(bpe_->decode(task.endings[3].ids), "the It's");
  EXPECT_EQ(task.endings[3].scored, std::ssize(ids(" It's")));
  EXPECT_EQ(task.questions[1].characters, (std::vector<std::int64_t>{5, 4}));
  EXPECT_EQ(task.questions[1].label, 1u);
}

TEST_F(ChoiceTasks, OfLlmcAreRefusedWithTheirQuestion) {
  const std::vector<std::uint16_t> good = {65535, 22, 0, 1, 2, 1, 65, 1, 66, 1, 67};
  std::string file = llmc_file({good});
  EXPECT_EQ(load(file, *bpe_).questions.size(), 1u);
  EXPECT_EQ(refused(file + "a", *bpe_), "the file is longer than the 1 questions that its header names");
  EXPECT_EQ(refused(file.substr(0, file.size() - 1), *bpe_), "question 1 of 1: the file ends too early");
  const auto with = [&](std::size_t i, std::uint16_t value) {
    std::vector<std::uint16_t> changed = good;
    changed[i] = value;
    return refused(llmc_file({good, changed}), *bpe_);
  };
  EXPECT_EQ(with(0, 3), "question 2 of 2: expected 65535 at its beginning, got 3");
  EXPECT_EQ(with(3, 2), "question 2 of 2: ending 2 of 2 is said to be right");
  EXPECT_EQ(
      with(6, 50000),
      "question 2 of 2: has the token 50000, and the model's vocabulary has 280; the file is for models "
      "with GPT-2's vocabulary");
  EXPECT_TRUE(
      with(10, 280).starts_with("question 2 of 2: has the token 280, and the model's vocabulary has 280;"));
  file[4] = 2;
  EXPECT_EQ(refused(file, *bpe_), "version 2 of llm.c's format, expected 1");
}

}  // namespace
}  // namespace stagegpt::test
