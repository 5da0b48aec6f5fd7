// The timeline of a profile: what it records, what it writes, and the clocks of its ranks.
#include "common/profile/profile.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <set>
#include <thread>

#include "common/backend/ops/elementwise.h"
#include "common/profile/recorded_communicator.h"
#include "common/profile/trace_events.h"
#include "stage0_serial/naive_backend.h"
#include "tests/support/op_recorder.h"
#include "tests/support/program.h"
#include "tests/support/refusal.h"
#include "tests/support/small_training.h"
#include "tests/support/trace.h"
#include "tools/bench/step_budget.h"

namespace stagegpt::test {
namespace {

TEST(Timeline, KeepsWhatBeginsAndEndsWhileItRecords) {
  Timeline timeline;
  timeline.clear();
  { const Recorded before(&timeline, "before", SpanKind::op); }
  {
    const Recorded across(&timeline, "across the begin", SpanKind::op);
    timeline.record(true);
  }
  {
    const Recorded inside(&timeline, "inside", SpanKind::message, 12, 3);
    const Recorded without(nullptr, "without", SpanKind::op);
  }
  {
    const Recorded across(&timeline, "across the end", SpanKind::op);
    timeline.record(false);
  }
  ASSERT_EQ(timeline.spans().size(), 1u);
  const TimelineSpan& span = timeline.spans()[0];
  EXPECT_STREQ(span.name, "inside");
  EXPECT_EQ(span.kind, SpanKind::message);
  EXPECT_EQ(span.work.bytes, 12);
  EXPECT_EQ(span.peer, 3);
  EXPECT_LE(span.begin, span.end);
  timeline.clear();
  EXPECT_TRUE(timeline.spans().empty());
}

TEST(Timeline, CountsWhatItHasNoMemoryForAndAllocatesNone) {
  Timeline timeline;
  timeline.clear();
  timeline.record(true);
  timeline.add({.name = "first"});
  const TimelineSpan* const memory = timeline.spans().data();
  for (std::size_t i = 1; i < Timeline::kCapacity + 5; ++i) timeline.add({.name = "more"});
  EXPECT_EQ(timeline.spans().size(), Timeline::kCapacity);
  EXPECT_EQ(timeline.lost(), 5);
  EXPECT_EQ(timeline.spans().data(), memory);
}

TEST(Timeline, APhaseEndsWhereTheNextOneBegins) {
  Timeline timeline;
  timeline.clear();
  timeline.enter("not recorded");
  timeline.record(true);
  timeline.enter("forward");
  timeline.enter("backward");
  timeline.enter("");
  timeline.enter("");
  ASSERT_EQ(timeline.spans().size(), 2u);
  EXPECT_STREQ(timeline.spans()[0].name, "forward");
  EXPECT_STREQ(timeline.spans()[1].name, "backward");
  EXPECT_EQ(timeline.spans()[0].end, timeline.spans()[1].begin);
}

// The names of the main thread's open ranges, from the outermost, whenever one begins.
class OpenRanges final : public LiveRanges {
 public:
  void begin(const char* name) override {
    if (std::this_thread::get_id() != main_thread_) return;
    open_.push_back(open_.empty() ? name : open_.back() + '/' + name);
    seen.insert(open_.back());
  }
  void end() override {
    if (std::this_thread::get_id() != main_thread_) return;
    ASSERT_FALSE(open_.empty());
    open_.pop_back();
  }
  bool none_open() const { return open_.empty(); }
  std::set<std::string> seen;

 private:
  const std::thread::id main_thread_ = std::this_thread::get_id();
  std::vector<std::string> open_;
};

TrainerConfig config_of(Timeline& timeline) {
  TrainerConfig config = small_config(2, 2);
  config.timeline = &timeline;
  return config;
}

// A profile of a small training.
class ProfileOfATraining : public testing::Test {
 protected:
  Trace profile(StepRange range, std::int64_t steps) {
    const auto communicator = recorded(&timeline_, std::make_unique<SelfCommunicator>());
    Trainer trainer(be_, *communicator, training_.sync, training_.model, training_.data, config_);
    Profile profile(timeline_, communicator->group(), be_, {directory_.path() / "p.json", range});
    for (std::int64_t i = 1; i <= steps; ++i) profiled(&profile, i, [&] { trainer.step(); });
    profile.write();
    description_ = profile.description();
    return read_trace(directory_.path() / "p.json");
  }

