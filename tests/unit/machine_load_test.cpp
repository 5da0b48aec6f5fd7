// Whether a machine was busy, for made-up counters.
#include "common/measure/machine_load.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/system/system_files.h"
#include "tools/bench/bench_report.h"
#include "tools/bench/decode_bench.h"

namespace stagegpt::test {
namespace {

// One rank of a measurement of 10 s on two cores, with two threads.
LoadReading reading(double used, double own, const char* host = "here") {
  LoadReading made{.known = true, .seconds = 10, .used = used, .own = own, .cores = 2, .threads = 2};
  std::strncpy(made.host, host, sizeof made.host - 1);
  return made;
}

std::optional<MachineLoad> load_of(std::initializer_list<LoadReading> readings) {
  return busiest_load(std::span(readings.begin(), readings.size()));
}

constexpr const char* kProcStat =
    "cpu  60 600 6000 60000 600000 6000000 60000000 600000000 0 0\n"
    "cpu0 10 100 1000 10000 100000 1000000 10000000 100000000 7 7\n"
    "cpu1 20 200 2000 20000 200000 2000000 20000000 200000000 7 7\n"
    "cpu11 30 300 3000 30000 300000 3000000 30000000 300000000 7 7\n"
    "intr 1 2 3\n"
    "cpuidle 1 2 3 4 5 6 7 8\n";

TEST(MachineLoad, used_is_all_time_but_idle_and_waiting) {
  EXPECT_DOUBLE_EQ(parse_used_seconds(kProcStat, {0}, 100).value(), 1110011.10);
  EXPECT_DOUBLE_EQ(parse_used_seconds(kProcStat, {1}, 1000).value(), 222002.220);
  EXPECT_DOUBLE_EQ(parse_used_seconds(kProcStat, {0, 11}, 1).value(), 4 * 111001110.0);
}

TEST(MachineLoad, is_not_known_without_the_counters_of_each_core) {
  EXPECT_FALSE(parse_used_seconds(kProcStat, {0, 2}, 100));
  EXPECT_FALSE(parse_used_seconds(kProcStat, {}, 100));
  EXPECT_FALSE(parse_used_seconds("", {0}, 100));
  EXPECT_FALSE(parse_used_seconds("cpu0 1 2 3\n", {0}, 100));
  EXPECT_FALSE(parse_used_seconds("cpu0 a b c d e f g h\n", {0}, 100));
}

TEST(MachineLoad, is_what_others_have_used) {
  const auto load = load_of({reading(20, 8)});
  ASSERT_TRUE(load);
  EXPECT_DOUBLE_EQ(load->others_share, 0.6);
  EXPECT_DOUBLE_EQ(load->missing_share(), 0.6);
  EXPECT_EQ(load->cores, 2);
  EXPECT_EQ(load->seconds, 10);
  EXPECT_EQ(load->host, "");  // there is only one host
  EXPECT_TRUE(load->busy());
  EXPECT_DOUBLE_EQ(load_of({reading(12, 12)})->others_share, 0);
  EXPECT_DOUBLE_EQ(load_of({reading(12, 12.02)})->others_share, 0);  // counters are coarse
}

TEST(MachineLoad, is_busy_from_a_tenth_on) {
  EXPECT_FALSE(load_of({reading(20, 18.1)})->busy());
  EXPECT_TRUE(load_of({reading(20, 17.9)})->busy());
}

TEST(MachineLoad, others_may_have_the_cores_that_nobody_needs) {
  MachineLoad load{.others_share = 0.5, .cores = 16, .threads = 8, .seconds = 10};
  EXPECT_EQ(load.missing_share(), 0);
  EXPECT_FALSE(load.busy());
  load.others_share = 0.75;  // 4 cores are left for 8 threads
  EXPECT_DOUBLE_EQ(load.missing_share(), 0.5);
  EXPECT_TRUE(load.busy());
  load.threads = 64;  // more than the cores: not the fault of others
  load.others_share = 0.01;
  EXPECT_FALSE(load.busy());
}

TEST(MachineLoad, ranks_of_one_program_are_no_others) {
  const auto load = load_of({reading(20, 9.8), reading(20, 9.9)});
  ASSERT_TRUE(load);
  EXPECT_NEAR(load->others_share, 0.015, 1e-12);
  EXPECT_EQ(load->threads, 4);
  EXPECT_FALSE(load->busy());
}

TEST(MachineLoad, of_several_hosts_is_that_of_the_busiest) {
  const auto load =
      load_of({reading(20, 10, "a"), reading(20, 6, "b"), reading(20, 10, "a"), reading(20, 6, "b")});
  ASSERT_TRUE(load);
  EXPECT_EQ(load->host, "b");
  EXPECT_DOUBLE_EQ(load->others_share, 0.4);
  EXPECT_TRUE(busy_line(load).starts_with("b was busy: other programs used 40 % of 2 cores"));
}

TEST(MachineLoad, is_not_known_where_counters_tell_nothing) {
  LoadReading unknown = reading(20, 8), brief = unknown, without_cores = unknown;
  unknown.known = false;
  brief.seconds = 0.4;
  without_cores.cores = 0;
  const LoadReading counts_nothing = reading(0, 8);
  for (const LoadReading& bad : {unknown, brief, without_cores, counts_nothing}) {
    EXPECT_FALSE(load_of({bad}));
    EXPECT_FALSE(load_of({reading(20, 8), bad}));
  }
}

TEST(MachineLoad, a_busy_machine_has_one_line) {
  EXPECT_EQ(busy_line(load_of({reading(20, 7.8)})),
            "the machine was busy: other programs used 61 % of 2 cores during the measurement, which used 2 "
            "threads; the figures may be off");
  EXPECT_EQ(busy_line(load_of({reading(20, 19)})), "");
  EXPECT_EQ(busy_line(std::nullopt), "");
}

TEST(MachineLoad, of_nothing_is_nothing) {
  EXPECT_EQ(MachineLoad().missing_share(), 0);
  EXPECT_EQ(
      busy_json(MachineLoad()).dump(),
      R"({"is_busy":false,"others_share":0.0,"of_cores":0,"threads":0,"over_seconds":0.0,"host":null})");
  const auto idle = load_of({{.known = true, .seconds = 0.5, .cores = 1}});
  ASSERT_TRUE(idle);
  EXPECT_EQ(idle->others_share, 0);
  EXPECT_EQ(idle->threads, 0);
}

TEST(MachineLoad, one_core_and_one_thread_are_one) {
  MachineLoad load{.host = "a", .others_share = 0.5, .cores = 1, .threads = 1};
  EXPECT_EQ(busy_line(load),
            "a was busy: other programs used 50 % of 1 core during the measurement, which used 1 thread; the "
            "figures may be off");
  EXPECT_EQ(busy_json(load)["host"], "a");
}

// Restricts this process to one processor. A container may allow less than one; then the test is skipped.
TEST(MachineLoad, a_meter_counts_the_cores_that_we_may_use) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  int core = 0;
  while (!CPU_ISSET(core, &before)) ++core;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  SingleProcess one_process;
  const LoadMeter meter(one_process, 3);
  std::this_thread::sleep_for(std::chrono::milliseconds(520));  // the kernel's counters are coarse
  const auto load = meter.read();
  sched_setaffinity(0, sizeof before, &before);
  if (!load) GTEST_SKIP() << "the kernel's counters are not ours";
  EXPECT_EQ(load->cores, 1);
  EXPECT_EQ(load->threads, 3);
  EXPECT_GE(load->seconds, 0.52);
}

TEST(MachineLoad, a_meter_reads_the_kernels_counters) {
  SingleProcess one_process;
  const LoadMeter meter(one_process, 1);
  EXPECT_FALSE(meter.read());  // no time has passed
}

TEST(MachineLoad, a_meter_knows_the_load_unless_there_is_a_quota) {
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  std::set<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.insert(core);
  }
  const auto ticks = [&] { return parse_used_seconds(system_file("/proc/stat"), cores, 1); };
  const std::optional<double> ticks_before = ticks();
  SingleProcess one_process;
  const LoadMeter meter(one_process, 1);
  const std::clock_t begin = std::clock();
  while (std::clock() - begin < CLOCKS_PER_SEC) {
  }
  const std::optional<MachineLoad> load = meter.read();
  if (!ticks_before || *ticks() < *ticks_before + 0.6 * static_cast<double>(sysconf(_SC_CLK_TCK)))
    GTEST_SKIP() << "/proc/stat does not count this program's time";
  const std::optional<double> quota = cpu_quota();
  if (quota && *quota < static_cast<double>(cores.size())) {
    EXPECT_FALSE(load);
    return;
  }
  ASSERT_TRUE(load);
  EXPECT_EQ(load->cores, std::ssize(cores));
  EXPECT_EQ(load->threads, 1);
}

TEST(BenchJson, tells_of_a_busy_machine) {
  BenchReport report;
  for (Samples* samples : {&report.step_ms, &report.products_ms, &report.adamw_ms, &report.reduction_ms})
    samples->add(1);
  EXPECT_TRUE(bench_json({}, report)["busy"].is_null());
  report.load = load_of({reading(20, 8)});
  const auto busy = bench_json({}, report)["busy"];
  EXPECT_EQ(busy["is_busy"], true);
  EXPECT_DOUBLE_EQ(busy["others_share"], 0.6);
  EXPECT_EQ(busy["of_cores"], 2);
  EXPECT_EQ(busy["over_seconds"], 10);
  DecodeReport decoding;
  decoding.token_ms.add(1);
  decoding.load = report.load;
  EXPECT_EQ(decode_json({}, decoding)["busy"], busy);
}

}  // namespace
}  // namespace stagegpt::test
