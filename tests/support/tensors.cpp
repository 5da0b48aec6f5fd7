#include "tests/support/tensors.h"

#include "common/random/normal.h"
#include "common/tensor/half_floats.h"

namespace stagegpt::test {

Values random_values(std::uint64_t seed, std::uint32_t stream, std::int64_t n, double scale, double mean) {
  std::vector<float> values(static_cast<std::size_t>(n));
  draw_normal({seed, stream, 0}, 0, mean, scale, values);
  return {values.begin(), values.end()};
}

std::vector<std::int32_t> random_ids(std::uint64_t seed, std::uint32_t stream, std::int64_t n,
                                     std::int32_t range) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<std::int32_t>(random_uniform({seed, stream, 1}, i) * static_cast<float>(range));
  }
  return ids;
}

Values rounded_to(DType dtype, Values values) {
  if (dtype != DType::bf16) return values;
  for (double& value : values) value = float_of_bf16(bf16_of_float(static_cast<float>(value)));
  return values;
}

Tensor to_tensor(Backend& backend, DType dtype, Shape shape, const Values& values) {
  Tensor out = backend.allocate(dtype, shape);
  set_values(backend, out, values);
  return out;
}

Tensor to_tensor(Backend& backend, Shape shape, const std::vector<std::int32_t>& values) {
  return to_device<std::int32_t>(backend, shape, values);
}

void set_values(Backend& backend, const Tensor& out, const Values& values) {
  if (out.dtype() == DType::f64) return upload<double>(backend, out, values);
  if (out.dtype() == DType::bf16) {
    std::vector<Bf16> halves;
    for (const double value : values) halves.push_back({bf16_of_float(static_cast<float>(value))});
    return upload<Bf16>(backend, out, halves);
  }
  upload<float>(backend, out, std::vector<float>(values.begin(), values.end()));
}

Values to_values(Backend& backend, const Tensor& tensor) {
  check(tensor.defined(), "to_values: expected a tensor, got none");
  if (tensor.dtype() == DType::f64) return to_host<double>(backend, tensor);
  const std::vector<float> values = floats_to_host(backend, tensor);
  return {values.begin(), values.end()};
}

double to_value(Backend& backend, const Tensor& tensor) {
  check(tensor.numel() == 1, "to_value: ", tensor.shape(), " has more than one element");
  return to_values(backend, tensor)[0];
}

std::vector<float> elements_of(const ParameterValues& values, const ParameterTable& table, std::size_t i) {
  std::vector<float> elements(static_cast<std::size_t>(table[i].shape.numel()));
  values(i, 0, elements);
  return elements;
}

}  // namespace stagegpt::test
