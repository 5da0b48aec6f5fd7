// The profile of several ranks: one file, overlapping communication, and a rank that delays the others.
#include "common/profile/profile.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "common/comm/agreement.h"
#include "common/model/gpt2.h"
#include "common/profile/recorded_communicator.h"
#include "common/train/trainer.h"
#include "stage0_serial/naive_backend.h"
#include "stage1_mpi/mpi_communicator.h"
#include "stage1_mpi/sync/overlapped_sync.h"
#include "tests/support/mpi_ranks.h"
#include "tests/support/program.h"
#include "tests/support/tensors.h"
#include "tests/support/trace.h"

namespace stagegpt::test {
namespace {

constexpr std::chrono::milliseconds kPause(20);

const Gpt2Config kModel{.vocab_size = 101, .block_size = 20, .n_layer = 2, .n_head = 3, .n_embd = 60};

// On rank 0, the profile of step 2 of three steps, with buckets of a few parameters. `watch` is called for
// each op of the forward pass.
std::optional<Trace> profile_of_ranks(const Tape::OpWatch& watch) {
  Timeline timeline;
  const auto backend = make_naive_backend();
  const auto communicator =
      recorded(&timeline, make_mpi_communicator(ranks(), *backend, CommAlgorithm::ring));
  OverlappedSync sync(*communicator, *backend, /*bucket_bytes=*/20000);
  Gpt2 model(*backend, kModel, DType::f32, ranks().size());
  model.parameters().initialize(1);
  const DataLoader data(random_ids(1, 0, 1500, 101), 17, 1);
  TrainerConfig config;
  config.batch_size = 12;
  Trainer trainer(*backend, *communicator, sync, model, data, config);
  const ScratchDirectory directory;
  Profile profile(timeline, communicator->group(), *backend, {directory.path() / "p.json", {2, 2}});
  for (int step = 1; step <= 3; ++step) profiled(&profile, step, [&] { trainer.step(watch); });
  if (!ranks().is_root()) return std::nullopt;
  return read_trace(directory.path() / "p.json");
}

// Of ranks that no one delays.
const std::optional<Trace>& profile_of_equal_ranks() {
  static const std::optional<Trace> trace = profile_of_ranks({});
  return trace;
}

// The last rank sleeps in each op of its forward pass.
struct SlowRank {
  int rank = ranks().size() - 1;
  int ops = 0;  // of all steps
  std::optional<Trace> trace = profile_of_ranks([this](auto&&...) {
    ++ops;
    if (ranks().rank() == rank) std::this_thread::sleep_for(kPause);
  });
};
const SlowRank& slow_rank() {
  static const SlowRank slow;
  return slow;
}

TEST(ProfileOfRanks, HasAProcessForEachRankWithItsOpsAndMessages) {
  const auto& trace = profile_of_equal_ranks();
  if (!trace) return;
  const int n = ranks().size();
  ASSERT_EQ(trace->processes.size(), static_cast<std::size_t>(n));
  EXPECT_EQ(trace->facts["clock_error_ns"].size(), static_cast<std::size_t>(n));
  for (int rank = 0; rank < n; ++rank) {
    EXPECT_EQ(trace->processes.at(rank), concat("rank ", rank, " of ", n, ", ", ranks().host(rank)));
    EXPECT_EQ(trace->named("step", rank).size(), 1u);
    EXPECT_EQ(trace->named("adamw", rank).size(), 1u);
    double reduced = 0;
    for (const TraceSpan& message : trace->named("all_reduce", rank)) {
      if (!message.asynchronous) continue;
      reduced += message.args["bytes"].get<double>();
      EXPECT_EQ(message.args["peers"], concat("all ", n, " ranks"));
    }
    // The arena of f32 gradients, once.
    const ParameterTable table = gpt2_parameter_table(kModel);
    EXPECT_GE(reduced, n > 1 ? 4.0 * static_cast<double>(table.numel()) : 0.0);
    EXPECT_EQ(trace->of("communication", rank).empty(), n == 1);
  }
}

// Data ranks, tensor ranks and stages have the same operations, among different ranks.
TEST(ProfileOfRanks, NamesTheRanksOfAPart) {
  if (ranks().size() != 4) GTEST_SKIP() << "only four ranks are two parts of two";
  Timeline timeline;
  const auto backend = make_naive_backend();
  const auto communicator =
      recorded(&timeline, make_mpi_communicator(ranks(), *backend, CommAlgorithm::ring));
  const auto part = communicator->split(ranks().rank() % 2, ranks().rank());
  timeline.clear();
  timeline.record(true);
  part->all_reduce(backend->zeros(DType::f32, {8}))->wait();
  part->group().barrier();
  timeline.record(false);
  const auto named = [](const TimelineSpan& span) {
    return span.kind == SpanKind::collective && span.ranks == 2 &&
           std::string_view(span.name) == "all_reduce among 2 ranks";
  };
  EXPECT_EQ(std::ranges::count_if(timeline.spans(), named), 1);
  const auto of_group = [](const TimelineSpan& span) {
    return std::string_view(span.name) == "barrier" && span.ranks == 2;
  };
  EXPECT_EQ(std::ranges::count_if(timeline.spans(), of_group), 1);
}

// While the last rank still sleeps in its forward pass, the others' backward passes go on beside the
// reductions that they have started.
TEST(ProfileOfRanks, ShowsReductionsThatOverlapWithBackward) {
  const auto& [slow, ops, trace] = slow_rank();
  if (!trace || ranks().size() == 1) return;
  for (int rank = 0; rank < slow; ++rank) {
    int overlapping = 0;
    for (const TraceSpan& message : trace->named("all_reduce", rank)) {
      if (!message.asynchronous) continue;
      for (const TraceSpan& op : trace->named("attention_backward", rank))
        overlapping += message.contains(op);
    }
    EXPECT_GE(overlapping, 1) << "rank " << rank;
  }
}

// Clocks of ranks on one machine are the same: the steps of all ranks end with the same gather.
TEST(ProfileOfRanks, AlignsTheirClocks) {
  const ClockOffset offset = measure_clock_offset(
      ranks(), [] { return Timeline::now() - ranks().rank() * std::int64_t{1'000'000'000}; });
  EXPECT_LE(std::abs(offset.offset - ranks().rank() * std::int64_t{1'000'000'000}), offset.error);
  const auto& trace = profile_of_equal_ranks();
  if (!trace) return;
  const TraceSpan root = trace->named("step")[0];
  for (int rank = 1; rank < ranks().size(); ++rank) {
    const TraceSpan step = trace->named("step", rank)[0];
    EXPECT_LT(step.begin, root.end) << "rank " << rank << ": no common time";
    EXPECT_LT(root.begin, step.end) << "rank " << rank << ": no common time";
  }
}

// Clocks have errors, so a span of another rank may seem to begin before rank 0's step.
TEST(ProfileOfRanks, BeginsWithTheEarliestSpanOfAnyRank) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  Timeline timeline;
  const auto backend = make_naive_backend();
  const ScratchDirectory directory;
  Profile profile(timeline, ranks(), *backend, {directory.path() / "p.json", {1, 1}});
  profiled(&profile, 1, [&] {
    const std::int64_t now = Timeline::now();
    timeline.add(
        {.name = "early", .kind = SpanKind::data, .begin = now - ranks().rank() * kSecond, .end = now});
  });
  if (!ranks().is_root()) return;
  const Trace trace = read_trace(directory.path() / "p.json");
  const int last = ranks().size() - 1;
  EXPECT_EQ(trace.named(last == 0 ? "step" : "early", last).at(0).begin, 0);
}

// The others wait for a rank that sleeps in each op of its forward pass.
TEST(ProfileOfRanks, ShowsThatTheOthersWaitForASlowRank) {
  const auto& [slow, ops, trace] = slow_rank();
  if (!trace || ranks().size() == 1) return;
  const double slept =
      1e3 * static_cast<double>(kPause.count()) * ops / 3;  // microseconds, in one of three steps
  const auto waited = [&](int rank) {
    double sum = 0;
    for (const TraceSpan& message : trace->of("communication", rank)) {
      if (!message.asynchronous) sum += message.duration();
    }
    return sum;
  };
  EXPECT_GE(trace->named("forward", slow)[0].duration(), slept);
  for (int rank = 0; rank < slow; ++rank) {
    EXPECT_GT(waited(rank), slept / 2) << "rank " << rank;
    EXPECT_GT(waited(rank), waited(slow)) << "rank " << rank;
  }
}

}  // namespace
}  // namespace stagegpt::test
