// Keys and values of the tokens that a model has read, so that they are not computed again for each new
// token.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/language_model.h"

namespace stagegpt {

// The keys and values of one layer and `size` tokens, in (1,block_size,2C).
struct LayerCache {
  Tensor keys_and_values = {};
  std::int64_t size = 0;
};

// For one sequence of up to block_size tokens.
class KvCache {
 public:
  KvCache(Backend& backend, const LanguageModel& model) {
    const Gpt2Config& config = model.config();
    const Parameters& parameters = model.parameters();
    layers_.resize(static_cast<std::size_t>(config.n_layer));
    for (int l = 0; l < config.n_layer; ++l) {
      // A part of a model has some of the layers and heads.
      const int row = parameters.table().find(concat("h.", l, ".attn.c_attn.bias"));
      if (row < 0) continue;
      const std::int64_t C = parameters.var(static_cast<std::size_t>(row)).value().numel() / 3;
      layers_[static_cast<std::size_t>(l)] =
          backend.allocate(parameters.activations(), {1, config.block_size, 2 * C});
    }
  }

  // Number of tokens in the cache.
  std::int64_t size() const { return size_; }
  void clear() { size_ = 0; }
  // The cache of layer l, which counts from 0.
  LayerCache layer(int l) const { return {layers_[static_cast<std::size_t>(l)], size_}; }
  // Call when all layers have the keys and values of so many more tokens.
  void add(std::int64_t tokens) { size_ += tokens; }

 private:
  std::vector<Tensor> layers_;  // (1,block_size,2C)
  std::int64_t size_ = 0;
};

}  // namespace stagegpt
