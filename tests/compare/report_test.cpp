// From measurements to reports: medians, ratios, JSON, CSV, tables and the page.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "common/base/error.h"
#include "common/base/json.h"
#include "tests/compare/made_comparison.h"
#include "tests/support/program.h"
#include "tools/compare/plot.h"
#include "tools/compare/provenance.h"
#include "tools/compare/report_parts.h"
#include "tools/compare/table.h"
#include "tools/page/document.h"

namespace stagegpt::compare::test {
namespace {

TEST(Statistics, MedianAndSpread) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(spread({5, 1, 3}), (Spread{3, 1, 5}));
  EXPECT_THROW(median({}), InternalError);
}

TEST(Statistics, TimingLeavesOutTheWarmUp) {
  Trial slow_start = trial(5, 0.5);
  slow_start.steps[0].seconds = 100;
  slow_start.steps[0].ms = {1e5, 0, 0, 0, 0};
  const Timing timed = timing(slow_start, 1);
  EXPECT_DOUBLE_EQ(timed.step_ms, 500);
  EXPECT_DOUBLE_EQ(timed.tokens_per_second, 512);
  EXPECT_DOUBLE_EQ(timed.communication_share, 0.25);
  EXPECT_DOUBLE_EQ(timed.ms[2], 250);
  EXPECT_DOUBLE_EQ(timing(slow_start, 4).step_ms, 500);
  EXPECT_TRUE(std::isnan(timing(slow_start, 5).step_ms));  // no step is left
}

TEST(Statistics, OneDisturbedStepChangesNoPhase) {
  Trial disturbed = trial(5, 0.5);
  const Timing quiet = timing(disturbed, 0);
  disturbed.steps[3].ms = {1e5, 1e5, 1e5, 1e6, 1e5};
  EXPECT_EQ(timing(disturbed, 0).ms, quiet.ms);
  EXPECT_EQ(timing(disturbed, 0).communication_share, quiet.communication_share);
}

TEST(Metrics, AreReadLineByLine) {
  const std::string line =
      R"({"step":1,"tokens":256,"loss":2.5,"grad_norm":null,"seconds":0.5,)"
      R"("ms":{"data":1,"forward":2,"backward":3,"communication":4,"optimizer":5},"peak_memory_bytes":7})";
  const Trial one = parse_metrics(line + "\n");
  ASSERT_EQ(one.steps.size(), 1u);
  EXPECT_EQ(one.steps[0].loss, 2.5);
  EXPECT_TRUE(std::isnan(one.steps[0].grad_norm));
  EXPECT_EQ(one.steps[0].ms, (PhaseMs{1, 2, 3, 4, 5}));
  EXPECT_EQ(one.tokens_per_step, 256);
  EXPECT_EQ(one.peak_memory_bytes, 7);
  for (const std::string& broken : {std::string(), std::string("{}"), line + "\n" + line, line.substr(9)}) {
    EXPECT_THROW(parse_metrics(broken), std::runtime_error) << broken;
  }
}

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

TEST(Speeds, LeaveOutWhoIsNotTimed) {
  Comparison comparison = made_comparison();
  comparison.entries[1].contestant.timed = false;
  comparison.entries[2].trials.clear();
  EXPECT_EQ(speeds(comparison).size(), 1u);
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
  EXPECT_NE(results_csv(comparison).find("stage0-batch-8,0,CPU,1,1,1,2,8,false,1,5,,,"), std::string::npos)
      << results_csv(comparison);
}

TEST(ResultsJson, HasTheFieldsOfItsDocument) {
  Comparison comparison = made_comparison();
  comparison.entries[1].trials[0].steps[2].loss = std::numeric_limits<double>::quiet_NaN();
  comparison.entries[2].trials[0].steps[1].loss += 1;
  comparison.left_out = {{"Stage 3", "not there"}};
  check(comparison);
  const Json json = Json::parse(results_json(comparison).dump());
  EXPECT_EQ(json["format"], "stagegpt comparison");
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["passed"], false);
  EXPECT_EQ(json["experiment"]["limits"]["loss"], 1e-5);
  EXPECT_EQ(json["experiment"]["limits"]["grad_norm"], 1e-4);
  ASSERT_EQ(json["contestants"].size(), 3u);
  const Json& second = json["contestants"][1];
  EXPECT_EQ(second["name"], "stage1-1-rank-batch-8");
  EXPECT_EQ(second["hardware"], "CPU");
  EXPECT_EQ(second["trials"].size(), 2u);
  EXPECT_TRUE(second["trials"][0]["loss"][2].is_null());
  EXPECT_EQ(second["trials"][1]["loss"].size(), 5u);
  EXPECT_EQ(json["left_out"][0]["why"], "not there");
  EXPECT_EQ(json["speed"][2]["communication_share"], 0.25);
  bool found = false;
  for (const Json& one : json["agreement"]) {
    if (one["name"] != "stage1-2-ranks-batch-8" || one["kind"] != "within limits") continue;
    found = true;
    EXPECT_EQ(one["disagreement"]["step"], 2);
    EXPECT_EQ(one["disagreement"]["quantity"], "loss");
  }
  EXPECT_TRUE(found);
}

