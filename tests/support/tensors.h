// Numbers for tests. On the host they are f64, rounded to f32, so that all backends and dtypes compute with
// the same numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/backend/backend.h"
#include "common/checkpoint/parameter_values.h"

namespace stagegpt::test {

using Values = std::vector<double>;

// `n` normal numbers with the given mean and standard deviation; each `stream` gives different numbers.
Values random_values(std::uint64_t seed, std::uint32_t stream, std::int64_t n, double scale = 1,
                     double mean = 0);
// `n` integers in [0, range).
std::vector<std::int32_t> random_ids(std::uint64_t seed, std::uint32_t stream, std::int64_t n,
                                     std::int32_t range);

// The values as elements of `dtype`: rounded if that is bf16, otherwise as they are.
Values rounded_to(DType dtype, Values values);

Tensor to_tensor(Backend& backend, DType dtype, Shape shape, const Values& values);
Tensor to_tensor(Backend& backend, Shape shape, const std::vector<std::int32_t>& values);
// Overwrites a floating-point tensor.
void set_values(Backend& backend, const Tensor& out, const Values& values);
Values to_values(Backend& backend, const Tensor& tensor);
// The only element of a tensor.
double to_value(Backend& backend, const Tensor& tensor);

// The elements of parameter i of a table.
std::vector<float> elements_of(const ParameterValues& values, const ParameterTable& table, std::size_t i);

}  // namespace stagegpt::test
