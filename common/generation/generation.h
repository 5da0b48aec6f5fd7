// Writing text with a model.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "common/comm/communicator.h"
#include "common/generation/sampler.h"
#include "common/model/kv_cache.h"

namespace stagegpt {

// What a model sees of a text that outgrows it. Up to block_size tokens all of them; then the first half is
// dropped, and again whenever the context is full: of n tokens the first window_begin(n) are unseen, the
// smallest multiple of ⌈block_size/2⌉ that leaves at most block_size. Positions are learned, so that what
// stays is computed anew at each drop, and only then.
std::int64_t window_begin(std::int64_t n, std::int64_t block_size);

// A text and what the model makes of it. Only new tokens are computed.
class Context {
 public:
  // Where there are several ranks, all of them write the same text.
  Context(Backend& backend, const Gpt2& model, Communicator& communicator)
      : backend_(backend), model_(model), communicator_(communicator), cache_(backend, model) {}

  // Logits (V) of what follows `tokens`: those of the last time and at least one more, or another text. The
  // mean over ranks; throws AgreedFailure, naming a rank, where they differ by more than rounding.
  std::vector<float> next_logits(std::span<const std::int32_t> tokens);
  RankGroup& group() const { return communicator_.group(); }

 private:
  std::vector<float> mean_over_ranks(const Tensor& logits);

  Backend& backend_;
  const Gpt2& model_;
  Communicator& communicator_;
  KvCache cache_;
  std::vector<std::int32_t> cached_;  // the tokens in the cache
};

// Draws up to `count` tokens after `prompt` (at least one token) and passes each to `emit`, until that
// returns false. The i-th draw of sample `sample` depends on the seed, on both numbers and on the logits.
// Rank 0 draws, and its `emit` decides; the others follow. Throws AgreedFailure where the logits are not
// finite.
void generate(Context& context, std::vector<std::int32_t> prompt, std::int64_t count,
              const SamplingConfig& config, std::uint32_t sample,
              const std::function<bool(std::int32_t)>& emit);

}  // namespace stagegpt
