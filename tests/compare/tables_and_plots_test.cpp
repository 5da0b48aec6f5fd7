// The content of a report's tables and plots.
#include <gtest/gtest.h>

#include <array>

#include "tests/compare/made_comparison.h"
#include "tests/support/patterns.h"
#include "tools/compare/plot.h"
#include "tools/compare/report_parts.h"

namespace stagegpt::compare::test {
namespace {

TEST(AgreementTable, HasTheLargestDifferencesAndTheVerdict) {
  Comparison comparison = made_comparison();
  // The two trials of stage 1 with one rank differ: in step 2 by rounding, in step 4 by more than the limits.
  comparison.entries[1].trials[1].steps[1].loss *= 1 + 1e-12;
  comparison.entries[1].trials[1].steps[3].loss *= 1.5;
  check(comparison);
  const Table table = agreement_table(comparison);
  const auto row = [&](std::size_t index) {
    std::vector<std::string> texts;
    for (const Cell& cell : table.rows.at(index)) texts.push_back(cell.text);
    return texts;
  };
  EXPECT_EQ(row(1),
            (std::vector<std::string>{"Stage 1, 1 rank", "differs, step 4", "Stage 0", "within limits",
                                      "5e-1 at step 4", "none", "2, different bits"}));
  EXPECT_EQ(row(2), (std::vector<std::string>{"Stage 1, 2 ranks", "agrees", "Stage 0", "within limits",
                                              "none", "none", "2, same bits"}));
}

// On each bar, a line marks the range from the minimum to the maximum. The scale fits the largest maximum.
TEST(BarPlot, HasALineFromTheLeastToTheMost) {
  const std::string svg =
      figure(BarPlot{.title = "t",
                     .description = "d",
                     .bars = {{.name = "a", .look = {}, .value = 2, .min = 1, .max = 4, .text = "2"}}},
             "id");
  const char* line = "<line x1=\"(.*?)\" y1=\"(.*?)\" x2=\"(.*?)\" y2=\"(.*?)\" class=\"whisker\"/>";
  std::vector<std::array<double, 4>> lines;
  for (const auto& at : stagegpt::test::all_groups(svg, line))
    lines.push_back({std::stod(at[0]), std::stod(at[1]), std::stod(at[2]), std::stod(at[3])});
  ASSERT_EQ(lines.size(), 3u) << svg;
  const auto [least, middle, most, same_height] = lines[0];
  EXPECT_GT(least, 0);
  EXPECT_EQ(most, 4 * least);
  EXPECT_EQ(same_height, middle);
  for (const std::size_t end : {1, 2}) {  // the short vertical ends of the line
    const auto [x, top, same_x, bottom] = lines[end];
    EXPECT_EQ(x, end == 1 ? least : most);
    EXPECT_EQ(same_x, x);
    EXPECT_EQ(middle - top, bottom - middle);
    EXPECT_LT(top, middle);
  }
}

// Text is 12 high, and a quarter of that is below the baseline.
TEST(BarPlot, IsDescribedAndItsNamesTouchNoBar) {
  const BarPlot bars{.title = "t",
                     .description = "d",
                     .bars = {{.name = "gpq", .look = {}, .value = 2, .min = 1, .max = 4, .text = "2"}}};
  const PartsPlot parts{
      .title = "t", .description = "d", .part_names = {"p"}, .bars = {{"gpq", "1 ms", {1}}}};
  const char *name = "y=\"([^\"]*)\"[^>]*>gpq<", *bar = "<rect x=\"[^\"]*\" y=\"(.*?)\"";
  for (const std::string& svg : {figure(bars, "id"), figure(parts, "id")}) {
    const auto written = stagegpt::test::all_groups(svg, name), drawn = stagegpt::test::all_groups(svg, bar);
    ASSERT_FALSE(written.empty() || drawn.empty()) << svg;
    EXPECT_LE(std::stod(written[0][0]) + 12 / 4, std::stod(drawn[0][0])) << svg;
    for (const char* part : {"<figcaption>t</", "<title id=\"id-title\">t</", "<desc id=\"id-text\">d</"}) {
      EXPECT_NE(svg.find(part), std::string::npos) << svg;
    }
  }
}

}  // namespace
}  // namespace stagegpt::compare::test
