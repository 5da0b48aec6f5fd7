// What the message of a failing test says about each kind of mistake. The mistakes are made here, by hand.
#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <limits>

#include "tests/support/difference.h"

namespace stagegpt::test {
namespace {

constexpr std::int64_t kRows = 6, kColumns = 8;
constexpr double kLimit = 1e-3;

class DescribeDifference : public testing::Test {
 protected:
  double at(std::int64_t row, std::int64_t column) const { return expected_[row * kColumns + column]; }
  // The description if the element at (row, column) is value(row, column).
  std::string described(const std::function<double(std::int64_t, std::int64_t)>& value) const {
    Values got;
    for (std::int64_t row = 0; row < kRows; ++row) {
      for (std::int64_t column = 0; column < kColumns; ++column) got.push_back(value(row, column));
    }
    return describe_difference(got, expected_, {kRows, kColumns}, kLimit);
  }

  static void expect_said(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }

  const Values expected_ = random_values(1, 0, kRows* kColumns);
};

TEST_F(DescribeDifference, NamesTheFirstWrongElement) {
  const std::string text = describe_difference({1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 50, 6}, {1, 2, 3}, kLimit);
  EXPECT_EQ(text, "1 of 6 elements of shape (1, 2, 3) are wrong; the first at (0, 1, 1): 5, expected 50");
}

TEST_F(DescribeDifference, NamesAFactor) {
  expect_said(described([&](auto row, auto column) { return 2.00001 * at(row, column); }),
              "\n  there it is 2 × what is expected");
  expect_said(described([&](auto row, auto column) { return -at(row, column); }),
              "\n  there it is -1 × what is expected");
  expect_said(described([&](auto row, auto column) { return at(row, column) / 8; }),
              "\n  there it is 0.125 × what is expected");
}

TEST_F(DescribeDifference, NamesAnOffset) {
  expect_said(described([&](auto row, auto column) { return at(row, column) - 0.5; }),
              "\n  there it is what is expected - 0.5");
}

TEST_F(DescribeDifference, NamesColumnsAndRows) {
  expect_said(described([&](auto row, auto column) { return column < 5 ? at(row, column) : 0; }),
              "\n  where: columns from 5 on\n  there it is 0");
  expect_said(described([&](auto row, auto column) { return row == 3 ? 9.0 * column : at(row, column); }),
              "\n  where: only row 3");
  expect_said(
      described([&](auto row, auto column) { return column % 2 ? at(row, column) + 1 : at(row, column); }),
      "\n  where: odd columns\n  there it is what is expected + 1");
  expect_said(described([&](auto row, auto column) { return row < 2 && column >= 6 ? 7 : at(row, column); }),
              "\n  where: rows 0 to 1; columns from 6 on");
}

TEST_F(DescribeDifference, NamesWhatWasNotWritten) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  expect_said(described([&](auto row, auto column) { return row < 4 ? at(row, column) : nan; }),
              "\n  where: rows from 4 on\n  there it is NaN: not written");
}

TEST_F(DescribeDifference, NamesFreshMemory) {
  for (const double fresh :
       {std::bit_cast<double>(0x7f7f7f7f7f7f7f7f), double{std::bit_cast<float>(0x7f7f7f7f)}}) {
    expect_said(described([&](auto row, auto column) { return column < 7 ? at(row, column) : fresh; }),
                "\n  where: only column 7\n  there it is fresh memory: not written");
  }
}

TEST_F(DescribeDifference, LeavesOutRoundingErrorsBesideALargeDifference) {
  EXPECT_EQ(describe_difference({1 + 1e-9, 2, 3.5}, {1, 2, 3}, {3}, 1e-12),
            "1 of 3 elements of shape (3) are wrong; the first at (2): 3.5, expected 3");
  EXPECT_EQ(describe_difference({1 + 1e-9, 2, 3}, {1, 2, 3}, {3}, 1e-12),
            "1 of 3 elements of shape (3) are wrong; the first at (0): 1, expected 1");
}

TEST_F(DescribeDifference, NamesNoFactorOfOne) {
  const std::string text = describe_difference({1 + 1e-6, 2 + 2e-6}, {1, 2}, {2}, 1e-9);
  EXPECT_EQ(text.find("×"), std::string::npos) << text;
}

TEST_F(DescribeDifference, NamesValuesThatStandElsewhere) {
  expect_said(described([&](auto row, auto column) { return row ? at(row - 1, column) : 0; }),
              "the values are those expected, but one row late");
  expect_said(
      described([&](auto row, auto column) { return column + 1 < kColumns ? at(row, column + 1) : 0; }),
      "the values are those expected, but one column early");
  expect_said(described([&](auto row, auto column) {
                const std::int64_t i = row * kColumns + column;  // as if stored as (columns, rows)
                return at(i % kRows, i / kRows);
              }),
              "the values are those expected, but transposed");
}

TEST_F(DescribeDifference, FindsNoPatternInNoise) {
  const Values noise = random_values(2, 0, kRows * kColumns);
  const std::string text = described([&](auto row, auto column) { return noise[row * kColumns + column]; });
  expect_said(text, "elements of shape (6, 8) are wrong");
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
}

TEST_F(DescribeDifference, NamesNumbersOfElementsThatDiffer) {
  EXPECT_EQ(describe_difference({1, 2}, {1, 2, 3}, {3}, kLimit), "2 elements, not 3");
}

}  // namespace
}  // namespace stagegpt::test
