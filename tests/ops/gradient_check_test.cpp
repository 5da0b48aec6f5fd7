// Compares the gradients of every op case with central differences in f64, on the plain kernels. These
// kernels are the reference of the other op tests. The step and the expected error are explained at
// kDifferenceStep in tolerance.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "stage0_serial/naive_backend.h"
#include "tests/ops/op_run.h"
#include "tests/support/difference.h"
#include "tests/support/tolerance.h"

namespace stagegpt::test {
namespace {

// The elements to test: all elements of a small gradient. Of a larger gradient, the kLargest elements of
// largest absolute value and kRandom random elements.
std::vector<std::size_t> elements_to_try(const Values& grad, std::uint32_t stream) {
  constexpr std::size_t kLargest = 8, kRandom = 16;
  std::vector<std::size_t> elements(grad.size());
  std::iota(elements.begin(), elements.end(), 0);
  if (grad.size() <= kLargest + kRandom) return elements;
  std::ranges::partial_sort(elements, elements.begin() + kLargest, std::ranges::greater{},
                            [&](std::size_t i) { return std::abs(grad[i]); });
  elements.resize(kLargest);
  for (std::size_t i = 0; i < kRandom; ++i) elements.push_back(random_word({1, stream, 0}, i) % grad.size());
  return elements;
}

// dL/dx of one element by central differences. The outputs are subtracted before they are summed, so that
// outputs that do not change add no rounding error.
double difference_quotient(OpRun& run, std::size_t input, std::size_t element) {
  Values x = run.input(input);
  auto outputs_at = [&](double offset) {
    x[element] = run.input(input)[element] + offset;
    run.set_input(input, x);
    return run.infer();
  };
  const std::vector<Values> right = outputs_at(kDifferenceStep), left = outputs_at(-kDifferenceStep);
  run.set_input(input, run.input(input));
  double difference = 0;
  for (std::size_t i = 0; i < right.size(); ++i) {
    const Values r = run.direction(0, i);
    for (std::size_t j = 0; j < r.size(); ++j) difference += r[j] * (right[i][j] - left[i][j]);
  }
  return difference / (2 * kDifferenceStep);
}

// The shape of the elements that were tried: the input's, if all were.
Shape shape_of(const Values& tried, const Shape& input) {
  const auto count = static_cast<std::int64_t>(tried.size());
  return count == input.numel() ? input : Shape{count};
}

class GradientCheck : public testing::TestWithParam<OpCase> {};

// Compares the gradients that `run` has with central differences.
void check_gradients(OpRun& run, std::size_t inputs) {
  for (std::size_t i = 0; i < inputs; ++i) {
    if (!run.differentiable(i)) continue;
    const Values grad = run.grad(i);
    Values analytic, numeric;
    for (const std::size_t element : elements_to_try(grad, static_cast<std::uint32_t>(i))) {
      analytic.push_back(grad[element]);
      numeric.push_back(difference_quotient(run, i, element));
    }
    const double error = relative_error(numeric, analytic);
    EXPECT_LE(error, kGradientCheckLimit)
        << "gradient of input " << i << ", against central differences: "
        << describe_difference(analytic, numeric, shape_of(analytic, run.input_shape(i)),
                               kGradientCheckLimit);
    testing::Test::RecordProperty(concat("error_", i), concat(error));
  }
}

TEST_P(GradientCheck, backward_is_the_derivative_of_forward) {
  const std::unique_ptr<Backend> backend = make_naive_backend();
  OpRun run(*backend, DType::f64, GetParam(), /*seed=*/0);
  run.step();
  check_gradients(run, GetParam().reals.size());
}

class GradientCheckFromOutputs : public testing::TestWithParam<OpCase> {};

TEST_P(GradientCheckFromOutputs, backward_is_the_derivative_of_forward) {
  const std::unique_ptr<Backend> backend = make_naive_backend();
  OpRun run(*backend, DType::f64, GetParam(), /*seed=*/0);
  run.step_from_outputs();
  check_gradients(run, GetParam().reals.size());
}

std::vector<OpCase> chains() {
  std::vector<OpCase> cases = op_cases();
  std::erase_if(cases, [](const OpCase& op) { return !op.name.starts_with("chain"); });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Ops, GradientCheck, testing::ValuesIn(op_cases()),
                         [](const auto& row) { return row.param.name; });
INSTANTIATE_TEST_SUITE_P(Ops, GradientCheckFromOutputs, testing::ValuesIn(chains()),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace stagegpt::test
