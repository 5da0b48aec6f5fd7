// The versions of a ladder are checked, timed with other inputs, and checked again.
#include "stage2_cuda/ladder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "tests/support/refusal.h"

namespace stagegpt::gpu {
namespace {

class LadderTest : public testing::Test {
 protected:
  void SetUp() override {
    open_device(0);
    ladder_.name = "made up";
    ladder_.clear = [this] { left_ = 1; };
    ladder_.error = [this](int set) {
      checked_.push_back(set);
      return left_;
    };
    ladder_.sets = 4;
    ladder_.tolerance = 1e-5;
    ladder_.work = 1e9;
    ladder_.bound = 1e12;
  }
  void add(const char* name, double error) {
    ladder_.versions.push_back({name, [this, name, error](StreamHandle, int set) {
                                  left_ = error;
                                  runs_.push_back({name, set});
                                }});
  }

  Ladder ladder_;
  double left_ = 0;
  struct Run {
    std::string name;
    int set;
  };
  std::vector<Run> runs_;
  std::vector<int> checked_;  // sets
};

TEST_F(LadderTest, versions_are_timed_in_order) {
  add("plain", 1e-7);
  add("fast", 2e-7);
  const std::vector<VersionReport> reports = check_and_time(ladder_);
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].name, "plain");
  EXPECT_EQ(reports[1].error, 2e-7);
  EXPECT_GT(reports[1].microseconds, 0);
  EXPECT_DOUBLE_EQ(reports[1].rate, 1e9 / (reports[1].microseconds / 1e6));
  EXPECT_DOUBLE_EQ(reports[1].share, reports[1].rate / 1e12);
  // Each version runs once for the check, three times for the warm-up, and then 5 to 50 times for the median;
  // the reference does this twice.
  EXPECT_GE(runs_.size(), 3u * (1 + 3 + 5));
  EXPECT_LE(runs_.size(), 3u * (1 + 3 + 50));
}

// "plain" as a share of "fast", which is timed before and after it.
TEST_F(LadderTest, the_last_version_is_the_reference) {
  add("plain", 0);
  add("fast", 0);
  const std::vector<VersionReport> reports = check_and_time(ladder_);
  std::vector<std::string> order;
  for (const Run& run : runs_) {
    if (order.empty() || order.back() != run.name) order.push_back(run.name);
  }
  EXPECT_EQ(order, (std::vector<std::string>{"fast", "plain", "fast"}));
  const double first_time = reports[0].of_reference * reports[0].microseconds;
  EXPECT_GT(first_time, 0);
  EXPECT_NEAR(reports[1].of_reference * reports[1].microseconds, first_time, 1e-9 * first_time);
}

// Set 0 is checked; the others are timed in turns, then checked.
TEST_F(LadderTest, a_version_is_timed_with_inputs_that_it_has_not_seen) {
  add("alone", 0);
  check_and_time(ladder_);
  int turn = 0, checks = 0;
  for (const Run& run : runs_) {
    if (run.set == 0) turn = 0, ++checks;
    EXPECT_EQ(run.set, turn == 0 ? 0 : 1 + (turn - 1) % 3);
    ++turn;
  }
  EXPECT_EQ(checks, 2) << "as reference, and as version";
  EXPECT_EQ(checked_, (std::vector<int>{0, 1, 2, 3, 0, 1, 2, 3}));
}

TEST_F(LadderTest, a_version_is_checked_after_it_was_timed) {
  ladder_.versions.push_back({"tired", [this](StreamHandle, int set) { left_ = set == 0 ? 0 : 1e-3; }});
  EXPECT_EQ(test::message_of<std::runtime_error>([&] { check_and_time(ladder_); }),
            "version tired, when it was timed: expected an error of at most 1e-05, got 0.001");
}

TEST_F(LadderTest, the_greatest_error_is_told) {
  ladder_.versions.push_back({"alone", [](StreamHandle, int) {}});
  ladder_.error = [](int set) { return set == 2 ? 3e-6 : 1e-6; };
  EXPECT_EQ(check_and_time(ladder_)[0].error, 3e-6);
}

TEST_F(LadderTest, has_as_many_sets_as_are_always_run) {
  add("alone", 0);
  for (const int sets : {2, 9}) {
    ladder_.sets = sets;
    EXPECT_NO_THROW(check_and_time(ladder_)) << sets;
  }
  for (const int sets : {1, 10}) {
    ladder_.sets = sets;
    EXPECT_THROW(check_and_time(ladder_), InternalError) << sets;
  }
}

TEST(EnoughSamples, AreFewerOfWhatTakesLong) {
  const auto count = [](double milliseconds) { return enough_samples([&] { return milliseconds; }).size(); };
  EXPECT_EQ(count(0.01), 50);
  EXPECT_EQ(count(20), 50);
  EXPECT_EQ(count(25), 40) << "a second in all";
  EXPECT_EQ(count(37), 28) << "27 take 999 ms";
  EXPECT_EQ(count(125), 8);
  EXPECT_EQ(count(1000), 5) << "a median needs some";
  double next = 0;
  EXPECT_EQ(enough_samples([&] { return ++next; }).median(), 23) << "of 1 to 45, which are 1035 together";
}

