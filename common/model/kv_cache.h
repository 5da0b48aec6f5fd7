// Keys and values of the tokens that a model has read, so that they are not computed again for each new
// token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/model/language_model.h"

namespace stagegpt {

// The keys and values of one layer and `size` tokens, in (1,block_size,2C). `size` is also in position (1),
// which is in the backend's memory.
struct LayerCache {
  Tensor keys_and_values = {};
  std::int64_t size = 0;
  Tensor position = {};
};

// For one sequence of up to block_size tokens.
class KvCache {
 public:
  KvCache(Backend& backend, const LanguageModel& model) : most_(model.config().block_size) {
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
    token_input_ = backend.allocate(DType::i32, {2});
    const DType dtype = parameters.activations();
    logits_ = backend.allocate(dtype == DType::bf16 ? DType::f32 : dtype, {1, 1, config.padded_vocab_size()});
  }

  // Number of tokens in the cache.
  std::int64_t size() const { return size_; }
  void clear() { size_ = 0; }
  // The cache of layer l, which counts from 0.
  LayerCache layer(int l) const { return {layers_[static_cast<std::size_t>(l)], size_, position_}; }
  // Where the tokens that follow begin, as i32 (1) in the backend's memory.
  const Tensor& position() const { return position_; }
  // Takes the T tokens that follow to the backend, with the position of the first: ids (1,T). A single token
  // is always in the same memory. Throws InternalError if the cache has no room for them.
  Tensor enter(Backend& backend, std::span<const std::int32_t> tokens);
  // Where a pass leaves the logits (1,1,Vp), not in bf16, of the token that follows.
  const Tensor& logits() const { return logits_; }
  // The pass over a single token, which is repeated for each token of a text (Backend::repeat()).
  Recording& token_pass() { return token_pass_; }
  // Call when all layers have the keys and values of so many more tokens.
  void add(std::int64_t tokens) { size_ += tokens; }

 private:
  std::vector<Tensor> layers_;  // (1,block_size,2C)
  std::int64_t size_ = 0;
  Tensor position_, logits_;
  Recording token_pass_;
  Tensor token_input_;  // i32 (2), as enter() writes that of a single token
  std::int64_t most_;   // tokens
};

inline Tensor KvCache::enter(Backend& backend, std::span<const std::int32_t> tokens) {
  const std::int64_t T = std::ssize(tokens);
  check(T > 0 && size_ + T <= most_, "gpt2: ", T, " tokens after ", size_, " in a context of ", most_);
  std::vector<std::int32_t> input{static_cast<std::int32_t>(size_)};
  input.insert(input.end(), tokens.begin(), tokens.end());
  const Tensor on_backend = T == 1 ? token_input_ : backend.allocate(DType::i32, {T + 1});
  upload<std::int32_t>(backend, on_backend, input);
  position_ = on_backend.slice(0, {1});
  return on_backend.slice(1, {1, T});
}

}  // namespace stagegpt
