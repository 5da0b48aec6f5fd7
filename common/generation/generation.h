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
#include "common/random/philox.h"

namespace stagegpt {

// The beginning of the context window of a text of n tokens: the model sees tokens [window_begin(n), n).
// While n is at most block_size, this is the whole text. Whenever the context is full, its first half is
// dropped: window_begin(n) is the smallest multiple of ⌈block_size/2⌉ that leaves at most block_size tokens.
// Because positions are learned, the remaining tokens are recomputed then, but only then.
std::int64_t window_begin(std::int64_t n, std::int64_t block_size);

using Tokens = std::vector<std::int32_t>;

// The state of a generation: texts that grow together, and their KV cache. Only new tokens are computed, for
// all texts in one pass, which reads the weights once.
class Context {
 public:
  // With several ranks, all of them generate the same texts.
  Context(Backend& backend, const LanguageModel& model, Communicator& communicator, std::int64_t texts = 1)
      : backend_(backend), model_(model), communicator_(communicator), cache_(backend, model, texts) {}

  // The logits (V) of the token after each text. All texts have the same length. They are those of the
  // previous call plus at least one token each, or new ones. Returns the mean over ranks. Throws
  // AgreedFailure, which names a rank, if the logits of ranks differ by more than rounding errors.
  std::vector<std::vector<float>> next_logits(std::span<const Tokens> texts);
  // What decides about the token after each text, which draw `i` of samples from `first_sample` on chooses.
  // Where the backend can draw it, or where few logits decide, only the token or these are copied.
  std::vector<NextLogits> next(std::span<const Tokens> texts, const SamplingConfig& config,
                               std::uint32_t first_sample, std::int64_t i);
  std::int64_t texts() const { return cache_.texts(); }
  RankGroup& group() const { return communicator_.group(); }

 private:
  Tensor own_logits(std::span<const Tokens> texts);  // (B,1,Vp)
  std::vector<NextLogits> largest(const Tensor& logits, std::int64_t k, std::int64_t vocabulary);
  std::vector<NextLogits> drawn(const Tensor& logits, std::int64_t vocabulary, double temperature,
                                const RandomKey& key, std::int64_t i);
  std::vector<float> mean_over_ranks(const Tensor& logits);

  Backend& backend_;
  const LanguageModel& model_;
  Communicator& communicator_;
  KvCache cache_;
  std::vector<Tokens> cached_;  // the tokens in the cache
};

// Samples up to `count` tokens after `prompt` (at least one token) in each text of the context, and passes
// each to emit(text, token), until that returns false for the text. Draw i of text n depends on the seed, on
// first_sample + n, on i and on the logits. Rank 0 draws, and the result of its `emit` applies to all ranks.
// Throws AgreedFailure if the logits are not finite. A profile, if there is one, records some of the steps;
// the first one includes the processing of the prompt.
void generate(Context& context, const Tokens& prompt, std::int64_t count, const SamplingConfig& config,
              std::uint32_t first_sample, const std::function<bool(std::size_t, std::int32_t)>& emit,
              Profile* profile = nullptr);

}  // namespace stagegpt
