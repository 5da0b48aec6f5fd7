#include "common/generation/generation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <ranges>

#include "common/backend/ops/draw_tokens.h"
#include "common/backend/ops/largest_logits.h"
#include "common/comm/agreement.h"

namespace stagegpt {
namespace {

RandomKey key_of_sample(const SamplingConfig& config, std::uint32_t sample) {
  return {config.seed, stream_id(RandomStream::sample), sample};
}

bool are_finite(const NextLogits& logits) {
  return std::ranges::count(logits.ids, -1) == 0 &&
         std::ranges::all_of(logits.values, [](float x) { return std::isfinite(x); });
}

}  // namespace

std::int64_t window_begin(std::int64_t n, std::int64_t block_size) {
  if (n <= block_size) return 0;
  const std::int64_t half = (block_size + 1) / 2;
  return (n - block_size + half - 1) / half * half;
}

std::vector<std::vector<float>> Context::next_logits(std::span<const Tokens> texts) {
  const Tensor logits = own_logits(texts);
  const std::int64_t V = model_.config().vocab_size, Vp = logits.shape()[-1];
  std::vector<std::vector<float>> all;
  for (std::int64_t n = 0; n < std::ssize(texts); ++n)
    all.push_back(mean_over_ranks(logits.slice(n * Vp, {V})));
  return all;
}

std::vector<NextLogits> Context::next(std::span<const Tokens> texts, const SamplingConfig& config,
                                      std::uint32_t first_sample, std::int64_t i) {
  const std::int64_t V = model_.config().vocab_size,
                     vocabulary = config.vocabulary > 0 ? config.vocabulary : V, k = deciding_logits(config);
  std::vector<NextLogits> all;
  if (communicator_.size() == 1 && draws_from_all(config)) {
    all = drawn(own_logits(texts), vocabulary, config.temperature, key_of_sample(config, first_sample), i);
  } else if (communicator_.size() == 1 && k > 0 && k <= LargestLogits::kMost && k < vocabulary) {
    all = largest(own_logits(texts), k, vocabulary);
  } else {
    for (std::vector<float>& logits : next_logits(texts)) {
      logits.resize(static_cast<std::size_t>(vocabulary));
      all.push_back({std::move(logits), {}});
    }
  }
  return all;
}

std::vector<NextLogits> Context::largest(const Tensor& logits, std::int64_t k, std::int64_t vocabulary) {
  const std::int64_t B = logits.shape()[0], Vp = logits.shape()[-1];
  const Tensor values = backend_.allocate(DType::f32, {B, k}), ids = backend_.allocate(DType::i32, {B, k});
  for (std::int64_t n = 0; n < B; ++n) {
    backend_.run(
        LargestLogits{values.slice(n * k, {k}), ids.slice(n * k, {k}), logits.slice(n * Vp, {vocabulary})});
  }
  std::vector<float> all_values(static_cast<std::size_t>(B * k));
  Tokens all_ids(all_values.size());
  backend_.copy_to_host(
      std::array{host_copy(std::span(all_values), values), host_copy(std::span(all_ids), ids)});
  std::vector<NextLogits> all;
  for (auto begin = std::ptrdiff_t{0}; begin < B * k; begin += k) {
    all.push_back({{all_values.begin() + begin, all_values.begin() + begin + k},
                   {all_ids.begin() + begin, all_ids.begin() + begin + k}});
  }
  return all;
}

std::vector<NextLogits> Context::drawn(const Tensor& logits, std::int64_t vocabulary, double temperature,
                                       const RandomKey& key, std::int64_t i) {
  const Tensor ids = backend_.allocate(DType::i32, {cache_.texts()});
  backend_.run(DrawTokens{ids, logits, vocabulary, temperature, key, static_cast<std::uint64_t>(i)});
  std::vector<NextLogits> all;
  for (const std::int32_t id : to_host<std::int32_t>(backend_, ids)) all.push_back({{}, {id}});
  return all;
}

Tensor Context::own_logits(std::span<const Tokens> texts) {
  const auto length = texts.front().size();
  check(std::ssize(texts) == cache_.texts() && length > 0, "generation: expected ", cache_.texts(),
        " texts of at least one token");
  const auto begin =
      static_cast<std::size_t>(window_begin(std::ssize(texts.front()), model_.config().block_size));
  std::vector<Tokens> windows;
  for (const Tokens& text : texts) {
    check(text.size() == length, "generation: texts of ", length, " and ", text.size(), " tokens");
    windows.emplace_back(text.begin() + static_cast<std::ptrdiff_t>(begin), text.end());
  }
  const auto continues = [&](const Tokens& before, const Tokens& window) {
    return before.size() < window.size() &&
           std::ranges::equal(before, std::span(window).first(before.size()));
  };
  if (!std::ranges::equal(cached_, windows, continues)) cache_.clear();
  Tokens added;  // (B,T)
  for (const Tokens& window : windows)
    added.insert(added.end(), window.begin() + static_cast<std::ptrdiff_t>(cache_.size()), window.end());
  cached_ = std::move(windows);
  return model_.next_logits(backend_, added, cache_);
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

void generate(Context& context, const Tokens& prompt, std::int64_t count, const SamplingConfig& config,
              std::uint32_t first_sample, const std::function<bool(std::size_t, std::int32_t)>& emit,
              Profile* profile) {
  RankGroup& group = context.group();
  std::vector<Tokens> texts(static_cast<std::size_t>(context.texts()), prompt);
  std::string open(texts.size(), 'y');  // which texts go on: 'y' or 'n'
  const auto next = [&](std::int64_t i) {
    group.enter(prompt.size() > 1 && i == 0 ? "prefill" : "generation");
    const std::vector<NextLogits> logits = context.next(texts, config, first_sample, i);
    for (std::size_t n = 0; n < texts.size(); ++n) {
      if (open[n] == 'y' && !are_finite(logits[n]))
        throw AgreedFailure(concat("the model's logits after token ", texts[n].size(), " are not finite"));
    }
    Tokens drawn(texts.size());  // an ended text goes on with token 0, which nobody sees
    for (std::size_t n = 0; n < texts.size() && group.is_root(); ++n) {
      if (open[n] == 'n') continue;
      const RandomKey key = key_of_sample(config, first_sample + static_cast<std::uint32_t>(n));
      drawn[n] =
          draw(candidates(logits[n], texts[n], config), random_uniform(key, static_cast<std::uint64_t>(i)));
    }
    drawn = broadcast_values(group, std::move(drawn), 0);
    group.enter(kUnwatched);  // a slow reader of the output may block all ranks
    for (std::size_t n = 0; n < texts.size(); ++n) {
      texts[n].push_back(drawn[n]);
      if (open[n] == 'y' && !emit(n, drawn[n])) open[n] = 'n';
    }
    open = broadcast_text(group, open);
  };
  for (std::int64_t i = 0; i < count && open.find('y') != open.npos; ++i)
    profiled(profile, i + 1, [&] { next(i); });
}

}  // namespace stagegpt
