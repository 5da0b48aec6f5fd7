// Exact numbers, axes, tables, plots, and sentences of reports that the golden texts do not contain.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "common/base/error.h"
#include "tests/compare/made_comparison.h"
#include "tools/compare/plot.h"
#include "tools/compare/report_parts.h"
#include "tools/compare/table.h"

namespace stagegpt::compare::test {
namespace {

TEST(Numbers, HaveAsManyDigitsAsTheirSizeAsksFor) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(-999), "-999");
  EXPECT_EQ(grouped(-123456.75, 2), "-123,456.75");
  EXPECT_EQ(grouped(1234567890), "1,234,567,890");
  EXPECT_EQ(grouped(1'000'000'000'000'000), "1,000,000,000,000,000");
  EXPECT_EQ(grouped(1e18), "1,000,000,000,000,000,000");
  EXPECT_EQ(grouped(-std::numeric_limits<double>::infinity()), "-inf");
  EXPECT_EQ(three_digits(0.9994), "0.999");
  EXPECT_EQ(three_digits(1), "1.00");
  EXPECT_EQ(three_digits(-9.5), "-9.50");
  EXPECT_EQ(three_digits(10), "10.0");
  EXPECT_EQ(three_digits(99.5), "99.5");
  EXPECT_EQ(three_digits(100), "100");
  EXPECT_EQ(three_digits(12345), "12,345");
  EXPECT_EQ(exactly(1e-300), "1e-300");
  EXPECT_EQ(exactly(-0.1 - 0.2), "-0.30000000000000004");
  EXPECT_EQ(percent(0.12345), "12.3 %");
  EXPECT_EQ(mebibytes(3 << 19), "1.50 MiB");
}

TEST(Numbers, AreScientificWithTwoDigits) {
  EXPECT_EQ(scientific(0), "0");
  EXPECT_EQ(scientific(std::nan("")), "not a number");
  EXPECT_EQ(scientific(std::numeric_limits<double>::infinity()), "infinite");
  EXPECT_EQ(scientific(1), "1e0");
  EXPECT_EQ(scientific(1000), "1e3");
  EXPECT_EQ(scientific(-0.0123), "-1.2e-2");
  EXPECT_EQ(scientific(1.26e-7), "1.3e-7");
  EXPECT_EQ(scientific(9.94), "9.9e0");
  EXPECT_EQ(scientific(9.96e-5), "1e-4");
}

// All ticks of an axis, as "value@place value@place".
std::string ticks(const Axis& axis) {
  std::string text;
  for (const auto& [value, name] : axis.ticks()) text += concat(name, "@", axis.place(value), " ");
  return text;
}

TEST(Axis, HasRoundNumbersAtTheirPlaces) {
  EXPECT_EQ(ticks(Axis::linear(0, 5, 5, 0, 100)), "0@0 1@20 2@40 3@60 4@80 5@100 ");
  EXPECT_EQ(ticks(Axis::linear(0, 6, 5, 0, 90)), "0@0 2@30 4@60 6@90 ");
  EXPECT_EQ(ticks(Axis::linear(1, 20, 5, 0, 100)), "0@0 5@25 10@50 15@75 20@100 ");
  EXPECT_EQ(ticks(Axis::linear(0, 30, 5, 100, 0)), "0@100 10@66.6667 20@33.3333 30@0 ");
  EXPECT_EQ(ticks(Axis::linear(-0.25, 0.25, 5, 0, 60)),
            "-0.3@0 -0.2@10 -0.1@20 0.0@30 0.1@40 0.2@50 0.3@60 ");
  EXPECT_EQ(ticks(Axis::linear(1.01, 1.03, 5, 0, 40)), "1.010@0 1.015@10 1.020@20 1.025@30 1.030@40 ");
  // Quotients near an integer: in floating point, 0.6 / 0.1 is less than 6 and 0.07 / 0.01 is more than 7.
  EXPECT_EQ(ticks(Axis::linear(0.6, 1.1, 5, 0, 50)), "0.6@0 0.7@10 0.8@20 0.9@30 1.0@40 1.1@50 ");
  EXPECT_EQ(ticks(Axis::linear(0.02, 0.07, 5, 0, 50)), "0.02@0 0.03@10 0.04@20 0.05@30 0.06@40 0.07@50 ");
  EXPECT_EQ(ticks(Axis::linear(0, 5000, 5, 0, 100)), "0@0 1,000@20 2,000@40 3,000@60 4,000@80 5,000@100 ");
  EXPECT_EQ(ticks(Axis::logarithmic(1e-3, 1, 0, 80)), "0@0 1e-3@20 1e-2@40 1e-1@60 1e0@80 ");
  EXPECT_EQ(ticks(Axis::logarithmic(2e-3, 0.5, 0, 80)), "0@0 1e-3@20 1e-2@40 1e-1@60 1e0@80 ");
  EXPECT_EQ(ticks(Axis::logarithmic(1, 1, 0, 80)), "0@0 1e0@40 1e1@80 ");
}

// The axis of a single number ends a thousandth above it; the axis of 0 ends at 1e-9.
TEST(Axis, OfOneNumberIsThere) {
  EXPECT_EQ(ticks(Axis::linear(1000, 1000, 5, 0, 100)),
            "1,000.0@0 1,000.2@20 1,000.4@40 1,000.6@60 1,000.8@80 1,001.0@100 ");
  const Axis zero = Axis::linear(0, 0, 5, 0, 100);
  EXPECT_EQ(zero.ticks().size(), 6u);
  EXPECT_DOUBLE_EQ(zero.ticks().back().first, 1e-9);
}

TEST(Axis, PlacesWhatIsBeyondItsEndsThere) {
  const Axis axis = Axis::linear(10, 20, 5, 40, 240);
  EXPECT_EQ(axis.place(9), 40);
  EXPECT_EQ(axis.place(12), 80);
  EXPECT_EQ(axis.place(21), 240);
  EXPECT_EQ(axis.place(std::nan("")), 240);
  EXPECT_EQ(Axis::logarithmic(1e-3, 1, 0, 80).place(-5), 0);
  EXPECT_EQ(Axis::logarithmic(1e-3, 1, 0, 80).place(1e-9), 0);
  EXPECT_EQ(Axis::logarithmic(1e-3, 1, 0, 80).place(std::nan("")), 80);
}

TEST(TerminalTable, IsAlignedByCharacters) {
  const Table table{{{"who"}, {"n", true}, {"×"}}, {{{"a"}, {"1,000"}, {"–"}}, {{"Größe"}, {"7"}, {""}}}};
  EXPECT_EQ(terminal_table(table), "who        n  ×\na      1,000  –\nGröße      7\n");
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

// The reference of the speed-up is the first contestant that was timed and has results.
TEST(SpeedNote, NamesWhatSpeedUpIsRelativeTo) {
  Comparison comparison = made_comparison();
  EXPECT_NE(speed_note(comparison).find("Speed-up is relative to Stage 0 on "), std::string::npos);
  comparison.entries[0].contestant.timed = false;
  EXPECT_NE(speed_note(comparison).find("Speed-up is relative to Stage 1, 1 rank on "), std::string::npos);
  comparison.entries[1].trials.clear();
  EXPECT_NE(speed_note(comparison).find("Speed-up is relative to Stage 1, 2 ranks on "), std::string::npos);
}

// Plots of zeros and empty plots must not divide by zero.
TEST(Plots, OfNothingHaveNoLength) {
  const BarPlot bars{.title = "t", .description = "d", .bars = {{.name = "a", .look = {}, .text = "0"}}};
  const PartsPlot parts{.title = "t", .description = "d", .part_names = {"p"}, .bars = {{"a", "0 ms", {0}}}};
  const LinePlot lines{
      .title = "t", .description = "d", .x_label = "x", .y_label = "y", .series = {{"s", {}, {}}}};
  for (const std::string& svg : {figure(bars, "i"), figure(parts, "i")}) {
    EXPECT_EQ(count(svg, "width=\"0.0\""), 1u) << svg;
    EXPECT_EQ(count(svg, "viewBox=\"0 0 460 42\""), 1u) << svg;
  }
  const std::string svg = figure(lines, "i");
  EXPECT_EQ(count(svg, "points=\"\""), 1u) << svg;
  EXPECT_EQ(count(svg, ">0.2</text>"), 2u) << svg;  // both axes range from 0 to 1
  EXPECT_EQ(count(svg, "nan"), 0u) << svg;
}

// The patterns of dashes repeat. Values that are not finite are drawn at an end of the axis.
TEST(Plots, AreInsideTheirFrame) {
  const double inf = std::numeric_limits<double>::infinity();
  LinePlot plot{.title = "t",
                .description = "d",
                .x_label = "x",
                .y_label = "y",
                .series = {{"s", {.stage = 2, .dashes = 8}, {{1, 10}, {2, inf}, {3, -inf}, {4, 30}}}}};
  EXPECT_EQ(count(figure(plot, "i"),
                  "<polyline class=\"line stage2\" stroke-dasharray=\"2 3\" "
                  "points=\"60.0,236.0 188.7,12.0 317.3,236.0 446.0,12.0 \"/>"),
            1u)
      << figure(plot, "i");
  plot.from_zero = plot.dots = plot.ideal = true;
  const std::string svg = figure(plot, "i");
  EXPECT_EQ(count(svg, "points=\"156.5,161.3 253.0,12.0 349.5,236.0 446.0,12.0 \""), 1u) << svg;
  EXPECT_EQ(count(svg, "<circle cx=\"156.5\" cy=\"161.3\" r=\"4\" class=\"stage2\"/>"), 1u) << svg;
  EXPECT_EQ(count(svg, "<line x1=\"60.0\" y1=\"236.0\" x2=\"446.0\" y2=\"206.1\" class=\"ideal\"/>"), 1u)
      << svg;
  plot.series[0].points = {{2, 1}, {4, 2}};  // the ideal line is above the points
  EXPECT_EQ(count(figure(plot, "i"), "y2=\"12.0\" class=\"ideal\"/>"), 1u) << figure(plot, "i");
  EXPECT_EQ(count(figure(plot, "i"), "<circle cx=\"446.0\" cy=\"124.0\""), 1u) << "the last: half as high";
}

TEST(Plots, OfLogarithmsHoldTheirLimitAndTheirLeastValue) {
  const LinePlot plot{.title = "t",
                      .description = "d",
                      .x_label = "x",
                      .y_label = "y",
                      .series = {{"s", {}, {{1, 1e-11}, {2, 1e-3}, {3, 0}}}},
                      .logarithmic = true};
  // The axis has nine decades, from 1e-11 to 1e-2, and one more step for 0: ten steps of 22.4.
  EXPECT_EQ(count(figure(plot, "i"), "points=\"60.0,213.6 253.0,34.4 446.0,236.0 \""), 1u)
      << figure(plot, "i");
}

Comparison failed_comparison() {
  Comparison comparison = made_comparison();
  comparison.entries[2].trials.clear();
  comparison.entries[2].failure = "exit code 1";
  check(comparison);
  return comparison;
}

TEST(Page, HasAHeadingForEachOutcome) {
  EXPECT_NE(page(failed_comparison()).find("<strong>✗ Not every contestant ran</strong>"), std::string::npos);
  EXPECT_NE(page(failed_comparison()).find("<dt>Stages compared</dt><dd>2<small>3 contestants</small>"),
            std::string::npos);
  EXPECT_NE(
      page(failed_comparison()).find("Stage 1, 2 ranks failed. The other 2 contestants agree, at every"),
      std::string::npos);
  Comparison comparison = made_comparison();
  comparison.entries.resize(1);
  comparison.interrupted = true;
  check(comparison);
  EXPECT_NE(page(comparison).find("Interrupted: not everything has run. There was nothing to compare with."),
            std::string::npos);
}

// The fastest is named if its slowest run is faster than every run of the others.
TEST(Page, NamesTheFastestWhereRunsTell) {
  Comparison comparison = made_comparison();
  EXPECT_NE(page(comparison).find("<dt>Fastest</dt><dd>2,560 tokens/s<small>Stage 1, 2 ranks</small>"),
            std::string::npos);
  for (auto& step : comparison.entries[2].trials[1].steps) step.seconds *= 3;
  EXPECT_NE(page(comparison)
                .find("<dt>Fastest</dt><dd>undecided<small>the runs of Stage 1, 2 ranks and Stage 1, "
                      "1 rank overlap</small>"),
            std::string::npos);
  for (Entry& one : comparison.entries) one.trials.resize(1);
  EXPECT_EQ(page(comparison).find("Fastest"), std::string::npos);
}

// Without results, the page has no tables, no plots and no fastest contestant.
TEST(Page, WithoutRunsHasNoTables) {
  Comparison comparison = made_comparison();
  for (Entry& one : comparison.entries) {
    one.trials.clear();
    one.machine.clear();
    one.command.clear();
  }
  check(comparison);
  const std::string html = page(comparison);
  EXPECT_EQ(count(html, "<h2>"), 3u);  // experiment, machine, how to read
  EXPECT_EQ(count(html, "Fastest"), 0u);
  EXPECT_EQ(count(html, "<pre>"), 1u);
  EXPECT_EQ(count(html, "<th scope=\"row\">Stage"), 0u);
  EXPECT_NE(html.find("<dd>0<small>3 contestants</small>"), std::string::npos);
  EXPECT_EQ(terminal_report(comparison), "There was nothing to compare with.\n");
}

TEST(TerminalReport, HasLinesOfAHundredCharacters) {
  Comparison comparison = made_comparison();
  comparison.entries.resize(1);
  comparison.entries[0].trials.clear();
  const std::string half(50, 'x'), less(49, 'y'), more(120, 'z');
  comparison.divergences = {{.text = less + ' ' + half + ' ' + half + ' ' + half + ' ' + more + " end"}};
  EXPECT_EQ(terminal_report(comparison), "There was nothing to compare with.\n" + less + ' ' + half + '\n' +
                                             half + '\n' + half + '\n' + more + "\nend\n");
}

TEST(Notes, CountInEnglish) {
  Comparison comparison = made_comparison();
  comparison.entries.resize(1);
  comparison.entries[0].trials.resize(1);
  comparison.entries[0].trials[0].load =
      MachineLoad{.others_share = 0.5, .cores = 1, .threads = 1, .seconds = 1};
  EXPECT_TRUE(
      busy_note(comparison)
          .starts_with("The machine was busy in 1 of 1 run: other programs used up to 50.0 % of 1 core."))
      << busy_note(comparison);
  comparison.experiment.repeats = 1;
  comparison.experiment.cores = 1;
  EXPECT_EQ(
      speed_note(comparison),
      "Each contestant ran once; values are medians, the spread is minimum and maximum. 1 step of each run "
      "is warm-up. Speed-up is relative to Stage 0 on 1 × 2. On the CPU, every contestant has one core, "
      "divided among its ranks. Efficiency is tokens/s per core or GPU, relative to the same stage on its "
      "smallest number of ranks. Up to 2 threads share 1 core, which limits the speed of these "
      "contestants.");
}

// The first timed entry is the reference of the speed-up. The memory of an entry is the maximum over its
// trials.
TEST(Speeds, AreOfTimedEntriesInTheirOrder) {
  Comparison comparison = made_comparison();
  comparison.entries[0].contestant.timed = false;
  comparison.entries[2].trials[0].peak_memory_bytes = 5;
  comparison.entries[2].trials[1].peak_memory_bytes = 7;
  const std::vector<Speed> all = speeds(comparison);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].entry, 1u);
  EXPECT_EQ(all[1].entry, 2u);
  EXPECT_EQ(all[1].peak_memory_bytes, 7);
  EXPECT_DOUBLE_EQ(*all[1].speed_up, 2);  // relative to the first timed entry
  EXPECT_DOUBLE_EQ(all[1].step_ms.median, 100);
  EXPECT_EQ(all[1].ms, (PhaseMs{0, 25, 50, 25, 0}));
}

// The reference of the efficiency is the entry with the fewest ranks. It need not be the first entry, and
// need not have one rank.
TEST(Speeds, HaveTheEfficiencyBesideTheFewestRanksOfTheSameStage) {
  Comparison comparison = made_comparison();
  comparison.experiment.cores = 8;
  comparison.entries = {entry(contestant(1, 8), 1, 0.1), entry(contestant(1, 2), 1, 0.2),
                        entry(contestant(3, 1), 1, 0.9), entry(contestant(1, 4), 1, 0.125)};
  const std::vector<Speed> all = speeds(comparison);
  EXPECT_DOUBLE_EQ(*all[0].efficiency, 0.5);  // twice as fast on four times the cores
  EXPECT_DOUBLE_EQ(*all[1].efficiency, 1);
  EXPECT_DOUBLE_EQ(*all[2].efficiency, 1);
  EXPECT_DOUBLE_EQ(*all[3].efficiency, 0.8);
}

}  // namespace
}  // namespace stagegpt::compare::test