  ScratchDirectory directory_;
  Timeline timeline_;
  const TrainerConfig config_ = config_of(timeline_);
  SmallTraining training_{make_naive_backend(), config_, random_tokens(400)};
  Backend& be_ = *training_.backend;
  std::string description_;
};

TEST_F(ProfileOfATraining, ShowsTheOpsOfTheStepsWithTheirWork) {
  const Trace trace = profile({2, 3}, 4);
  const auto steps = trace.named("step");
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].args["number"], 2);
  EXPECT_EQ(steps[1].args["number"], 3);
  EXPECT_NE(description_.find("profile: steps 2 to 3 in "), std::string::npos) << description_;

  std::multiset<std::string> ops;
  double flops = 0, bytes = 0;
  for (const TraceSpan& op : trace.of("op")) {
    EXPECT_TRUE(steps[0].contains(op) || steps[1].contains(op)) << op.name;
    if (!steps[0].contains(op)) continue;
    ops.insert(op.name);
    flops += op.args.value("FLOP", 0.0);
    bytes += op.args.value("bytes", 0.0);
  }
  OpRecorder recorder(be_);
  training_.trainer.step();
  const auto expected = recorder.take();
  EXPECT_EQ(ops, std::multiset<std::string>(expected.begin(), expected.end()));
  double expected_flops = 0, expected_bytes = 0;
  for (const OpBudget& op : step_budget(training_.model.config(), config_, kSmallT, DType::f32, true)) {
    expected_flops += op.work.flops;
    expected_bytes += op.work.bytes;
  }
  EXPECT_EQ(flops, expected_flops);
  EXPECT_EQ(bytes, expected_bytes);
}

TEST_F(ProfileOfATraining, ShowsNestedRangesToAnotherProfiler) {
  OpenRanges ranges;
  timeline_.show(&ranges);
  profile({2, 2}, 3);
  EXPECT_TRUE(ranges.none_open());
  for (const char* path : {"step", "step/data", "step/forward", "step/forward/embedding_forward",
                           "step/backward/linear_backward", "step/optimizer/adamw"}) {
    EXPECT_TRUE(ranges.seen.contains(path)) << path;
  }
  for (const std::string& path : ranges.seen) EXPECT_TRUE(path.starts_with("step")) << path;
}

TEST_F(ProfileOfATraining, ShowsShapesAndRates) {
  const Trace trace = profile({1, 1}, 1);
  const auto ops = trace.named("linear_activation_forward");
  ASSERT_EQ(ops.size(), 4u);  // two layers, two micro-steps
  // h = gelu(x wᵀ + b): 2 sequences of 17 tokens, 48 channels, 192 in the MLP.
  EXPECT_EQ(ops[0].args["shapes"], "(2, 17, 192) (2, 17, 192) (2, 17, 48) (192, 48)");
  const double n = 2 * 17 * 192;
  EXPECT_EQ(ops[0].args["FLOP"], n * (2 * 48 + 1 + 8));
  EXPECT_NEAR(ops[0].args["GFLOP/s"].get<double>(), n * (2 * 48 + 1 + 8) / (1e3 * ops[0].duration()), 1e-9);
  EXPECT_NEAR(ops[0].args["GB/s"].get<double>(),
              ops[0].args["bytes"].get<double>() / (1e3 * ops[0].duration()), 1e-9);
}

TEST_F(ProfileOfATraining, ShowsPhasesAndTheThreadThatFetchesBatches) {
  const Trace trace = profile({2, 2}, 2);
  std::vector<std::string> phases;
  for (const TraceSpan& phase : trace.of("phase")) phases.push_back(phase.name);
  EXPECT_EQ(phases, (std::vector<std::string>{"data", "forward", "backward", "data", "forward", "backward",
                                              "communication", "optimizer"}));
  const auto in_phase = [&](const std::string& op, const std::string& phase) {
    for (const TraceSpan& one : trace.named(op)) {
      bool inside = false;
      for (const TraceSpan& span : trace.named(phase)) inside |= span.contains(one);
      EXPECT_TRUE(inside) << op << " is not in " << phase;
    }
  };
  in_phase("attention_forward", "forward");
  in_phase("attention_backward", "backward");
  in_phase("adamw", "optimizer");
  const auto fetches = trace.of("data");
  ASSERT_FALSE(fetches.empty());
  for (const TraceSpan& fetch : fetches)
    EXPECT_EQ(trace.rows.at({0, fetch.row}).substr(0, 11), "data thread");
}

