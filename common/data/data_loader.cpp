#include "common/data/data_loader.h"

#include <algorithm>

#include "common/base/error.h"
#include "common/random/permutation.h"

namespace stagegpt {

DataLoader::DataLoader(TokenSequence tokens, std::int64_t seq_len, std::uint64_t seed,
                       const std::vector<MixturePart>& mixture)
    : tokens_(std::move(tokens)), seq_len_(seq_len), seed_(seed) {
  std::int64_t first = 0, shares = 0;
  const auto add = [&](std::int64_t size, std::int64_t share) {
    check(size > seq_len, "data loader: ", size, " tokens, expected more than ", seq_len);
    parts_.push_back({first, size, std::max<std::int64_t>(1, (size - 1) / seq_len - 1), share});
    first += size;
    shares += share;
  };
  for (const MixturePart& part : mixture) add(part.size, part.share);
  if (mixture.empty()) add(tokens_.size(), kMixtureBlock);
  check(first == tokens_.size() && shares == kMixtureBlock, "data loader: a mixture of ", first, " of ",
        tokens_.size(), " tokens, with shares of ", shares);
}

std::int64_t DataLoader::windows() const {
  std::int64_t windows = 0;
  for (const Part& part : parts_) windows += part.windows;
  return windows;
}

Batch DataLoader::shuffled(std::int64_t first, std::int64_t count) const {
  Batch batch;
  for (std::int64_t i = first; i < first + count; ++i) append(batch, shuffled_start(i));
  return batch;
}

std::int64_t DataLoader::shuffled_start(std::int64_t sample) const {
  if (parts_.size() == 1) return shuffled_start(0, sample);
  const std::int64_t block = sample / kMixtureBlock;
  const RandomKey key{seed_, stream_id(RandomStream::mixture), static_cast<std::uint32_t>(block)};
  auto p = static_cast<std::int64_t>(
      permuted(key, static_cast<std::uint64_t>(sample % kMixtureBlock), kMixtureBlock));
  std::size_t k = 0;
  for (; p >= parts_[k].share; ++k) p -= parts_[k].share;
  return shuffled_start(k, block * parts_[k].share + p);
}

std::int64_t DataLoader::shuffled_start(std::size_t k, std::int64_t index) const {
  const Part& part = parts_[k];
  const RandomKey key{seed_, stream_id(RandomStream::shuffle, static_cast<std::uint32_t>(k)),
                      static_cast<std::uint32_t>(index / part.windows)};
  const auto slack = static_cast<std::uint64_t>(part.size - 1 - part.windows * seq_len_);
  // The permutation uses the words of the key from 0 on; this word is not among them.
  const std::uint64_t offset = random_word(key, ~std::uint64_t{0}) % (slack + 1);
  const std::uint64_t window = permuted(key, static_cast<std::uint64_t>(index % part.windows), part.windows);
  return part.first + static_cast<std::int64_t>(offset) + static_cast<std::int64_t>(window) * seq_len_;
}

void DataLoader::append(Batch& batch, std::int64_t start) const {
  const std::vector<std::int32_t> window = tokens_.read(start, seq_len_ + 1);
  batch.ids.insert(batch.ids.end(), window.begin(), window.end() - 1);
  batch.targets.insert(batch.targets.end(), window.begin() + 1, window.end());
}

}  // namespace stagegpt
