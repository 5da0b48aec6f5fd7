#include "common/train/generation.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace stagegpt {
namespace {

// Draws from softmax(logits / temperature), with u uniform in [0, 1).
std::int32_t sample(std::span<const float> logits, double temperature, double u) {
  const auto best = std::ranges::max_element(logits);
  if (temperature == 0) return static_cast<std::int32_t>(best - logits.begin());
  std::vector<double> cumulative;
  double sum = 0;
  for (float logit : logits) cumulative.push_back(sum += std::exp((logit - *best) / temperature));
  const auto drawn = std::ranges::upper_bound(cumulative, u * sum);
  return static_cast<std::int32_t>(std::min(drawn, cumulative.end() - 1) - cumulative.begin());
}

}  // namespace

void generate(Backend& backend, const Gpt2& model, std::vector<std::int32_t> prompt, std::int64_t count,
              const SamplingConfig& config, const std::function<void(std::int32_t)>& emit) {
  check(!prompt.empty(), "generate: expected a prompt of at least one token");
  const std::int64_t V = model.config().vocab_size, padded_V = model.config().padded_vocab_size();
  std::vector<std::int32_t>& tokens = prompt;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t T = std::min(std::ssize(tokens), model.config().block_size);
    const Tensor ids =
        to_device<std::int32_t>(backend, {1, T}, std::span(tokens).last(static_cast<std::size_t>(T)));
    Tape tape(backend, Tape::Mode::inference);
    const Tensor logits = model.logits(tape, ids).value();  // (1,T,Vp)
    const auto row = to_host<float>(backend, logits.slice((T - 1) * padded_V, {V}));
    const RandomKey key{config.seed, stream_id(RandomStream::sample), 0};
    tokens.push_back(sample(row, config.temperature, random_uniform(key, static_cast<std::uint64_t>(i))));
    emit(tokens.back());
  }
}

}  // namespace stagegpt
