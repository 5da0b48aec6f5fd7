#include "common/generation/generation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <ranges>

#include "common/backend/ops/largest_logits.h"
#include "common/comm/agreement.h"
#include "common/random/philox.h"

namespace stagegpt {

std::int64_t window_begin(std::int64_t n, std::int64_t block_size) {
  if (n <= block_size) return 0;
  const std::int64_t half = (block_size + 1) / 2;
  return (n - block_size + half - 1) / half * half;
}

std::vector<float> Context::next_logits(std::span<const std::int32_t> tokens) {
  return mean_over_ranks(own_logits(tokens));
}

std::vector<Candidate> Context::next_candidates(std::span<const std::int32_t> tokens,
                                                const SamplingConfig& config) {
  const auto require = [&](bool finite) {
    if (!finite)
      throw AgreedFailure(concat("the model's logits after token ", tokens.size(), " are not finite"));
  };
  const Tensor logits = own_logits(tokens);
  const std::int64_t vocabulary = config.vocabulary > 0 ? config.vocabulary : logits.numel(),
                     k = deciding_logits(config);
  if (communicator_.size() == 1 && k > 0 && k <= LargestLogits::kMost && k < vocabulary) {
    const Tensor largest = backend_.allocate(DType::f32, {k}), ids = backend_.allocate(DType::i32, {k});
    backend_.run(LargestLogits{largest, ids, logits.slice(0, {vocabulary})});
    std::vector<float> values(static_cast<std::size_t>(k));
    std::vector<std::int32_t> tokens_of_values(values.size());
    backend_.copy_to_host(
        std::array{host_copy(std::span(values), largest), host_copy(std::span(tokens_of_values), ids)});
    require(std::isfinite(values.front()));
    return candidates_of_largest(values, tokens_of_values, config);
  }
  const std::vector<float> all = mean_over_ranks(logits);
  require(std::ranges::all_of(all | std::views::take(vocabulary), [](float x) { return std::isfinite(x); }));
  return group().is_root() ? candidates(all, tokens, config) : std::vector<Candidate>();
}

Tensor Context::own_logits(std::span<const std::int32_t> tokens) {
  check(!tokens.empty(), "generation: expected at least one token");
  const Gpt2Config& config = model_.config();
  const auto window =
      tokens.subspan(static_cast<std::size_t>(window_begin(std::ssize(tokens), config.block_size)));
  const bool is_continuation =
      cached_.size() < window.size() && std::ranges::equal(cached_, window.first(cached_.size()));
  if (!is_continuation) {
    cache_.clear();
    cached_.clear();
  }
  const auto added = window.subspan(cached_.size());
  const Tensor logits = model_.next_logits(backend_, added, cache_);  // (1,1,Vp)
  cached_.insert(cached_.end(), added.begin(), added.end());
  return logits.slice(0, {config.vocab_size});
}

std::vector<float> Context::mean_over_ranks(const Tensor& logits) {
  std::vector<float> own = to_host<float>(backend_, logits);
  const int ranks = communicator_.size();
  if (ranks == 1) return own;
  const bool finite = std::ranges::all_of(own, [](float logit) { return std::isfinite(logit); });
  const std::vector<char> which = gather<char>(group(), finite ? 1 : 0);
  if (const auto broken = std::ranges::find(which, 0); broken != which.end()) {
    throw AgreedFailure(concat("the logits of rank ", broken - which.begin(), " are not finite"));
  }
  communicator_.all_reduce(logits)->wait();
  std::vector<float> mean = to_host<float>(backend_, logits);
  // Different processors round differently. Different weights cause far larger differences.
  constexpr double kRounding = 1e-3;
  double largest = 0, difference = 0;
  for (std::size_t i = 0; i < mean.size(); ++i) {
    mean[i] /= static_cast<float>(ranks);
    largest = std::max(largest, static_cast<double>(std::abs(mean[i])));
    difference = std::max(difference, static_cast<double>(std::abs(mean[i] - own[i])));
  }
  const std::vector<double> differences = gather(group(), difference);
  const auto most = std::ranges::max_element(differences);
  if (*most > kRounding * largest) {
    throw AgreedFailure(concat("the logits of rank ", most - differences.begin(), " differ by ", *most,
                               " from the mean over ranks; do all ranks have the same model?"));
  }
  return mean;
}

void generate(Context& context, std::vector<std::int32_t> prompt, std::int64_t count,
              const SamplingConfig& config, std::uint32_t sample,
              const std::function<bool(std::int32_t)>& emit, Profile* profile) {
  std::vector<std::int32_t>& tokens = prompt;
  RankGroup& group = context.group();
  const RandomKey key{config.seed, stream_id(RandomStream::sample), sample};
  bool more = true;
  const auto next = [&](std::int64_t i) {
    group.enter(tokens.size() > 1 && i == 0 ? "prefill" : "generation");
    const std::vector<Candidate> possible = context.next_candidates(tokens, config);
    std::int32_t token = 0;
    if (group.is_root()) token = draw(possible, random_uniform(key, static_cast<std::uint64_t>(i)));
    tokens.push_back(from_root(group, token));
    group.enter(kUnwatched);  // a slow reader of the output may block all ranks
    more = from_root(group, emit(tokens.back()));
  };
  for (std::int64_t i = 0; i < count && more; ++i) profiled(profile, i + 1, [&] { next(i); });
}

}  // namespace stagegpt
