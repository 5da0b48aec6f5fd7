// The versions of a ladder are checked, then timed.
#include "stage2_cuda/ladder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <stdexcept>

#include "stage2_cuda/cuda_backend.h"
#include "stage2_cuda/device_objects.h"
#include "stage2_cuda/ladders.h"

namespace stagegpt::gpu {
namespace {

class LadderTest : public testing::Test {
 protected:
  void SetUp() override {
    open_device(0);
    ladder_.name = "made up";
    ladder_.clear = [this] { left_ = 1; };
    ladder_.error = [this] { return left_; };
    ladder_.tolerance = 1e-5;
    ladder_.work = 1e9;
    ladder_.bound = 1e12;
  }
  void add(const char* name, double error) {
    ladder_.versions.push_back({name, [this, error](StreamHandle) {
                                  left_ = error;
                                  ++runs_;
                                }});
  }

  Ladder ladder_;
  double left_ = 0;
  int runs_ = 0;
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
  // Each version runs once for the check, three times for the warm-up, and then 5 to 50 times for the median.
  EXPECT_GE(runs_, 2 * (1 + 3 + 5));
  EXPECT_LE(runs_, 2 * (1 + 3 + 50));
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
  try {
    check_and_time(ladder_);
    FAIL() << "nothing thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "version wrong: expected an error of at most 1e-05, got 0.001");
  }
  EXPECT_EQ(runs_, 1);
}

TEST_F(LadderTest, a_version_that_leaves_no_number_is_wrong) {
  add("nan", std::nan(""));
  EXPECT_THROW(check_and_time(ladder_), std::runtime_error);
}

TEST_F(LadderTest, a_version_that_does_nothing_is_wrong) {
  add("right", 0);
  ladder_.versions.push_back({"idle", [](StreamHandle) {}});
  EXPECT_THROW(check_and_time(ladder_), std::runtime_error);
}

class PrintedLadder : public testing::Test {
 protected:
  static std::string printed(bool json) {
    Ladder ladder;
    ladder.name = "matmul (2,3)";
    ladder.unit = "GFLOP/s";
    ladder.bound = 2.5e12;
    ladder.bound_name = "a measured GEMM";
    const std::vector<VersionReport> reports = {
        {.name = "plain", .error = 1.5e-7, .microseconds = 1234.5, .rate = 4e9, .share = 0.0016},
        {.name = "fast", .error = 0, .microseconds = 2, .rate = 1.25e12, .share = 0.5}};
    testing::internal::CaptureStdout();
    const MachineLoad load{.others_share = 0.25, .cores = 4, .threads = 3, .seconds = 2};
    print(ladder, reports, {"a machine", load}, json);
    std::fflush(stdout);
    return testing::internal::GetCapturedStdout();
  }
};

TEST_F(PrintedLadder, is_a_table) {
  const char* const table = R"(matmul (2,3)
a machine
bound: 2500.0 GFLOP/s, a measured GEMM

version                 error    median us    GFLOP/s  of bound
plain                 1.5e-07      1234.50        4.0      0.2%
fast                        0         2.00     1250.0     50.0%
)";
  EXPECT_EQ(printed(false), table);
}

TEST_F(PrintedLadder, is_one_object) {
  const char* const object = R"json({
  "ladder": "matmul (2,3)",
  "machine": "a machine",
  "unit": "GFLOP/s",
  "bound": 2500.0,
  "bound_name": "a measured GEMM",
  "versions": [
    {
      "name": "plain",
      "error": 1.5e-07,
      "us": 1234.5,
      "rate": 4.0,
      "share": 0.0016
    },
    {
      "name": "fast",
      "error": 0.0,
      "us": 2.0,
      "rate": 1250.0,
      "share": 0.5
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

std::vector<std::string> names_of_versions(const Ladder& ladder) {
  std::vector<std::string> names;
  for (const KernelVersion& version : ladder.versions) names.push_back(version.name);
  return names;
}

TEST(Ladders, say_what_they_compute) {
  using Names = std::vector<std::string>;
  open_device(0);
  const std::unique_ptr<Backend> backend = make_cuda_backend({});
  const Ladder layernorm = make_ladder("layernorm", *backend, {.large = false, .peak = {}});
  EXPECT_EQ(layernorm.name, "layernorm (64,192)");
  EXPECT_EQ(names_of_versions(layernorm),
            (Names{"v1 thread per row", "v2 block per row", "v3 warp per row", "v4 four floats"}));
  EXPECT_EQ(layernorm.work, 2 * 4 * 64 * 192) << "bytes read and written";
  EXPECT_EQ(layernorm.unit, "GB/s");
  EXPECT_GT(layernorm.bound, 1e5) << "bytes a second: 98,304 in less than a second";
  EXPECT_EQ(layernorm.bound_name, "a copy on the device");
  EXPECT_EQ(layernorm.tolerance, 1e-5);

  const Peak peak{.flops_per_second = 3e12, .name = "made up"};
  const Ladder matmul = make_ladder("matmul", *backend, {.large = false, .peak = peak});
  EXPECT_EQ(matmul.name, "matmul (72,48) · (48,192)");
  EXPECT_EQ(names_of_versions(matmul), (Names{"v1 naive", "v2 tiled", "v3 vectorised", "cublaslt"}));
  EXPECT_EQ(matmul.work, 2.0 * 72 * 48 * 192);
  EXPECT_EQ(matmul.unit, "GFLOP/s");
  EXPECT_EQ(matmul.bound, 3e12);
  EXPECT_EQ(matmul.bound_name, "made up");
  EXPECT_EQ(matmul.tolerance, 1e-5);
  EXPECT_EQ(
      make_ladder("matmul", *backend, {.large = false, .precision = Precision::tf32, .peak = peak}).tolerance,
      2e-3);
}

// If no version has written the output, the error is NaN. After a version has run, the error is small, but
// not 0.
TEST(Ladders, see_what_is_missing_or_wrong) {
  open_device(0);
  const std::unique_ptr<Backend> backend = make_cuda_backend({});
  const Peak peak{.flops_per_second = 3e12, .name = "made up"};
  const Stream stream;
  for (const char* name : {"layernorm", "matmul"}) {
    const Ladder ladder = make_ladder(name, *backend, {.large = false, .peak = peak});
    ladder.clear();
    EXPECT_TRUE(std::isnan(ladder.error())) << name;
    ladder.versions[0].run(stream);
    synchronize(stream);
    const double error = ladder.error();
    EXPECT_GT(error, 0) << name;
    EXPECT_LT(error, 1e-5) << name;
  }
}

TEST(Ladders, every_version_is_right) {
  open_device(0);
  const std::unique_ptr<Backend> backend = make_cuda_backend({});
  for (const char* name : {"layernorm", "matmul"}) {
    EXPECT_EQ(check_and_time(make_ladder(name, *backend, {.large = false, .peak = {}})).size(), 4u) << name;
  }
}

}  // namespace
}  // namespace stagegpt::gpu
