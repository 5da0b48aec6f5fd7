#include "common/profile/random_tensor.h"

#include "common/random/philox.h"

namespace stagegpt {

Tensor random_tensor(Backend& backend, Shape shape, std::uint32_t which) {
  constexpr std::size_t kPeriod = 1 << 16;
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = i < kPeriod ? random_uniform({.step = which}, i) - 0.5f : values[i - kPeriod];
  }
  return to_device<float>(backend, shape, values);
}

}  // namespace stagegpt
