// A ladder's rungs are checked, then timed.
#include "stage2_cuda/ladder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "stage2_cuda/cuda_backend.h"
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
    ladder_.rungs.push_back({name, [this, error](StreamHandle) {
                               left_ = error;
                               ++runs_;
                             }});
  }

  Ladder ladder_;
  double left_ = 0;
  int runs_ = 0;
};

TEST_F(LadderTest, rungs_are_timed_in_order) {
  add("plain", 1e-7);
  add("fast", 2e-7);
  const std::vector<RungReport> reports = climb(ladder_);
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].name, "plain");
  EXPECT_EQ(reports[1].error, 2e-7);
  EXPECT_GT(reports[1].microseconds, 0);
  EXPECT_DOUBLE_EQ(reports[1].rate, 1e9 / (reports[1].microseconds / 1e6));
  EXPECT_DOUBLE_EQ(reports[1].share, reports[1].rate / 1e12);
}

TEST_F(LadderTest, a_wrong_rung_is_not_timed) {
  add("wrong", 1e-3);
  try {
    climb(ladder_);
    FAIL() << "nothing thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("rung wrong: error 0.001"), std::string::npos) << error.what();
  }
  EXPECT_EQ(runs_, 1);
}

TEST_F(LadderTest, a_rung_that_leaves_no_number_is_wrong) {
  add("nan", std::nan(""));
  EXPECT_THROW(climb(ladder_), std::runtime_error);
}

TEST_F(LadderTest, a_rung_that_does_nothing_is_wrong) {
  add("right", 0);
  ladder_.rungs.push_back({"idle", [](StreamHandle) {}});
  EXPECT_THROW(climb(ladder_), std::runtime_error);
}

TEST(Ladders, every_rung_is_right) {
  open_device(0);
  const std::unique_ptr<Backend> backend = make_cuda_backend({});
  for (const char* name : {"layernorm", "matmul"}) {
    EXPECT_EQ(climb(make_ladder(name, *backend, {.large = false, .peak = {}})).size(), 4u) << name;
  }
}

}  // namespace
}  // namespace stagegpt::gpu
