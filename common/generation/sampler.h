// Sampling: chooses the next token from the logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace stagegpt {

// Applied in this order. The defaults change nothing.
struct SamplingConfig {
  std::int64_t vocabulary = 0;    // keep the ids below it, those that the tokenizer has; 0: all
  double repetition_penalty = 1;  // logits of tokens in the text: positive ones are divided by it, others
                                  // multiplied. Keskar et al., arXiv:1909.05858, section 4.1
  double temperature = 1;         // logits are divided by it; 0: greedy, the most probable token
  std::int64_t top_k = 0;         // keep the k largest logits; 0: all
  double top_p = 1;               // then keep the smallest set of tokens with this total probability:
                                  // Holtzman et al., arXiv:1904.09751, section 3.1
  std::uint64_t seed = 1337;
};

// A possible next token.
struct Candidate {
  std::int32_t id;
  double probability;
};

// The possible next tokens, with probabilities that add up to 1. With top_k or top_p they are sorted, most
// probable first; equal logits are ordered by id. `logits` (V) must contain at least one finite value, and no
// NaN or +∞. `seen` are the tokens so far.
std::vector<Candidate> candidates(std::span<const float> logits, std::span<const std::int32_t> seen,
                                  const SamplingConfig& config);

// How many of the largest logits decide what candidates() returns; 0: all of them.
std::int64_t deciding_logits(const SamplingConfig& config);
// Whether the token is drawn from all logits as they are, so that DrawTokens
// (common/backend/ops/draw_tokens.h) can do it.
bool draws_from_all(const SamplingConfig& config);

// What decides about a token: all logits, or the largest ones with their ids, sorted as LargestLogits
// (common/backend/ops/largest_logits.h) does it, or, without values, the id that a backend has drawn (-1 if a
// logit is not finite).
struct NextLogits {
  std::vector<float> values;
  std::vector<std::int32_t> ids;  // empty if `values` are all
};
std::vector<Candidate> candidates(const NextLogits& logits, std::span<const std::int32_t> seen,
                                  const SamplingConfig& config);

// Draws one of the candidates; u is uniform in [0, 1).
std::int32_t draw(std::span<const Candidate> candidates, double u);

}  // namespace stagegpt
