#include "common/optim/adamw.h"

#include <cmath>

namespace stagegpt {

AdamW::AdamW(Backend& backend, const Parameters& parameters, const AdamWConfig& config)
    : backend_(backend),
      config_(config),
      ranges_(parameters.table().decay_ranges(config.weight_decay)),
      m_(backend.zeros(parameters.weights().dtype(), parameters.weights().shape())),
      v_(backend.zeros(m_.dtype(), m_.shape())),
      squared_norm_(backend.zeros(DType::f64, {1})) {}

void AdamW::update(const Parameters& parameters, double learning_rate, std::int64_t step) {
  backend_.squared_norm(squared_norm_, parameters.grads());
  backend_.adamw(parameters.weights(), m_, v_, parameters.grads(), squared_norm_, ranges_,
                 {.learning_rate = learning_rate,
                  .beta1 = config_.beta1,
                  .beta2 = config_.beta2,
                  .eps = config_.eps,
                  .step = step + 1,
                  .max_grad_norm = config_.grad_clip});
}

double AdamW::grad_norm() const { return std::sqrt(to_host<double>(backend_, squared_norm_)[0]); }

}  // namespace stagegpt
