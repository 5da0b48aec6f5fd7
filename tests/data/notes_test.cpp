// Notes that prepare_data prints on standard error. Each test causes one note.
#include "common/base/error.h"
#include "tests/data/prepare_data_fixture.h"

namespace stagegpt::test {
namespace {

void expect_note(const ProgramResult& result, const std::string& text) {
  expect_said(result, "note: " + text);
}

// A text of 13 MB of different words. The vocabulary is made from the first 12 MB, so it does not contain the
// last words.
TEST_F(PrepareData, NotesThatNotAllWordsFit) {
  std::string text;
  for (int i = 0; i < 13000; ++i) text += std::to_string(100000 + i) + std::string(1000, 'x') + ' ';
  directory.write("text.txt", text);
  const ProgramResult result = prepare("out", {"--input", "text.txt", "--tokenizer", "word"});
  expect_note(result,
              "the text has too many different words to count all; the vocabulary is made from the first "
              "1000000 or 12 MB");
  expect_note(result, "no tokenizer.bin, which llm.c's programs read: ");
  const auto words = tokenizer("out");
  EXPECT_NE(words->encode("100000" + std::string(1000, 'x')).front(), words->unknown());
  EXPECT_EQ(words->encode("112999" + std::string(1000, 'x')).front(), words->unknown());
}

TEST_F(PrepareData, NotesThatAVocabularyIsSmaller) {
  directory.write("text.txt", "ab ab ab");
  const ProgramResult result = prepare("out", {"--input", "text.txt", "--vocab-size", "5000"});
  expect_note(result, concat("the vocabulary has ", tokenizer("out")->size(),
                             " tokens, not 5000: no other pair of tokens occurs twice"));
}

}  // namespace
}  // namespace stagegpt::test
