#include "common/train/generation.h"

#include <algorithm>
#include <cmath>

#include "common/random/philox.h"

namespace stagegpt {

std::int64_t window_begin(std::int64_t n, std::int64_t block_size) {
  if (n <= block_size) return 0;
  const std::int64_t half = (block_size + 1) / 2;
  return (n - block_size + half - 1) / half * half;
}

std::vector<float> Context::next_logits(std::span<const std::int32_t> tokens) {
  check(!tokens.empty(), "generation: expected at least one token");
  const Gpt2Config& config = model_.config();
  const auto window =
      tokens.subspan(static_cast<std::size_t>(window_begin(std::ssize(tokens), config.block_size)));
  const bool goes_on =
      cached_.size() < window.size() && std::ranges::equal(cached_, window.first(cached_.size()));
  if (!goes_on) {
    cache_.clear();
    cached_.clear();
  }
  const auto added = window.subspan(cached_.size());
  const Tensor ids = to_device<std::int32_t>(backend_, {1, std::ssize(added)}, added);
  const Tensor logits = model_.next_logits(backend_, ids, cache_);  // (1,1,Vp)
  cached_.insert(cached_.end(), added.begin(), added.end());
  return to_host<float>(backend_, logits.slice(0, {config.vocab_size}));
}

void generate(Context& context, std::vector<std::int32_t> prompt, std::int64_t count,
              const SamplingConfig& config, std::uint32_t sample,
              const std::function<bool(std::int32_t)>& emit) {
  std::vector<std::int32_t>& tokens = prompt;
  const RandomKey key{config.seed, stream_id(RandomStream::sample), sample};
  for (std::int64_t i = 0; i < count; ++i) {
    const std::vector<float> logits = context.next_logits(tokens);
    if (!std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); })) {
      throw std::runtime_error(concat("the model's logits behind token ", tokens.size(), " are not finite"));
    }
    tokens.push_back(
        draw(candidates(logits, tokens, config), random_uniform(key, static_cast<std::uint64_t>(i))));
    if (!emit(tokens.back())) return;
  }
}

}  // namespace stagegpt