TEST_F(LadderTest, a_version_may_err_as_much_as_the_tolerance) {
  add("just right", 1e-5);
  EXPECT_EQ(check_and_time(ladder_).size(), 1u);
  add("just wrong", 1.0000001e-5);
  EXPECT_THROW(check_and_time(ladder_), std::runtime_error);
}

TEST_F(LadderTest, a_wrong_version_is_not_timed) {
  add("wrong", 1e-3);
  EXPECT_EQ(test::message_of<std::runtime_error>([&] { check_and_time(ladder_); }),
            "version wrong: expected an error of at most 1e-05, got 0.001");
  EXPECT_EQ(runs_.size(), 1u);
}

TEST_F(LadderTest, a_single_run_is_checked_too) {
  add("right", 0);
  run_once(ladder_);
  add("wrong", 1e-3);
  EXPECT_THROW(run_once(ladder_), std::runtime_error);
}

TEST_F(LadderTest, one_version_is_kept_by_the_first_word_of_its_name) {
  for (const char* name : {"v1 plain", "v2 fast", "v22"}) add(name, 0);
  keep_version(ladder_, "v2");
  ASSERT_EQ(ladder_.versions.size(), 1u);
  EXPECT_EQ(ladder_.versions[0].name, "v2 fast");
  EXPECT_THROW(keep_version(ladder_, "v"), UserError);
}

TEST_F(LadderTest, a_version_that_leaves_no_number_is_wrong) {
  add("nan", std::nan(""));
  EXPECT_THROW(check_and_time(ladder_), std::runtime_error);
}

TEST_F(LadderTest, a_version_that_does_nothing_is_wrong) {
  add("right", 0);
  ladder_.versions.push_back({"idle", [](StreamHandle, int) {}});
  EXPECT_THROW(check_and_time(ladder_), std::runtime_error);
}

class PrintedLadder : public testing::Test {
 protected:
  static std::string printed(bool json, bool is_gpu = true) {
    Ladder ladder;
    ladder.name = "matmul (2,3)";
    ladder.unit = "GFLOP/s";
    ladder.bound = 2.5e12;
    ladder.bound_name = "a measured GEMM";
    const std::vector<VersionReport> reports = {{.name = "plain",
                                                 .error = 1.5e-7,
                                                 .microseconds = 1234.5,
                                                 .rate = 4e9,
                                                 .share = 0.0016,
                                                 .of_reference = 0.00324},
                                                {.name = "fast",
                                                 .error = 0,
                                                 .microseconds = 2,
                                                 .rate = 1.25e12,
                                                 .share = 0.5,
                                                 .of_reference = 1.0078125}};
    testing::internal::CaptureStdout();
    const MachineLoad load{.others_share = 0.25, .cores = 4, .threads = 3, .seconds = 2};
    print(ladder, reports, {"a machine", is_gpu, load}, json);
    std::fflush(stdout);
    return testing::internal::GetCapturedStdout();
  }
};

TEST_F(PrintedLadder, is_a_table) {
  const char* const table = R"(matmul (2,3)
a machine
bound: 2500.0 GFLOP/s, a measured GEMM
reference: fast, timed twice

version                   error    median us    GFLOP/s  of bound  of reference
plain                   1.5e-07      1234.50        4.0      0.2%          0.3%
fast                          0         2.00     1250.0     50.0%        100.8%
)";
  EXPECT_EQ(printed(false), table);
  const std::string emulated = printed(false, false);
  EXPECT_NE(emulated.find("timed twice\nThese are times of the emulator. They say nothing about a GPU.\n\n"),
            std::string::npos)
      << emulated;
}

TEST_F(PrintedLadder, is_one_object) {
  const char* const object = R"json({
  "ladder": "matmul (2,3)",
  "machine": "a machine",
  "on_gpu": true,
  "unit": "GFLOP/s",
  "bound": 2500.0,
  "bound_name": "a measured GEMM",
  "reference": "fast",
  "versions": [
    {
      "name": "plain",
      "error": 1.5e-07,
      "us": 1234.5,
      "rate": 4.0,
      "share": 0.0016,
      "of_reference": 0.00324
    },
    {
      "name": "fast",
      "error": 0.0,
      "us": 2.0,
      "rate": 1250.0,
      "share": 0.5,
      "of_reference": 1.0078125
    }
  ],
  "busy": {
    "is_busy": false,
    "others_share": 0.25,
    "of_cores": 4,
    "threads": 3,
    "over_seconds": 2.0,
    "host": null
  }
}
)json";
  EXPECT_EQ(printed(true), object);
}

}  // namespace
}  // namespace stagegpt::gpu
