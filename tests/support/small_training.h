// A small model on random tokens, and everything that a trainer needs.
#pragma once

#include "common/comm/self_communicator.h"
#include "common/model/gpt2.h"
#include "common/train/trainer.h"

namespace stagegpt::test {

inline constexpr std::int64_t kSmallVocabulary = 37, kSmallT = 17;

inline std::vector<std::int32_t> random_tokens(int n) {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < n; ++i)
    tokens.push_back(static_cast<std::int32_t>(random_word({5, 0, 0}, i) % kSmallVocabulary));
  return tokens;
}

// A configuration with a constant learning rate.
inline TrainerConfig small_config(std::int64_t batch_size, std::int64_t grad_accumulation) {
  TrainerConfig config;
  config.batch_size = batch_size;
  config.grad_accumulation = grad_accumulation;
  config.schedule = {
      .kind = LrSchedule::Kind::constant, .learning_rate = 1e-3, .min_lr = 0, .warmup_steps = 0, .steps = 1};
  return config;
}

struct SmallTraining {
  SmallTraining(std::unique_ptr<Backend> on, const TrainerConfig& config, std::vector<std::int32_t> text,
                double dropout = 0, DType activations = DType::f32)
      : SmallTraining(std::move(on), config, std::move(text), model_config(dropout), activations) {}
  SmallTraining(std::unique_ptr<Backend> on, const TrainerConfig& config, std::vector<std::int32_t> text,
                const Gpt2Config& of_model, DType activations = DType::f32)
      : tokens(std::move(text)),
        backend(std::move(on)),
        model(*backend, of_model, DType::f32, /*ranks=*/1, Purpose::training, activations),
        data(tokens, kSmallT, config.seed),
        trainer(*backend, communicator, sync, model, data, config) {
    model.parameters().initialize(config.seed);
    model.parameters().update_shadow();
  }

  static Gpt2Config model_config(double dropout) {
    Gpt2Config config;
    config.vocab_size = kSmallVocabulary;
    config.block_size = 20;
    config.n_layer = 2;
    config.n_head = 3;
    config.n_embd = 48;
    config.dropout = dropout;
    return config;
  }
  std::vector<float> weights() { return to_host<float>(*backend, model.parameters().weights()); }
  std::vector<float> grads() { return to_host<float>(*backend, model.parameters().grads()); }

  std::vector<std::int32_t> tokens;
  std::unique_ptr<Backend> backend;
  SelfCommunicator communicator;
  NoGradientSync sync;
  Gpt2 model;
  DataLoader data;
  Trainer trainer;
};

}  // namespace stagegpt::test