// A device that is a second late with everything.
class LateTimer final : public WorkTimer {
 public:
  void mark() override { ++marks_; }
  std::vector<double> take_intervals() override {
    std::vector<double> seconds;  // 1, 2, 3, …
    for (int i = 1; i < marks_; ++i) seconds.push_back(i);
    return seconds;
  }

 private:
  int marks_ = 0;
};

TEST_F(ProfileOfATraining, HasARowOfTheDeviceFromMarksInItsStream) {
  LateTimer timer;
  const Tensor x = be_.zeros(DType::f32, {4});
  timeline_.clear();
  timeline_.record(true);
  OpTimeline ops(be_, timeline_, &timer);
  const std::int64_t begin = Timeline::now();
  be_.run(Add{x, x, x});
  be_.fill(x, 1);
  ops.finish();
  ASSERT_EQ(timeline_.spans().size(), 4u);
  const TimelineSpan &add = timeline_.spans()[2], &fill = timeline_.spans()[3];
  EXPECT_STREQ(add.name, "add");
  EXPECT_EQ(add.kind, SpanKind::device);
  EXPECT_EQ(add.work.flops, 4);
  EXPECT_EQ(timeline_.spans()[0].work.flops, 0);  // the launch
  // A pause of 1 s, the op of 2 s, a pause of 3 s, an op of 4 s.
  constexpr std::int64_t kSecond = 1'000'000'000;
  EXPECT_EQ(add.end - add.begin, 2 * kSecond);
  EXPECT_EQ(fill.begin - add.end, 3 * kSecond);
  EXPECT_EQ(fill.end - fill.begin, 4 * kSecond);
  EXPECT_LE(add.begin, begin + kSecond);
}

TEST_F(ProfileOfATraining, OfStepsThatWereNotDoneSaysSo) {
  Profile profile(timeline_, training_.communicator.group(), be_, {directory_.path() / "p.json", {5, 8}});
  profiled(&profile, 1, [] {});
  profile.write();
  EXPECT_FALSE(std::filesystem::exists(directory_.path() / "p.json"));
  EXPECT_EQ(profile.description(), "profile: none of the steps 5 to 8 was done");
}

TEST_F(ProfileOfATraining, OfARunThatEndsEarlyHasTheStepsThatWereDone) {
  const Trace trace = profile({2, 8}, 3);
  EXPECT_EQ(trace.named("step").size(), 2u);
  EXPECT_EQ(trace.facts["last_step"], 3);
  EXPECT_NE(description_.find("profile: steps 2 to 3 in "), std::string::npos) << description_;
}

TEST_F(ProfileOfATraining, WithoutAProfileCommunicationAndOpsAreNotObserved) {
  auto communicator = std::make_unique<SelfCommunicator>();
  Communicator* const same = communicator.get();
  EXPECT_EQ(recorded(nullptr, std::move(communicator)).get(), same);
  Profile profile(timeline_, training_.communicator.group(), be_, {directory_.path() / "p.json", {2, 2}});
  profiled(&profile, 1, [&] { const OpRecorder possible(be_); });  // a backend has at most one observer
  profiled(&profile, 2, [&] { EXPECT_THROW(const OpRecorder refused(be_), InternalError); });
  const OpRecorder possible(be_);
}

TEST(TraceEvents, DivideOverlappingWorkOfThreadsAmongRows) {
  const std::vector<TimelineSpan> spans = {{.name = "a", .kind = SpanKind::data, .begin = 0, .end = 10},
                                           {.name = "b", .kind = SpanKind::data, .begin = 5, .end = 20},
                                           {.name = "c", .kind = SpanKind::data, .begin = 10, .end = 15}};
  const std::string events = trace_events(spans, {}, [](std::int64_t t) { return t; });
  const Trace trace = parse_trace(trace_file(std::vector{events}, {}));  // checks the nesting
  EXPECT_EQ(trace.named("a")[0].row, trace.named("c")[0].row);
  EXPECT_NE(trace.named("a")[0].row, trace.named("b")[0].row);
}

