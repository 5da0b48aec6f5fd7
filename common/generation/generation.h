// Text generation with a model.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "common/comm/communicator.h"
#include "common/generation/sampler.h"
#include "common/model/kv_cache.h"
#include "common/profile/profile.h"

namespace stagegpt {

// The beginning of the context window of a text of n tokens: the model sees tokens [window_begin(n), n).
// While n is at most block_size, this is the whole text. Whenever the context is full, its first half is
// dropped: window_begin(n) is the smallest multiple of ⌈block_size/2⌉ that leaves at most block_size tokens.
// Because positions are learned, the remaining tokens are recomputed then, but only then.
std::int64_t window_begin(std::int64_t n, std::int64_t block_size);

// The state of a generation: a text and its KV cache. Only new tokens are computed.
class Context {
 public:
  // With several ranks, all of them generate the same text.
  Context(Backend& backend, const LanguageModel& model, Communicator& communicator)
      : backend_(backend), model_(model), communicator_(communicator), cache_(backend, model) {}

  // The logits (V) of the token after `tokens`. `tokens` are those of the previous call plus at least one
  // token, or a new text. Returns the mean over ranks. Throws AgreedFailure, which names a rank, if the
  // logits of ranks differ by more than rounding errors.
  std::vector<float> next_logits(std::span<const std::int32_t> tokens);
  // The possible tokens after them, as candidates() of these logits on rank 0; nothing on other ranks. Where
  // few logits decide, only they are copied from the backend. Throws AgreedFailure if logits are not finite.
  std::vector<Candidate> next_candidates(std::span<const std::int32_t> tokens, const SamplingConfig& config);
  RankGroup& group() const { return communicator_.group(); }

 private:
  Tensor own_logits(std::span<const std::int32_t> tokens);  // (V)
  std::vector<float> mean_over_ranks(const Tensor& logits);

  Backend& backend_;
  const LanguageModel& model_;
  Communicator& communicator_;
  KvCache cache_;
  std::vector<std::int32_t> cached_;  // the tokens in the cache
};

// Samples up to `count` tokens after `prompt` (at least one token) and passes each to `emit`, until `emit`
// returns false. Draw i depends on the seed, on `sample`, on i and on the logits. Rank 0 draws, and the
// result of its `emit` applies to all ranks. Throws AgreedFailure if the logits are not finite. A profile, if
// there is one, records some of the tokens; the first one includes the processing of the prompt.
void generate(Context& context, std::vector<std::int32_t> prompt, std::int64_t count,
              const SamplingConfig& config, std::uint32_t sample,
              const std::function<bool(std::int32_t)>& emit, Profile* profile = nullptr);

}  // namespace stagegpt
