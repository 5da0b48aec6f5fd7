#include "common/tensor/quantised_rows.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "common/backend/ops/elementwise.h"
#include "common/random/normal.h"
#include "stage0_serial/cpu_backend.h"

namespace stagegpt::test {
namespace {

std::vector<float> widened(const std::vector<float>& row) {
  const auto I = std::ssize(row);
  std::vector<std::int8_t> narrow(static_cast<std::size_t>(quantised_width(I)));
  quantise_row(narrow.data(), row.data(), I);
  std::vector<float> wide(row.size());
  widen_row(wide.data(), narrow.data(), I);
  return wide;
}

TEST(QuantisedRows, DifferByHalfAScaleAtMost) {
  std::vector<float> row(1000);
  draw_normal({1, 2, 3}, 0, 0, 0.02, row);
  row[17] = -0.5F;  // the largest: scale = 0.5 / 127
  const std::vector<float> wide = widened(row);
  EXPECT_FLOAT_EQ(wide[17], -0.5F);
  double squares = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const double difference = wide[i] - row[i];
    EXPECT_LE(std::abs(difference), 0.5 / 127 / 2 * (1 + 1e-5)) << i;
    squares += difference * difference;
  }
  // Rounding errors are uniform: their standard deviation is scale / √12.
  EXPECT_NEAR(std::sqrt(squares / 1000), 0.5 / 127 / std::sqrt(12.0), 0.05 * 0.5 / 127 / std::sqrt(12.0));
}

TEST(QuantisedRows, OfZerosStayZerosAndWhatIsNotFiniteBecomesNaN) {
  EXPECT_EQ(widened({0, 0, 0}), (std::vector<float>{0, 0, 0}));
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float value : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    for (const float result : widened({1, value, 2})) EXPECT_TRUE(std::isnan(result)) << value;
  }
}

TEST(QuantisedRows, OfAnOpAreThoseOfTheDefinition) {
  const auto backend = make_cpu_backend(2);
  const std::vector<float> matrix = {1, -2, 4, 8, 0.5F, 0};
  const Tensor out = backend->allocate(DType::i8, {2, quantised_width(3)});
  backend->run(QuantiseRows{out, to_device<float>(*backend, {2, 3}, matrix)});
  const std::vector<std::int8_t> bytes = to_host<std::int8_t>(*backend, out);
  EXPECT_EQ((std::array{bytes[0], bytes[1], bytes[2]}), (std::array<std::int8_t, 3>{32, -64, 127}));
  EXPECT_FLOAT_EQ(scale_of(bytes.data(), 3), 4.0F / 127);
  EXPECT_EQ((std::array{bytes[7], bytes[8], bytes[9]}), (std::array<std::int8_t, 3>{127, 8, 0}));
  EXPECT_FLOAT_EQ(scale_of(bytes.data() + 7, 3), 8.0F / 127);
}

}  // namespace
}  // namespace stagegpt::test
