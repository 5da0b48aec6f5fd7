// One forward pass: over which tokens it is, what it drops, and the cache that it continues.
#pragma once

#include <cstdint>
#include <optional>

#include "common/model/kv_cache.h"
#include "common/model/language_model.h"
#include "common/random/philox.h"

namespace stagegpt {

// A forward pass over B sequences of T tokens.
class Pass {
 public:
  // The tokens follow those in `cache`, if it is given. Throws InternalError if they are more than the
  // context.
  Pass(const Gpt2Config& config, const Tensor& ids, const PassOptions& options,
       const KvCache* cache = nullptr);

  Shape shape() const { return {B_, T_, config_->n_embd}; }
  Recompute recompute() const { return recompute_; }
  // Whether it is one of generation, which continues a cache.
  bool is_cached() const { return cache_ != nullptr; }
  // The position of the first token, in the backend's memory; undefined without a cache, where it is 0.
  Tensor position() const { return cache_ == nullptr ? Tensor() : cache_->position(); }
  // What is in the cache for a layer; an undefined tensor without a cache.
  LayerCache cache(int layer) const { return cache_ == nullptr ? LayerCache() : cache_->layer(layer); }

  // What is dropped, nothing without a position in training: of x (B,T,C) after the embedding; of a layer's
  // probabilities (B,NH,T,T); of the output (B,T,C) of a branch, where block l has branches 2l and 2l + 1.
  Dropout embedding_dropout() const { return dropout(RandomStream::dropout_embedding, 0, T_ * C()); }
  Dropout attention_dropout(int layer) const {
    return dropout(RandomStream::dropout_attention, layer, config_->n_head * T_ * T_);
  }
  Dropout branch_dropout(int branch) const {
    return dropout(RandomStream::dropout_residual, branch, T_ * C());
  }

 private:
  std::int64_t C() const { return config_->n_embd; }
  // Each sequence uses `elements` random numbers.
  Dropout dropout(RandomStream stream, int index, std::int64_t elements) const;

  const Gpt2Config* config_;
  std::int64_t B_, T_;
  std::optional<DropoutPosition> position_;
  Recompute recompute_;
  const KvCache* cache_;
};

}  // namespace stagegpt
