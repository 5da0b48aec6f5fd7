// Tests of independence. Each compares a statistic with its distribution for random numbers. Seeds are fixed,
// so that results are reproducible.
#pragma once

#include <span>

namespace stagegpt::test {

// The number of standard deviations that a normal variable exceeds, on either side, with probability 1e-6.
inline constexpr double kLimit = 4.9;

// The correlation of two sequences of equal length n, times √n: about N(0, 1) if they are independent.
double correlation(std::span<const double> a, std::span<const double> b);
// The same for a sequence and itself `lag` elements later.
double correlation_at(std::span<const double> a, std::size_t lag);

// The mean of x^power.
double moment(std::span<const double> x, int power);

// The deviation of χ² = Σ (count - expected)²/expected, over cells of equal probability, from its mean, in
// standard deviations. It has n = cells - 1 degrees of freedom: mean n, variance 2n.
double chi_squared_deviation(std::span<const int> counts);
// Exceeded with probability 1e-6 at 30 degrees of freedom, less at more: Wilson and Hilferty's approximation
// (1931) gives (χ² - 30)/√60 = 6.8.
inline constexpr double kChiSquaredLimit = 6.8;

}  // namespace stagegpt::test
