// Timelines of a step, read from profiles that are written by hand, and the section of the page that shows
// them.
#include <gtest/gtest.h>

#include "common/base/error.h"
#include "common/base/json.h"
#include "tests/compare/fake_stages.h"
#include "tests/compare/made_comparison.h"
#include "tools/compare/report_parts.h"
#include "tools/compare/table.h"

namespace stagegpt::compare::test {
namespace {

using Words = std::vector<std::string>;

// An event of a profile, in microseconds as the file has them.
std::string span(const char* name, const char* category, int rank, int row, double begin, double length,
                 std::int64_t step = 0) {
  return Json({{"name", name},
               {"cat", category},
               {"ph", "X"},
               {"ts", begin},
               {"dur", length},
               {"pid", rank},
               {"tid", row},
               {"args", step > 0 ? Json{{"number", step}} : Json::object()}})
      .dump();
}

std::vector<std::string> message_events(const char* name, const char* id, int rank, double begin,
                                        double end) {
  const Json common = {
      {"name", name}, {"cat", "communication"}, {"id2", {{"local", id}}}, {"pid", rank}, {"tid", 1}};
  Json first = common, last = common;
  first.update({{"ph", "b"}, {"ts", begin}});
  last.update({{"ph", "e"}, {"ts", end}});
  return {first.dump(), last.dump()};
}

std::string row_name(int rank, int row, const char* name) {
  return Json({{"name", "thread_name"}, {"ph", "M"}, {"pid", rank}, {"tid", row}, {"args", {{"name", name}}}})
      .dump();
}

// Steps 4 to 6 of two ranks, which take 3000, 1000 and 2000 µs. Step 6 is from 5000 to 7000 on rank 0, and
// from 5100 to 6900 on rank 1.
std::string two_ranks() {
  std::vector<std::string> events = {
      row_name(0, 1, "host"),
      row_name(0, 10, "data thread"),
      row_name(0, 30, "device"),
      span("step", "step", 0, 1, 0, 3000, 4),
      span("step", "step", 1, 1, 0, 2900, 4),
      span("step", "step", 0, 1, 3500, 1000, 5),
      span("step", "step", 1, 1, 3500, 1000, 5),
      span("step", "step", 0, 1, 5000, 2000, 6),
      span("data", "phase", 0, 1, 5000, 100),
      span("forward", "phase", 0, 1, 5100, 400),
      span("matmul", "op", 0, 1, 5100, 300),
      span("backward", "phase", 0, 1, 5500, 1000),
      span("all_reduce", "communication", 0, 1, 5700, 10),
      span("progress: all_reduce", "communication", 0, 1, 5800, 20),
      span("communication", "phase", 0, 1, 6500, 300),
      span("wait: all", "communication", 0, 1, 6500, 250),
      span("add", "op", 0, 1, 6550, 50),  // of the ring, inside the wait
      span("optimizer", "phase", 0, 1, 6800, 150),
      span("adamw", "op", 0, 1, 6810, 40),
      span("barrier", "communication", 0, 1, 6850, 30),
      span("all_gather (host)", "communication", 0, 1, 6900, 20),
      span("fetch", "data", 0, 10, 4900, 300),  // begins in the pause before the step
      span("fetch", "data", 0, 10, 4600, 200),  // and this one ends there
      span("matmul", "device", 0, 30, 6000, 2000),
      span("step", "step", 1, 1, 5100, 1800, 6),
      span("forward", "phase", 1, 1, 5100, 600),
      span("forward", "phase", 1, 1, 5900, 100),  // of another micro-step
      span("backward", "phase", 1, 1, 6000, 600)};
  for (const auto& [id, begin, end] :
       {std::tuple("m1", 5700.0, 6200.0), std::tuple("m2", 6100.0, 6400.0), std::tuple("m3", 6450.0, 6700.0),
        std::tuple("of step 4", 100.0, 200.0)}) {
    for (const std::string& event : message_events("all_reduce", id, 0, begin, end)) events.push_back(event);
  }
  std::string text = R"({"displayTimeUnit":"ms","otherData":{"clock_error_ns":[0,1500]},"traceEvents":[)";
  for (const std::string& event : events) text += event + ",\n";
  text.replace(text.size() - 2, 2, "]}");
  return text;
}

std::string text_of(const std::vector<StepSpan>& spans) {
  std::string text;
  for (const StepSpan& one : spans)
    text += concat(one.name, ' ', grouped(one.begin, 3), ' ', grouped(one.ms, 3), "; ");
  return text;
}

class StepTimelines : public testing::Test {
 protected:
  StepTimeline read(const std::string& text) const {
    return read_step_timeline(directory_.write("profile.json", text));
  }
  std::string refusal(const std::string& text) const {
    return message<UserError>([&] { read(text); });
  }

