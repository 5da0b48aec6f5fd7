// Initial weights, compared with independently computed values and tested for independence.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "common/base/json.h"
#include "common/model/parameters.h"
#include "stage0_serial/cpu_backend.h"
#include "tests/random/reference.h"
#include "tests/support/statistics.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {
namespace {

// The same table as in make_random.py. The first parameter has more than 2^20 elements, in rows of odd
// length.
ParameterTable table() {
  ParameterTable table;
  table.add({"large", {4099, 259}, 4224, 0, 0.5});
  table.add({"scale", {7}, 7, 1, 0});
  table.add({"next", {5, 3}, 5, 0.25, 2});
  return table;
}

class InitialWeights : public testing::Test {
 protected:
  // Caches the weights for each seed and dtype, because drawing a million numbers is slow.
  const Values& drawn(std::uint64_t seed, const std::string& name, DType dtype = DType::f32) {
    std::map<std::string, Values>& drawn = drawn_[{seed, dtype}];
    if (drawn.empty()) {
      Parameters parameters(*backend_, table(), dtype, 1, Purpose::inference);
      parameters.initialize(seed);
      for (const Parameter& row : parameters.table().rows()) {
        Values& values = drawn[row.name] = to_values(*backend_, parameters.var(row.name).value());
        values.resize(static_cast<std::size_t>(row.shape.numel()));
      }
    }
    return drawn.at(name);
  }

  static inline std::map<std::pair<std::uint64_t, DType>, std::map<std::string, Values>> drawn_;
  const std::unique_ptr<Backend> backend_ = make_cpu_backend(2);
};

// A different factor for each element i, so that the weighted sum depends on the order of the elements.
double pattern(std::uint64_t i) {
  return static_cast<double>(i * 2654435761u % (1ull << 32)) * 0x1p-32 - 0.5;
}

TEST_F(InitialWeights, AreThoseOfTheReference) {
  for (const auto& expected : random_reference("weights")) {
    const auto name = expected["name"].get<std::string>();
    const Values& values = drawn(expected["seed"], name);
    SCOPED_TRACE(expected["seed"].dump() + ' ' + name);
    for (const auto& [i, value] : expected["elements"].get<std::vector<std::pair<std::size_t, double>>>()) {
      EXPECT_NEAR(values.at(i), value, 0x1p-23 * std::abs(value)) << "element " << i;
    }
    double sum = 0, pattern_sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      sum += values[i];
      pattern_sum += pattern(i) * values[i];
    }
    // Rounding to f32 has a relative error of at most 2^-25. The errors of the sum grow as in a random walk.
    const double limit = 10 * 0x1p-25 * std::sqrt(static_cast<double>(values.size()));
    EXPECT_NEAR(sum, expected["sum"], limit);
    EXPECT_NEAR(pattern_sum, expected["pattern_sum"], limit);
  }
}

// The standard error of a moment of n numbers from N(0, 1) is √(variance / n).
TEST_F(InitialWeights, AreNormal) {
  Values values = drawn(1, "large", DType::f64);
  for (double& value : values) value /= 0.5;
  const auto n = static_cast<double>(values.size());
  EXPECT_NEAR(moment(values, 1), 0, kLimit * std::sqrt(1 / n));
  EXPECT_NEAR(moment(values, 2), 1, kLimit * std::sqrt(2 / n));
  EXPECT_NEAR(moment(values, 3), 0, kLimit * std::sqrt(15 / n));
  EXPECT_NEAR(moment(values, 4), 3, kLimit * std::sqrt(96 / n));
}

TEST_F(InitialWeights, AreIndependentOfTheirNeighbours) {
  const Values& values = drawn(1, "large", DType::f64);
  Values squares;
  for (const double value : values) squares.push_back(value * value);
  // Lags within a block of random words, to the next block, to the next row, and between the parts of
  // threads.
  for (const std::size_t lag : {1, 2, 3, 4, 5, 8, 16, 259, 1 << 12, 1 << 16, 1 << 18}) {
    EXPECT_LT(std::abs(correlation_at(values, lag)), kLimit) << lag;
    EXPECT_LT(std::abs(correlation_at(squares, lag)), kLimit) << lag;
  }
}

TEST_F(InitialWeights, AreIndependentOfOtherParametersAndSeeds) {
  ParameterTable alike;
  for (const char* name : {"a", "b", "c"}) alike.add({name, {256, 64}, 256, 0, 1});
  std::vector<Values> all;
  for (const std::uint64_t seed : {1ull, 2ull, 1 + (1ull << 32)}) {
    Parameters parameters(*backend_, alike, DType::f64, 1, Purpose::inference);
    parameters.initialize(seed);
    for (std::size_t i = 0; i < 3; ++i) all.push_back(to_values(*backend_, parameters.var(i).value()));
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j)
      EXPECT_LT(std::abs(correlation(all[i], all[j])), kLimit) << i << ' ' << j;
  }
}

}  // namespace
}  // namespace stagegpt::test
