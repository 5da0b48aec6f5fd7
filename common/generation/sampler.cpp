#include "common/generation/sampler.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/error.h"

namespace stagegpt {
namespace {

// `probability` is first the logit, then exp(logit - largest logit), then the probability.
using Weighted = Candidate;

bool comes_first(const Weighted& a, const Weighted& b) {
  return a.probability != b.probability ? a.probability > b.probability : a.id < b.id;
}

bool comes_last(const Weighted& a, const Weighted& b) { return comes_first(b, a); }

void penalise(std::vector<Weighted>& tokens, std::span<const std::int32_t> seen, double penalty) {
  std::vector<bool> done(tokens.size());
  for (const std::int32_t id : seen) {
    const auto i = static_cast<std::size_t>(id);
    if (i >= tokens.size() || done[i]) continue;
    done[i] = true;
    double& logit = tokens[i].probability;
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
}

void keep_largest(std::vector<Weighted>& tokens, std::int64_t k) {
  if (k >= std::ssize(tokens))
    return;  // their order stays, so that the same random number draws the same token
  std::ranges::nth_element(tokens, tokens.begin() + k, comes_first);
  tokens.resize(static_cast<std::size_t>(k));
  std::ranges::sort(tokens, comes_first);
}

// Keeps the smallest set of tokens with at least `p` of the total weight. They are popped from a heap, which
// avoids sorting the whole vocabulary.
void keep_nucleus(std::vector<Weighted>& tokens, double p) {
  double all = 0, taken = 0;
  for (const Weighted& token : tokens) all += token.probability;
  std::ranges::make_heap(tokens, comes_last);
  auto end = tokens.end();
  while (end != tokens.begin() && (end == tokens.end() || taken < p * all)) {
    std::ranges::pop_heap(tokens.begin(), end, comes_last);
    taken += (--end)->probability;
  }
  tokens.erase(tokens.begin(), end);
  std::ranges::reverse(tokens);
}

// The candidates among `tokens`, with the logits that are left.
std::vector<Candidate> weighted(std::vector<Weighted> tokens, double largest, const SamplingConfig& config) {
  for (Weighted& token : tokens)
    token.probability = std::exp((token.probability - largest) / config.temperature);
  if (config.top_p < 1) keep_nucleus(tokens, config.top_p);
  double sum = 0;
  for (const Weighted& token : tokens) sum += token.probability;
  for (Weighted& token : tokens) token.probability /= sum;
  return tokens;
}

}  // namespace

std::int64_t deciding_logits(const SamplingConfig& config) {
  if (config.repetition_penalty != 1) return 0;
  return config.temperature == 0 ? 1 : config.top_k;
}

bool draws_from_all(const SamplingConfig& config) {
  return config.repetition_penalty == 1 && config.temperature > 0 && config.top_k == 0 && config.top_p == 1;
}

std::vector<Candidate> candidates(const NextLogits& logits, std::span<const std::int32_t> seen,
                                  const SamplingConfig& config) {
  if (logits.ids.empty()) return candidates(logits.values, seen, config);
  if (config.temperature == 0 || logits.values.empty()) return {{logits.ids.front(), 1}};
  std::vector<Weighted> tokens(logits.ids.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = {logits.ids[i], logits.values[i]};
  return weighted(std::move(tokens), logits.values.front(), config);
}

std::vector<Candidate> candidates(std::span<const float> logits, std::span<const std::int32_t> seen,
                                  const SamplingConfig& config) {
  if (config.vocabulary > 0) logits = logits.first(static_cast<std::size_t>(config.vocabulary));
  std::vector<Weighted> tokens(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) tokens[i] = {static_cast<std::int32_t>(i), logits[i]};
  if (config.repetition_penalty != 1) penalise(tokens, seen, config.repetition_penalty);
  const Weighted best = *std::ranges::min_element(tokens, comes_first);
  if (config.temperature == 0) return {{best.id, 1}};
  if (config.top_k > 0) keep_largest(tokens, config.top_k);
  return weighted(std::move(tokens), best.probability, config);
}

std::int32_t draw(std::span<const Candidate> candidates, double u) {
  check(!candidates.empty(), "draw: no candidates");
  double sum = 0;
  for (const Candidate& candidate : candidates) {
    sum += candidate.probability;
    if (u < sum) return candidate.id;
  }
  // Because of rounding, the sum may not exceed u: then take the last candidate with a positive probability.
  const auto possible = std::ranges::find_if(candidates.rbegin(), candidates.rend(),
                                             [](const Candidate& c) { return c.probability > 0; });
  return possible->id;
}

}  // namespace stagegpt
