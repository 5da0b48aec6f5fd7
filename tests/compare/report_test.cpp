// From measurements to reports: medians, ratios, JSON, tables and the page.
#include <gtest/gtest.h>

#include "common/base/json.h"
#include "tests/compare/made_comparison.h"
#include "tools/compare/report_parts.h"
#include "tools/page/document.h"

namespace stagegpt::compare::test {
namespace {

TEST(Speeds, AreRatiosToTheReferenceAndToFewestRanks) {
  Comparison comparison = made_comparison();
  comparison.entries[2].trials[1] = trial(5, 0.2);  // trials with 2560 and 1280 tokens/s
  const std::vector<Speed> all = speeds(comparison);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_DOUBLE_EQ(all[0].tokens_per_second.median, 640);
  EXPECT_EQ(all[0].efficiency, std::nullopt);
  EXPECT_DOUBLE_EQ(*all[1].speed_up, 2);
  EXPECT_DOUBLE_EQ(*all[1].efficiency, 1);
  EXPECT_EQ(all[2].tokens_per_second, (Spread{1920, 1280, 2560}));
  EXPECT_DOUBLE_EQ(*all[2].speed_up, 3);
  EXPECT_DOUBLE_EQ(*all[2].efficiency, 1.5);  // on the same two cores
}

TEST(Speeds, EfficiencyOfScalingIsForEachCore) {
  Comparison comparison = made_comparison();
  comparison.experiment.mode = Mode::strong;
  comparison.entries = {entry(contestant(0), 1, 0.4), entry(contestant(1, 1), 1, 0.4),
                        entry(contestant(1, 2), 1, 0.25)};
  EXPECT_DOUBLE_EQ(*speeds(comparison)[2].efficiency, 0.8);  // 1.6 times as fast, on two cores
  const LinePlot strong = scaling_plot(comparison);
  ASSERT_EQ(strong.series.size(), 1u);
  EXPECT_EQ(strong.series[0].points[1], std::pair(2.0, 1.6));

  comparison.experiment.mode = Mode::weak;
  comparison.entries[2] = entry(contestant(1, 2), 1, 0.5);  // twice the tokens
  comparison.entries[2].trials[0].tokens_per_step *= 2;
  EXPECT_DOUBLE_EQ(*speeds(comparison)[2].efficiency, 0.8);
  comparison.experiment.mode = Mode::same_cores;
  EXPECT_TRUE(scaling_plot(comparison).series.empty());
}

TEST(Speeds, NeedStepsAfterTheWarmUp) {
  Comparison comparison = made_comparison();
  comparison.experiment.warmup = 5;
  check(comparison);
  EXPECT_TRUE(speeds(comparison).empty());
  const std::string note = "No speed: the first 5 steps of a run are warm-up, and a run has 5.";
  const std::string report = terminal_report(comparison);
  EXPECT_NE(report.find(note), std::string::npos) << report;
  EXPECT_EQ(report.find("tokens/s"), std::string::npos) << report;
  EXPECT_NE(page(comparison).find(note), std::string::npos);
  const Json json = Json::parse(results_json(comparison).dump());
  EXPECT_TRUE(json["speed"].empty());
  EXPECT_TRUE(json["contestants"][0]["trials"][0]["tokens_per_second"].is_null());
}

TEST(Escaped, IsTextInHtml) {
  EXPECT_EQ(escaped("<a href=\"x\">'&'"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;");
  EXPECT_EQ(escaped("ä\xff"), "ä\uFFFD");
}

TEST(Page, NeedsNothingFromElsewhere) {
  Comparison comparison = made_comparison();
  check(comparison);
  const std::string html = page(comparison);
  for (const char* outside :
       {"http:", "https:", "//", "src=", "url(", "<script", "<link", "@import", "<img"}) {
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
  }
  EXPECT_NE(html.find("default-src 'none'"), std::string::npos);
  for (const char* part :
       {"screen and (prefers-color-scheme: dark)", "name=\"viewport\"", "lang=\"en\"", "The stages agree"}) {
    EXPECT_NE(html.find(part), std::string::npos) << part;
  }
}

TEST(Page, EscapesWhatUsersWrite) {
  Comparison comparison = made_comparison();
  comparison.title = comparison.author = comparison.model = comparison.data = "<script>x</script>";
  comparison.command = {"<script>"};
  comparison.settings["data"] = "<script>";
  comparison.left_out = {{"<script>", "<script>"}};
  comparison.entries[0].machine = "<script>";
  comparison.entries[1].failure = "<script>";
  check(comparison);
  comparison.divergences[0].text = "<script>";
  EXPECT_EQ(page(comparison).find("<script"), std::string::npos);
}

TEST(Page, TellsWhenThereWasNothingToCompareWith) {
  Comparison comparison = made_comparison();
  comparison.entries.resize(1);
  check(comparison);
  const std::string html = page(comparison);
  EXPECT_EQ(html.find("The stages agree"), std::string::npos);
  EXPECT_NE(html.find("Nothing to compare with"), std::string::npos);
}

}  // namespace
}  // namespace stagegpt::compare::test
