// Keys and values of the tokens that a model has read, so that they are not computed again for each new
// token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/model/language_model.h"

namespace stagegpt {

// The keys and values of one layer and `size` tokens of each of B texts, in (B,block_size,2C). `size` is also
// in position (1), which is in the backend's memory.
struct LayerCache {
  Tensor keys_and_values = {};
  std::int64_t size = 0;
  Tensor position = {};
};

// For texts of the same length, of up to block_size tokens.
class KvCache {
 public:
  KvCache(Backend& backend, const LanguageModel& model, std::int64_t texts = 1)
      : texts_(texts), most_(model.config().block_size) {
    const Gpt2Config& config = model.config();
    const Parameters& parameters = model.parameters();
    layers_.resize(static_cast<std::size_t>(config.n_layer));
    for (int l = 0; l < config.n_layer; ++l) {
      // A part of a model has some of the layers and heads.
      const int row = parameters.table().find(concat("h.", l, ".attn.c_attn.bias"));
      if (row < 0) continue;
      const std::int64_t C = parameters.var(static_cast<std::size_t>(row)).value().numel() / 3;
      layers_[static_cast<std::size_t>(l)] =
          backend.allocate(parameters.activations(), {texts, config.block_size, 2 * C});
    }
    token_input_ = backend.allocate(DType::i32, {1 + texts});
    const DType dtype = parameters.activations();
    logits_ =
        backend.allocate(dtype == DType::bf16 ? DType::f32 : dtype, {texts, 1, config.padded_vocab_size()});
  }

  std::int64_t texts() const { return texts_; }
  // Number of tokens of each text in the cache.
  std::int64_t size() const { return size_; }
  void clear() { size_ = 0; }
  // The cache of layer l, which counts from 0, for the texts of the pass.
  LayerCache layer(int l) const { return {of_pass(layers_[static_cast<std::size_t>(l)]), size_, position_}; }
  // Where the tokens that follow begin, as i32 (1) in the backend's memory.
  const Tensor& position() const { return position_; }
  // Begins a pass over `count` texts from `first` on: takes the T tokens that follow in each, (count,T), to
  // the backend, with the position of the first: ids (count,T). Those of T = 1 are always in the same memory.
  // Throws InternalError if the cache has no room for them.
  Tensor enter(Backend& backend, std::span<const std::int32_t> tokens, std::int64_t first,
               std::int64_t count);
  // Where passes leave the logits (B,1,Vp), not in bf16, of the tokens that follow.
  const Tensor& logits() const { return logits_; }
  Tensor logits_of_pass() const { return of_pass(logits_); }
  // Copies to text `to` what a pass over the same T tokens has left of text `from`; the cache was empty.
  void copy_text(Backend& backend, std::int64_t from, std::int64_t to, std::int64_t T) const;
  // The pass over one token of each text, which is repeated for all tokens (Backend::repeat()).
  Recording& token_pass() { return token_pass_; }
  // Call when all layers have the keys and values of so many more tokens of each text.
  void add(std::int64_t tokens) { size_ += tokens; }

 private:
  // The rows of the pass's texts.
  Tensor of_pass(const Tensor& all) const {
    const Shape& s = all.shape();
    return all.slice(first_ * s[1] * s[2], {count_, s[1], s[2]});
  }

  std::vector<Tensor> layers_;  // (B,block_size,2C)
  std::int64_t texts_, size_ = 0;
  std::int64_t first_ = 0, count_ = 0;  // the texts of the pass
  Tensor position_, logits_;
  Recording token_pass_;
  Tensor token_input_;  // i32 (1 + B), as enter() writes it for T = 1
  std::int64_t most_;   // tokens of a text
};

inline Tensor KvCache::enter(Backend& backend, std::span<const std::int32_t> tokens, std::int64_t first,
                             std::int64_t count) {
  const std::int64_t T = std::ssize(tokens) / count;
  first_ = first;
  count_ = count;
  check(size_ + T <= most_, "gpt2: ", T, " tokens after ", size_, " in a context of ", most_);
  std::vector<std::int32_t> input{static_cast<std::int32_t>(size_)};
  input.insert(input.end(), tokens.begin(), tokens.end());
  const Tensor on_backend = T == 1 ? token_input_ : backend.allocate(DType::i32, {T + 1});
  upload<std::int32_t>(backend, on_backend, input);
  position_ = on_backend.slice(0, {1});
  return on_backend.slice(1, {count, T});
}

inline void KvCache::copy_text(Backend& backend, std::int64_t from, std::int64_t to, std::int64_t T) const {
  const auto copy = [&](const Tensor& all, std::int64_t rows) {
    const std::int64_t columns = all.shape()[2], stride = all.shape()[1] * columns;
    backend.copy(all.slice(to * stride, {rows * columns}), all.slice(from * stride, {rows * columns}));
  };
  for (const Tensor& layer : layers_) {
    if (layer.defined()) copy(layer, T);
  }
  copy(logits_, 1);
}

}  // namespace stagegpt
