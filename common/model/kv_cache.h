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
    const DType dtype = model.parameters().activations();
    // Of a model that is divided among ranks, this rank's heads.
    const Var& qkv_bias = model.parameters().var("h.0.attn.c_attn.bias");  // (3C)
    for (int l = 0; l < config.n_layer; ++l) {
      layers_.push_back(backend.allocate(dtype, {1, config.block_size, qkv_bias.value().numel() / 3 * 2}));
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
