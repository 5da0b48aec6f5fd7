#include "tools/compare/softmax_invariance.h"

#include <algorithm>

namespace stagegpt {
namespace {

// One key channel of one sequence: T elements, `stride` apart.
void remove_mean(float* channel, std::int64_t T, std::int64_t stride) {
  double sum = 0;
  for (std::int64_t t = 0; t < T; ++t) sum += channel[t * stride];
  const double mean = sum / static_cast<double>(T);
  for (std::int64_t t = 0; t < T; ++t) channel[t * stride] = static_cast<float>(channel[t * stride] - mean);
}

}  // namespace

void remove_softmax_invariant(std::string_view tensor, const std::vector<std::int64_t>& shape,
                              std::vector<float>& values) {
  const std::int64_t width = shape.back(), C = width / 3;
  if (tensor.ends_with(".attn.c_attn.bias") && shape.size() == 1) {
    std::fill(values.begin() + C, values.begin() + 2 * C, 0.0f);
  } else if (tensor.starts_with("the output of h.") && tensor.ends_with(".attn.c_attn (linear)") &&
             shape.size() == 3) {
    const std::int64_t T = shape[1], sequence = T * width;
    for (auto begin = values.begin(); begin != values.end(); begin += sequence) {
      for (std::int64_t c = C; c < 2 * C; ++c) remove_mean(&begin[c], T, width);
    }
  }
}

}  // namespace stagegpt
