// Keys and values of the tokens that a model has read, so that they are not computed again for each new
// token.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/gpt2.h"

namespace stagegpt {

// For one sequence of up to block_size tokens.
class KvCache {
 public:
  KvCache(Backend& backend, const Gpt2& model) {
    const Gpt2Config& config = model.config();
    const Parameters& parameters = model.parameters();
    layers_.resize(static_cast<std::size_t>(config.n_layer));
    for (int l = 0; l < config.n_layer; ++l) {
      // Of a model that is divided among ranks, this rank's layers and heads.
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

 private:
  friend class Gpt2;

  std::vector<Tensor> layers_;  // (1,block_size,2C)
  std::int64_t size_ = 0;
};

}  // namespace stagegpt
