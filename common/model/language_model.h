// A model as training, evaluation, generation and checkpoints know it: Gpt2, or a rank's part of one
// (common/parallel/divided_gpt2.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "common/autograd/tape.h"
#include "common/model/gpt2_config.h"

namespace stagegpt {

// Where in training a forward pass is: its dropout masks are derived from this. The sequences of a step are
// numbered over all ranks and micro-steps, so that a mask does not depend on how the batch is divided.
struct DropoutPosition {
  std::uint64_t seed = 0;
  std::uint32_t step = 0;
  std::int64_t first_sequence = 0;  // index of the batch's first sequence within the step
  // If it is defined, step and first_sequence are in the backend's memory (Dropout::position).
  Tensor on_backend = {};
};

// What a training keeps of a forward pass's activations; the rest is computed again in the backward, with the
// same bits. `gelu` does not keep the activation's output (B,T,I) in each MLP, I = mlp_width(). `block` keeps
// two tensors (B,T,C) for each transformer block: the residual stream, and the output of the branch before
// it, which is still to be added. The first block has only the stream.
enum class Recompute : std::uint8_t { none, gelu, block };
std::optional<Recompute> recompute_named(std::string_view name);
std::string_view name_of(Recompute recompute);

// What a forward pass may be given beside its tokens.
struct PassOptions {
  std::optional<DropoutPosition> dropout = {};  // elements are dropped only if it is given
  Recompute recompute = Recompute::none;
  // For a part of a model that has no embedding: the residual stream (B,T,C) that it continues, or this
  // rank's rows of it.
  Var before = {};
};

class KvCache;

class LanguageModel {
 public:
  // `dtype` is that of weights, gradients and activations. Activations may be bf16 where the others are f32:
  // ops then read a shadow of the weights (Parameters::update_shadow()). An arena divides into `arena_parts`
  // equal parts.
  LanguageModel(Backend& backend, Gpt2Config config, ParameterTable table, DType dtype, int arena_parts,
                Purpose purpose, std::optional<DType> activations)
      : config_(std::move(config)),
        parameters_(backend, std::move(table), dtype, arena_parts, purpose, activations) {}
  virtual ~LanguageModel() = default;

  // Mean cross-entropy (1), in nats, of targets i32 (B,T) after ids i32 (B,T). On a training tape it is the
  // loss of the tape, which no further op may use. A part of a model that has no head returns its residual
  // stream. Throws InternalError if T > block_size, as the functions below do.
  virtual Var loss(Tape& tape, const Tensor& ids, const Tensor& targets,
                   const PassOptions& options = {}) const = 0;
  // Logits (B,T,Vp) of ids i32 (B,T). Columns from vocab_size on are padding.
  virtual Var logits(Tape& tape, const Tensor& ids, const PassOptions& options = {}) const = 0;
  // Logits (B,1,Vp), not in bf16, of the token after each of B texts, valid until the next call. `tokens` are
  // T >= 1 of each text, (B,T). They follow those in the cache, and their keys and values are added to it:
  // cache.size() + T <= block_size. One token of each text is a single pass for all.
  Tensor next_logits(Backend& backend, std::span<const std::int32_t> tokens, KvCache& cache) const;

  const Gpt2Config& config() const { return config_; }
  Parameters& parameters() { return parameters_; }
  const Parameters& parameters() const { return parameters_; }

 protected:
  LanguageModel(LanguageModel&&) = default;  // so that a function can return a model
  // As next_logits(), in the dtype of activations, of ids i32 (B,T), B or T being 1.
  virtual Var last_logits(Tape& tape, const Tensor& ids, const KvCache& cache) const = 0;

 private:
  Gpt2Config config_;
  Parameters parameters_;
};

}  // namespace stagegpt
