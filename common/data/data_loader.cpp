#include "common/data/data_loader.h"

#include <algorithm>

#include "common/base/error.h"
#include "common/random/permutation.h"

namespace stagegpt {

DataLoader::DataLoader(TokenSequence tokens, std::int64_t seq_len, std::uint64_t seed)
    : tokens_(std::move(tokens)),
      seq_len_(seq_len),
      windows_(std::max<std::int64_t>(1, (tokens_.size() - 1) / seq_len - 1)),
      seed_(seed) {
  check(tokens_.size() > seq_len, "data loader: ", tokens_.size(), " tokens, expected more than ", seq_len);
}

Batch DataLoader::shuffled(std::int64_t first, std::int64_t count) const {
  Batch batch;
  for (std::int64_t i = first; i < first + count; ++i) append(batch, shuffled_start(i));
  return batch;
}

std::int64_t DataLoader::shuffled_start(std::int64_t sample) const {
  const RandomKey key{seed_, stream_id(RandomStream::shuffle), static_cast<std::uint32_t>(sample / windows_)};
  const auto slack = static_cast<std::uint64_t>(tokens_.size() - 1 - windows_ * seq_len_);
  // The permutation uses the words of the key from 0 on; this word is not among them.
  const std::uint64_t offset = random_word(key, ~std::uint64_t{0}) % (slack + 1);
  const std::uint64_t window = permuted(key, static_cast<std::uint64_t>(sample % windows_), windows_);
  return static_cast<std::int64_t>(offset) + static_cast<std::int64_t>(window) * seq_len_;
}

void DataLoader::append(Batch& batch, std::int64_t start) const {
  const std::vector<std::int32_t> window = tokens_.read(start, seq_len_ + 1);
  batch.ids.insert(batch.ids.end(), window.begin(), window.end() - 1);
  batch.targets.insert(batch.targets.end(), window.begin() + 1, window.end());
}

}  // namespace stagegpt
