#include "common/app/help_text.h"

#include <gtest/gtest.h>

#include <sstream>

#include "common/base/error.h"

namespace stagegpt::test {
namespace {

const std::string kHelp =
    "Train GPT-2 on a text. With no flag: nano, on data/dummy.txt.\n"
    "\n"
    "  --steps N=2000                  number of steps, each of which is one update of the weights\n"
    "  --a-flag-with-a-long-name NUMBER=123\n"
    "                                  its text is on the next line, and as long as any other text\n"
    "  --version                       short\n";

TEST(HelpText, KeepsTheColumnOfDescriptions) {
  EXPECT_EQ(fitted_help(kHelp, 200), kHelp);
  EXPECT_EQ(fitted_help(kHelp, 60),
            "Train GPT-2 on a text. With no flag: nano, on\n"
            "data/dummy.txt.\n"
            "\n"
            "  --steps N=2000                  number of steps, each of\n"
            "                                  which is one update of the\n"
            "                                  weights\n"
            "  --a-flag-with-a-long-name NUMBER=123\n"
            "                                  its text is on the next\n"
            "                                  line, and as long as any\n"
            "                                  other text\n"
            "  --version                       short\n");
}

TEST(HelpText, GivesUpTheColumnOnANarrowTerminal) {
  EXPECT_EQ(fitted_help(kHelp, 40),
            "Train GPT-2 on a text. With no flag:\n"
            "nano, on data/dummy.txt.\n"
            "\n"
            "  --steps N=2000\n"
            "      number of steps, each of which is\n"
            "      one update of the weights\n"
            "  --a-flag-with-a-long-name NUMBER=123\n"
            "      its text is on the next line, and\n"
            "      as long as any other text\n"
            "  --version                       short\n");
}

// 20 columns, too few for the names of some flags: no word is broken.
TEST(HelpText, BreaksBetweenWordsOnly) {
  std::istringstream before(kHelp), after(fitted_help(kHelp, 20));
  for (std::string word, other; before >> word;) {
    after >> other;
    EXPECT_EQ(word, other);
  }
  std::istringstream lines(fitted_help(kHelp, 20));
  for (std::string line; std::getline(lines, line);) {
    EXPECT_TRUE(line.size() <= 20 || line.find(' ', line.find_first_not_of(' ')) == line.npos ||
                line.starts_with("  --"))
        << line;
  }
}

}  // namespace
}  // namespace stagegpt::test