  stagegpt::test::ScratchDirectory directory_;
};

TEST_F(StepTimelines, HaveTheStepOfMedianLength) {
  const StepTimeline timeline = read(two_ranks());
  EXPECT_EQ(timeline.step, 6);
  EXPECT_EQ(timeline.recorded, 3);
  EXPECT_DOUBLE_EQ(timeline.ms, 2);
  EXPECT_DOUBLE_EQ(timeline.clock_error_ms, 0.0015);
  ASSERT_EQ(timeline.ranks.size(), 2u);
}

TEST_F(StepTimelines, HavePhasesOnOneClock) {
  const StepTimeline timeline = read(two_ranks());
  EXPECT_EQ(text_of(timeline.ranks[0].phases),
            "data 0.000 0.100; forward 0.100 0.400; backward 0.500 1.000; communication 1.500 0.300; "
            "optimizer 1.800 0.150; ");
  EXPECT_EQ(text_of(timeline.ranks[1].phases),
            "forward 0.100 0.600; forward 0.900 0.100; backward 1.000 0.600; ");
  const PhaseMs ms = timeline.ranks[1].phase_ms();
  EXPECT_NEAR(ms[1], 0.7, 1e-9);
  EXPECT_NEAR(ms[2], 0.6, 1e-9);
  EXPECT_EQ(ms[3], 0);
}

// The addition is inside the wait; the barrier begins where the update ends.
TEST_F(StepTimelines, HaveTheOuterSpansOfTheHost) {
  const RankTimeline rank = read(two_ranks()).ranks[0];
  EXPECT_EQ(text_of(rank.host),
            "matmul 0.100 0.300; all_reduce 0.700 0.010; progress: all_reduce 0.800 0.020; wait: all 1.500 "
            "0.250; adamw 1.810 0.040; barrier 1.850 0.030; all_gather (host) 1.900 0.020; ");
  using Kind = StepSpan::Kind;
  std::vector<Kind> kinds;
  for (const StepSpan& one : rank.host) kinds.push_back(one.kind);
  EXPECT_EQ(kinds, (std::vector{Kind::op, Kind::message, Kind::message, Kind::wait, Kind::op, Kind::wait,
                                Kind::wait}));
  EXPECT_NEAR(rank.waiting_ms(), 0.25 + 0.03 + 0.02, 1e-9);
}

// Messages are under way from 700 to 1400 and from 1450 to 1700; backward is from 500 to 1500.
TEST_F(StepTimelines, HaveTheTimesOfMessagesAndTheirOverlap) {
  const RankTimeline rank = read(two_ranks()).ranks[0];
  EXPECT_EQ(text_of(rank.messages), "all_reduce 0.700 0.700; all_reduce 1.450 0.250; ");
  EXPECT_NEAR(rank.message_ms(), 0.95, 1e-9);
  EXPECT_NEAR(rank.overlap_ms(), 0.7 + 0.05, 1e-9);
}

// Work of other threads is cut at the ends of the step.
TEST_F(StepTimelines, HaveTheRowsOfOtherThreads) {
  const StepTimeline timeline = read(two_ranks());
  ASSERT_EQ(timeline.ranks[0].rows.size(), 2u);
  EXPECT_EQ(timeline.ranks[0].rows[0].name, "data thread");
  EXPECT_EQ(text_of(timeline.ranks[0].rows[0].spans), "fetch 0.000 0.200; ");
  EXPECT_EQ(timeline.ranks[0].rows[1].name, "device");
  EXPECT_EQ(text_of(timeline.ranks[0].rows[1].spans), "matmul 1.000 1.000; ");
  EXPECT_TRUE(timeline.ranks[1].rows.empty());
}

TEST_F(StepTimelines, OfOtherFilesAreRefused) {
  EXPECT_NE(refusal("{").find("profile.json"), std::string::npos);
  EXPECT_NE(refusal(R"({"traceEvents": []})").find("otherData"), std::string::npos);
  EXPECT_TRUE(refusal(R"({"otherData": {}, "traceEvents": []})").ends_with(": no steps"));
  const auto with = [&](const std::string& event) {
    return refusal(concat(R"({"otherData": {}, "traceEvents": [)", event, "]}"));
  };
  EXPECT_TRUE(with(span("step", "step", 1, 1, 0, 5, 3)).ends_with(": step 3 is missing on a rank"));
  EXPECT_TRUE(with(span("step", "step", 0, 1, 0, 0, 3)).ends_with(": step 3 takes no time"));
  EXPECT_TRUE(with(span("step", "step", 0, 1, 0, -5000, 3)).ends_with(": a duration of -5 ms"));
  EXPECT_TRUE(with(span("step", "step", 0, 1, 0, 5, std::int64_t{1} << 40))
                  .ends_with(": expected a smaller number than 1099511627776"));
  EXPECT_NE(with(span("step", "step", -1, 1, 0, 5, 3)).find("pid"), std::string::npos);
  EXPECT_NE(with(span("step", "step", 70000, 1, 0, 5, 3)).find("expected ranks below 65536"),
            std::string::npos);
  EXPECT_TRUE(
      with(message_events("m", "of nobody", 0, 1, 2)[1]).ends_with(": 'of nobody' ends without a begin"));
}

// A comparison with a timeline of stage 1 on two ranks, and of stage 2 on the emulator.
Comparison recorded_comparison(const StepTimeline& timeline) {
  Comparison comparison = made_comparison();
  comparison.entries = {entry(contestant(1, 2), 1, 0.2), entry(contestant(2), 1, 8)};
  comparison.entries[0].recording = {.profile = "profiles/stage1.json", .timeline = timeline, .failure = {}};
  StepTimeline slow{.step = 5, .recorded = 3, .ms = 50, .ranks = {{}}};
  slow.ranks[0].phases = {{"forward", StepSpan::Kind::phase, 0, 20},
                          {"backward", StepSpan::Kind::phase, 20, 30}};
  comparison.entries[1].recording = {.profile = "profiles/stage2.json", .timeline = slow, .failure = {}};
  check(comparison);
  return comparison;
}

TEST_F(StepTimelines, AreOnThePage) {
  const Comparison comparison = recorded_comparison(read(two_ranks()));
  const std::string html = page(comparison);
  for (const char* part :
       {"Stage 1, 2 ranks<small>2.00 ms · step 6 · <a href=\"profiles/stage1.json\" aria-label=\"profile of "
        "Stage 1, 2 ranks\">profile</a>",
        "50.0 ms · step 5 · on the emulator, 25.0 times as long as Stage 1, 2 ranks",
        "the one of median length of 3 steps after the warm-up",
        "in a run of their own, after the timed runs", "tell nothing about a GPU", "the same for all steps",
        "aria-label=\"A step of 2.00 ms. Rank 0: data",
        "waiting 0.300 ms, messages under way 0.950 ms, of these 0.750 ms during backward. Rank 1: forward",
        "<i class=\"phase backward\" style=\"left:25.00%;width:50.00%\" title=\"backward, 1.00 ms from 0.500 "
        "ms "
        "on\"><b>backward</b></i>",
        "<i class=\"wait\" style=\"left:75.00%;width:12.50%\"", "--share: 4.00%; --tick: 25.00%",
        "<i style=\"left:75.00%\">1.5</i>", ">device</span>"}) {
    EXPECT_NE(html.find(part), std::string::npos) << part << '\n' << timelines(comparison);
  }
}

TEST_F(StepTimelines, AreATableOfShares) {
  const Table table = timeline_table(recorded_comparison(read(two_ranks())));
  const auto row = [&](std::size_t index) {
    Words texts;
    for (const Cell& cell : table.rows.at(index)) texts.push_back(cell.text);
    return texts;
  };
  ASSERT_EQ(table.rows.size(), 3u);
  EXPECT_EQ(row(0), (Words{"Stage 1, 2 ranks, rank 0", "0.100 · 5.0 %", "0.400 · 20.0 %", "1.00 · 50.0 %",
                           "0.300 · 15.0 %", "0.150 · 7.5 %", "0.050 · 2.5 %", "0.300 · 15.0 %",
                           "0.950 · 47.5 %", "0.750 · 37.5 %"}));
  EXPECT_EQ(row(2), (Words{"Stage 2, emulated", "0.000 · 0.0 %", "20.0 · 40.0 %", "30.0 · 60.0 %",
                           "0.000 · 0.0 %", "0.000 · 0.0 %", "0.000 · 0.0 %", "–", "–", "–"}));
}

TEST_F(StepTimelines, AreInTheResults) {
  const Json json = Json::parse(results_json(recorded_comparison(read(two_ranks()))).dump());
  const Json& timeline = json.at("contestants").at(0).at("timeline");
  EXPECT_EQ(timeline["profile"], "profiles/stage1.json");
  EXPECT_EQ(timeline["step"], 6);
  EXPECT_EQ(timeline["steps_recorded"], 3);
  EXPECT_EQ(timeline["ms"], 2);
  const Json& rank = timeline.at("ranks").at(0);
  EXPECT_EQ(rank.at("phases").at(1), (Json{"forward", 0.1, 0.4}));
  EXPECT_EQ(rank.at("host").at(3), (Json{"wait: all", 1.5, 0.25}));
  EXPECT_EQ(rank.at("rows").at("device"), Json::array({{"matmul", 1.0, 1.0}}));
  EXPECT_NEAR(rank["waiting_ms"].get<double>(), 0.3, 1e-9);
  EXPECT_NEAR(rank["messages_during_backward_ms"].get<double>(), 0.75, 1e-9);
}

// Without its timeline, a contestant has a reason, and the other ones are shown.
TEST_F(StepTimelines, ThatAreMissingHaveAReason) {
  Comparison comparison = recorded_comparison(read(two_ranks()));
  comparison.entries[0].recording = {.profile = {}, .timeline = {}, .failure = "exit code 2: <it> cannot"};
  const std::string html = timelines(comparison);
  EXPECT_NE(html.find("No timeline of Stage 1, 2 ranks: exit code 2: &lt;it&gt; cannot"), std::string::npos);
  EXPECT_NE(html.find("Stage 2, emulated"), std::string::npos);
  const Json json = Json::parse(results_json(comparison).dump());
  EXPECT_EQ(json["contestants"][0]["timeline"]["failure"], "exit code 2: <it> cannot");
  comparison.entries[1].recording = std::nullopt;
  EXPECT_NE(timelines(comparison).find("No timeline of"), std::string::npos);
  comparison.entries[0].recording = std::nullopt;
  EXPECT_EQ(timelines(comparison), "");
}

// Many ops in a row that are shorter than a thousandth of the step are one bar.
TEST_F(StepTimelines, DrawNoSlivers) {
  StepTimeline timeline{.step = 1, .recorded = 1, .ms = 1000, .ranks = {{}}};
  std::vector<StepSpan>& host = timeline.ranks[0].host;
  host.push_back({"long", StepSpan::Kind::op, 0, 100});
  for (int i = 0; i < 100; ++i) host.push_back({"short", StepSpan::Kind::op, 100 + 0.5 * i, 0.5});
  host.push_back({"wait: all", StepSpan::Kind::wait, 150, 0.5});
  const std::string html = timelines(recorded_comparison(timeline));
  EXPECT_NE(html.find("title=\"100 short spans, 50.0 ms from 100 ms on\""), std::string::npos) << html;
  EXPECT_NE(html.find("title=\"long, 100 ms from 0.000 ms on\""), std::string::npos) << html;
  EXPECT_NE(html.find("title=\"wait: all, 0.500 ms from 150 ms on\""), std::string::npos) << html;
}

}  // namespace
}  // namespace stagegpt::compare::test
