// Dropout: out[i] = x[i] / (1-p) if u[i] >= p, else 0, where u[i] is number element(i) of a Philox sequence:
// first_element + i, unless the tensor is a part of a larger one (op_types.h). The backward applies the same
// factors to gradients. The mask is not stored but computed again.
//
// Vectorised: threads take contiguous parts; u[i] depends only on its index.
#pragma once

#include <cstdint>

#include "common/backend/op_types.h"
#include "stage0_serial/kernels/grad_out.h"
#include "stage0_serial/parallel.h"

namespace stagegpt {

// The dropout with its position read from memory.
inline Dropout placed(const Dropout& dropout) {
  if (!dropout.position.defined()) return dropout;
  const std::int32_t* const position = dropout.position.data<std::int32_t>();
  Dropout placed = dropout;
  placed.key.step = static_cast<std::uint32_t>(position[0]);
  placed.first_element += position[1] * dropout.sequence_elements;
  return placed;
}

// The factor of element i: 0 or 1/(1-p).
template <class T>
T dropout_factor(const Dropout& dropout, std::int64_t i) {
  const float u = random_uniform(dropout.key, static_cast<std::uint64_t>(dropout.element(i)));
  return u >= static_cast<float>(dropout.p) ? static_cast<T>(1 / (1 - dropout.p)) : T(0);
}

// The factors of elements [begin, end); each Philox block is computed once.
template <class T>
void dropout_factors(T* factors, const Dropout& dropout, std::int64_t begin, std::int64_t end) {
  const T keep = static_cast<T>(1 / (1 - dropout.p));
  const float p = static_cast<float>(dropout.p);
  std::array<std::uint32_t, 4> words{};
  std::uint64_t block = ~std::uint64_t{0};
  for (std::int64_t i = begin; i < end; ++i) {
    const auto element = static_cast<std::uint64_t>(dropout.element(i));
    if (element / 4 != block) words = philox(dropout.key, block = element / 4);
    factors[i - begin] = uniform_of(words[element % 4]) >= p ? keep : T(0);
  }
}

namespace naive {

template <class T>
void dropout(GradOut<T> out, const T* x, const Dropout& dropout, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out.put(i, x[i] * dropout_factor<T>(dropout, i));
}

}  // namespace naive

namespace vectorised {

template <class T>
void dropout(const Parallel& parallel, GradOut<T> out, const T* x, const Dropout& dropout, std::int64_t n) {
  constexpr std::int64_t kPart = 1024;
  parallel.ranges(n, kPart, [=](std::int64_t begin, std::int64_t end) {
    float factors[kPart];
    dropout_factors(factors, dropout, begin, end);
    for (std::int64_t i = begin; i < end; ++i) out.put(i, widened(x[i]) * factors[i - begin]);
  });
}

}  // namespace vectorised
}  // namespace stagegpt
