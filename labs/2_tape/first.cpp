// The first check of lab 2 (HANDOUT.md, step 4): adamw_elements, three steps of two elements.
#include <cmath>
#include <cstdio>
#include <exception>

#include "stage0_serial/kernels/adamw.h"

using namespace stagegpt;

int main() {
  double w[] = {1, -2}, m[] = {0, 0}, v[] = {0, 0};
  const double gradients[][2] = {{0.5, -3}, {0.1, 0}, {-0.4, 2}};
  // torch.optim.AdamW([w], lr=0.1, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1), in float64
  const double expected[][2] = {{0.8900000020000000, -1.8800000003333333},
                                {0.8006275938060011, -1.7940419859184489},
                                {0.7832423502295456, -1.7684645194329072}};
  for (int t = 0; t < 3; ++t) {
    AdamWStep step{.learning_rate = 0.1, .beta1 = 0.9, .beta2 = 0.99, .step = t + 1};
    try {
      adamw_elements(w, m, v, gradients[t], AdamWFactors<double>(step, 1.0), 0.1, 0, 2);
    } catch (const std::exception& error) {
      return std::puts(error.what()), 1;
    }
    for (int i = 0; i < 2; ++i) {
      if (std::abs(w[i] - expected[t][i]) < 1e-12) continue;
      return std::printf("step %d: w[%d] is %.12f, not %.12f\n", t + 1, i, w[i], expected[t][i]), 1;
    }
  }
  std::puts("right: adamw_elements");
}
