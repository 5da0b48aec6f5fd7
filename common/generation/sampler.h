// The next token from the logits of all.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace stagegpt {

// Applied in this order. The defaults change nothing.
struct SamplingConfig {
  double repetition_penalty = 1;  // logits of tokens that are there: positive ones divided by it, others
                                  // times it. Keskar et al., arXiv:1909.05858, section 4.1
  double temperature = 1;         // logits are divided by it; 0 takes the most probable token
  std::int64_t top_k = 0;         // the k largest logits stay; 0: all
  double top_p = 1;               // of these the fewest whose probabilities add up to this: Holtzman et al.,
                                  // arXiv:1904.09751, section 3.1
  std::uint64_t seed = 1337;
};

// A token that may come next.
struct Candidate {
  std::int32_t id;
  double probability;
};

// The tokens that may follow, with probabilities that add up to 1, most probable first where top_k or top_p
// makes a choice. `logits` (V), of which at least one is finite and none is NaN or +∞; `seen` are the tokens
// so far. Equal logits go by id.
std::vector<Candidate> candidates(std::span<const float> logits, std::span<const std::int32_t> seen,
                                  const SamplingConfig& config);

// One of them, with u uniform in [0, 1).
std::int32_t draw(std::span<const Candidate> candidates, double u);

}  // namespace stagegpt
