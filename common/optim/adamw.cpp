#include "common/optim/adamw.h"

#include "common/model/zero_arena.h"

namespace stagegpt {

AdamW::AdamW(Backend& backend, const Parameters& parameters, const AdamWConfig& config)
    : AdamW(backend, parameters, config, {0, parameters.weights().numel()}) {}

AdamW::AdamW(Backend& backend, const Parameters& parameters, const AdamWConfig& config, ArenaRange owned)
    : backend_(backend),
      config_(config),
      owned_(owned),
      ranges_(parameters.table().decay_ranges(config.weight_decay, owned)),
      moments_{zero_arena(backend, parameters.weights().dtype(), owned.size()),
               zero_arena(backend, parameters.weights().dtype(), owned.size())},
      squared_norm_(backend.zeros(DType::f64, {1})) {}

const Tensor& AdamW::measure_norm(const Parameters& parameters) {
  backend_.squared_norm(squared_norm_, parameters.grads().slice(owned_.begin, {owned_.size()}));
  return squared_norm_;
}

void AdamW::update(const Parameters& parameters, double learning_rate, std::int64_t step) {
  const Shape shape{owned_.size()};
  backend_.adamw(parameters.weights().slice(owned_.begin, shape), moments_.m, moments_.v,
                 parameters.grads().slice(owned_.begin, shape), squared_norm_, ranges_,
                 {.learning_rate = learning_rate,
                  .beta1 = config_.beta1,
                  .beta2 = config_.beta2,
                  .eps = config_.eps,
                  .step = step + 1,
                  .max_grad_norm = config_.grad_clip});
}

}  // namespace stagegpt