TEST(ProfileFile, MustBeWritable) {
  const ScratchDirectory directory;
  const auto refused = [](const std::filesystem::path& file) {
    return refusal([&] { require_profile_file(file); });
  };
  EXPECT_EQ(refused(directory.path() / "new.json"), "");
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  const std::string old = trace_file(std::vector{std::string()}, {});
  directory.write("old.json", old);
  EXPECT_EQ(refused(directory.path() / "old.json"), "");
  EXPECT_EQ(read_bytes(directory.path() / "old.json"), old);  // until the profile is written
  directory.write("empty.json", "");
  EXPECT_EQ(refused(directory.path() / "empty.json"), "");
  EXPECT_NE(refused(directory.path()).find("is not a regular file"), std::string::npos);
  EXPECT_NE(refused("/dev/full").find("is not a regular file"), std::string::npos);
  EXPECT_NE(refused(directory.path() / "none" / "x").find("No such file"), std::string::npos);
  EXPECT_NE(refused(directory.path() / "old.json" / "x").find("Not a directory"), std::string::npos);
}

TEST(ProfileFile, OfAnotherKindIsNotReplaced) {
  const ScratchDirectory directory;
  for (const char* text : {"{", "a text to train on, longer than the beginning of a profile"}) {
    directory.write("text.txt", text);
    EXPECT_THROW(require_profile_file(directory.path() / "text.txt"), UserError);
  }
  directory.write("p.json.tmp", "a file of the user's");
  require_profile_file(directory.path() / "p.json");
  EXPECT_EQ(read_bytes(directory.path() / "p.json.tmp"), "a file of the user's");
}

// Two ranks as two threads: messages through queues.
class TwoThreads {
 public:
  void put(int to, std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    queues_[static_cast<std::size_t>(to)].emplace_back(bytes.begin(), bytes.end());
    changed_.notify_all();
  }
  void get(int at, std::span<std::byte> bytes) {
    std::unique_lock lock(mutex_);
    auto& queue = queues_[static_cast<std::size_t>(at)];
    changed_.wait(lock, [&] { return !queue.empty(); });
    std::ranges::copy(queue.front(), bytes.begin());
    queue.pop_front();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<std::deque<std::vector<std::byte>>, 2> queues_;
};

class RankOfTwo final : public RankGroup {
 public:
  RankOfTwo(TwoThreads& threads, int rank) : threads_(threads), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return 2; }
  void barrier() override {}
  void broadcast(std::span<std::byte>, int) override {}
  void all_gather(std::span<const std::byte>, std::span<std::byte>) override {}
  void enter(const char*) override {}
  void send(std::span<const std::byte> bytes, int to) override { threads_.put(to, bytes); }
  void receive(std::span<std::byte> bytes, int) override { threads_.get(rank_, bytes); }

 private:
  TwoThreads& threads_;
  int rank_;
};

TEST(ClockOffset, OfAClockThatIsAheadIsWithinItsError) {
  constexpr std::int64_t kAhead = 5'000'000'000;  // ns
  TwoThreads threads;
  ClockOffset root, other;
  std::thread rank_0([&] {
    RankOfTwo group(threads, 0);
    root = measure_clock_offset(group, Timeline::now);
  });
  RankOfTwo group(threads, 1);
  other = measure_clock_offset(group, [] { return Timeline::now() + kAhead; });
  rank_0.join();
  EXPECT_EQ(root.offset, 0);
  EXPECT_EQ(root.error, 0);
  EXPECT_GT(other.error, 0);
  EXPECT_LE(std::abs(other.offset + kAhead), other.error);
}

TEST(ClockOffset, IsInterpolatedBetweenTwoMeasurements) {
  const ClockOffset first{.at = 1000, .offset = 100}, last{.at = 3000, .offset = 300};
  EXPECT_EQ(time_of_root(1000, first, last), 1100);
  EXPECT_EQ(time_of_root(2000, first, last), 2200);
  EXPECT_EQ(time_of_root(3000, first, last), 3300);
  EXPECT_EQ(time_of_root(500, first, last), 600);  // outside, the nearest one counts
  EXPECT_EQ(time_of_root(4000, first, last), 4300);
}

}  // namespace
}  // namespace stagegpt::test