TEST(ResultsCsv, HasALineForEachTrial) {
  const std::string csv = results_csv(made_comparison());
  std::istringstream lines(csv);
  std::size_t count = 0, fields = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const auto here = static_cast<std::size_t>(std::ranges::count(line, ','));
    if (count == 0) fields = here;
    EXPECT_EQ(here, fields) << line;
    EXPECT_TRUE(line.ends_with('\r'));
  }
  EXPECT_EQ(count, 1 + 6u);
  EXPECT_NE(csv.find("stage1-2-ranks-batch-8,1,CPU,2,1,1,1,8,false,2,5,2560.0,100.0,"), std::string::npos)
      << csv;
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
       {"prefers-color-scheme: dark", "name=\"viewport\"", "lang=\"en\"", "The stages agree"}) {
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

TEST(Page, HasARowForEachFactOfTheMachine) {
  Comparison comparison = made_comparison();
  comparison.provenance = {{"date", "today"},
                           {"machine", {{"cpu_model", "A processor"}, {"memory_bytes", 3 << 19}}}};
  const std::string html = page(comparison);
  for (const char* row : {"<th scope=\"row\">date</th><td class=\"text\">today</td>",
                          "<th scope=\"row\">machine, cpu model</th><td class=\"text\">A processor</td>",
                          "<th scope=\"row\">machine, memory bytes</th><td class=\"text\">1.50 MiB</td>"}) {
    EXPECT_NE(html.find(row), std::string::npos) << row;
  }
}

TEST(Page, TellsOfADisagreementFirst) {
  Comparison comparison = made_comparison();
  comparison.entries[2].trials[0].steps[1].loss += 1;
  check(comparison);
  comparison.divergences[2].text = "the tensor h.0";
  const std::string html = page(comparison);
  EXPECT_EQ(html.find("The stages agree"), std::string::npos);
  const std::size_t verdict_at = html.find("The stages disagree");
  ASSERT_NE(verdict_at, std::string::npos);
  EXPECT_LT(verdict_at, html.find("<h2>"));
  EXPECT_LT(html.find("the tensor h.0"), html.find("<h2>"));
}

TEST(Page, TellsWhenThereWasNothingToCompareWith) {
  Comparison comparison = made_comparison();
  comparison.entries.resize(1);
  check(comparison);
  const std::string html = page(comparison);
  EXPECT_EQ(html.find("The stages agree"), std::string::npos);
  EXPECT_NE(html.find("Nothing to compare with"), std::string::npos);
}

TEST(Speeds, OfScalingAreNamedByWhatTheyRanOn) {
  Comparison comparison = made_comparison();
  comparison.experiment.mode = Mode::strong;
  comparison.entries = {entry(contestant(3, 1), 1, 0.4), entry(contestant(3, 2), 1, 0.25)};
  ASSERT_EQ(scaling_plot(comparison).series.size(), 1u);
  EXPECT_EQ(scaling_plot(comparison).series[0].name, "Stage 3, emulated");
}

TEST(Page, EveryPlotHasATitleAndADescription) {
  Comparison comparison = made_comparison();
  comparison.experiment.mode = Mode::strong;
  check(comparison);
  const std::string html = page(comparison);
  const auto count = [&](const std::string& part) {
    std::size_t n = 0;
    for (std::size_t at = html.find(part); at != html.npos; at = html.find(part, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(count("<figure "), 7u);
  EXPECT_EQ(count("role=\"img\""), 7u);
  EXPECT_EQ(count("<title id="), 7u);
  EXPECT_EQ(count("<desc id="), 7u);
}

TEST(Page, IsThereBeforeAnythingHasRun) {
  Comparison comparison = made_comparison();
  for (Entry& one : comparison.entries) one.trials.clear();
  check(comparison);
  EXPECT_NE(page(comparison).find("</html>"), std::string::npos);
  EXPECT_EQ(results_json(comparison)["speed"].size(), 0u);
}

TEST(TerminalReport, HasColumns) {
  Comparison comparison = made_comparison();
  check(comparison);
  const std::string text = terminal_report(comparison);
  for (const char* part : {"All 3 contestants agree", "2 × 1", "2,560", "200.0 %", "25.0 %", "1.00 MiB"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << '\n' << text;
  }
}

TEST(TerminalReport, TellsOfThreadsThatShareCores) {
  Comparison comparison = made_comparison();
  EXPECT_EQ(speed_note(comparison).find("share"), std::string::npos);
  comparison.entries[2].contestant.ranks = 4;
  EXPECT_NE(speed_note(comparison).find("4 threads share 2 cores"), std::string::npos)
      << speed_note(comparison);
}

TEST(Axis, HasRoundTicks) {
  const Axis axis = Axis::linear(0.2, 9.7, 5, 0, 100);
  ASSERT_EQ(axis.ticks().size(), 6u);
  EXPECT_EQ(axis.ticks()[1].second, "2");
  EXPECT_DOUBLE_EQ(axis.place(5), 50);
  EXPECT_DOUBLE_EQ(axis.place(11), 100);  // beyond the end
  EXPECT_EQ(Axis::linear(3, 3, 5, 0, 100).ticks().empty(), false);
}

TEST(Axis, OfLogarithmsHasAPlaceForZero) {
  const Axis axis = Axis::logarithmic(1e-9, 1e-4, 240, 0);
  EXPECT_EQ(axis.ticks().front().second, "0");
  EXPECT_EQ(axis.ticks()[1].second, "1e-9");
  EXPECT_DOUBLE_EQ(axis.place(0), 240);
  EXPECT_DOUBLE_EQ(axis.place(1e-9), 200);
  EXPECT_DOUBLE_EQ(axis.place(1), 0);
  EXPECT_DOUBLE_EQ(axis.place(std::nan("")), 0);
}

TEST(Numbers, AreWrittenForPeople) {
  EXPECT_EQ(grouped(1234567.4), "1,234,567");
  EXPECT_EQ(grouped(-1234.5, 1), "-1,234.5");
  EXPECT_EQ(three_digits(0.1234), "0.123");
  EXPECT_EQ(three_digits(12.34), "12.3");
  EXPECT_EQ(three_digits(12345), "12,345");
  EXPECT_EQ(scientific(1e-5), "1e-5");
  EXPECT_EQ(scientific(1.26e-7), "1.3e-7");
  EXPECT_EQ(exactly(0.1), "0.1");
  EXPECT_EQ(percent(0.5), "50.0 %");
}

}  // namespace
}  // namespace stagegpt::compare::test
